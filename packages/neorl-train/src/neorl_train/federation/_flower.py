"""Sites as networked processes with Flower: the same rounds with the same arithmetic.

Flower is not a dependency: its version pins are narrower than ours, so a site that uses it needs a
separate environment, with neorl and ``"flwr>=1.42,<1.43"``.
"""

import dataclasses
import hashlib
import hmac
import importlib
import json
import secrets
import types
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line
from neorl_train.federation._client import Client
from neorl_train.federation._coordinator import Coordinator
from neorl_train.federation._engine import (
    ANSWERED,
    DEAD,
    LATE,
    NOT_DRAWN,
    RoundRecord,
    combined_answers,
    failed_rounds,
)
from neorl_train.federation._messages import (
    Introduction,
    RoundStart,
    Update,
    Vector,
    n_bytes,
    pack_introduction,
    pack_statistics,
    unpack_introduction,
    unpack_statistics,
)
from neorl_train.federation._settings import Federation, check_federation

INTRODUCTION, NONCE, PROOF = "introduction", "nonce", "proof"
MERGED, SETTINGS, ROUND, SITE, ROWS = "merged", "settings", "round", "site", "rows"
MAX_BYTES = 512 * 1024 * 1024


def serve_federation(
    settings: Federation,
    names: Sequence[str],
    address: str,
    *,
    seed: int = 0,
    round_timeout: float | None = None,
    certificates: tuple[bytes, bytes, bytes] | None = None,
    keys: Mapping[str, bytes] | None = None,
    watch: Callable[[RoundRecord], None] = lambda record: None,
    print_line: Callable[[str], None] = print,
) -> Vector:
    """Serves all rounds of a federation, gives every site the result, and returns it.

    Waits until every named site has joined. A site that fails or exceeds the timeout is left out of
    that round, as in the in-process engine, which computes the same sums. A late site stays
    connected and takes part again once it has finished. A site that joins again under its name
    takes part in the remaining rounds.

    Args:
        settings: Settings of the federation; the sites must have the same ones.
        names: Names of the sites, in the order of their numbers.
        address: Address to listen on, such as ``"127.0.0.1:8080"``.
        seed: Seed of the federation.
        round_timeout: Seconds that a round waits for each answer, or for the first site to come
            back if all are gone. By default a round waits for its answers without limit, and fails
            at once if all sites are gone. The first round includes the compilation at the sites.
        certificates: Certificate of the authority, certificate of the server, and its key, for
            encryption.
        keys: Secret of every site, by name, which a site needs to join under that name; by default
            whoever joins first under a name has it while the connection lasts.
        watch: Called after every round with its record.
        print_line: Called with messages for the user.

    Returns:
        The common parameters after the last round, shape ``(parameter,)``.

    Raises:
        InputError: If Flower is missing, settings need another engine, sites do not fit together,
            a site has no key, or too few of them answer in several consecutive rounds or in all.
    """
    flower = _flower()
    check_federation(settings, list(names))
    _require_served(settings)
    missing = [name for name in names if keys is not None and not keys.get(name)]
    if missing:
        raise InputError(f"keys has no secret of site {missing[0]}; give one for every site")
    strategy = Rounds(
        flower,
        settings,
        names,
        seed,
        watch=watch,
        print_line=print_line,
        timeout=round_timeout,
        keys=keys,
    )
    # Flower disconnects a site that exceeds Flower's own timeout, so the strategy has one instead.
    # It logs a strategy's exceptions and continues; they are raised where the caller sees them.
    flower.start_server(
        server_address=address,
        config=flower.ServerConfig(num_rounds=settings.federation.rounds),
        strategy=strategy,
        grpc_max_message_length=MAX_BYTES,
        certificates=certificates,
    )
    if strategy.fault is not None:
        raise strategy.fault
    return strategy.vector


def join_federation(
    client: Client,
    address: str,
    *,
    root_certificates: bytes | None = None,
    key: bytes | None = None,
) -> None:
    """Joins a federation as one site, and returns when the client has the common result.

    Args:
        client: The site, whose data stay in this process.
        address: Address of the server.
        root_certificates: Certificate of the authority, for encryption; without one, messages are
            not encrypted.
        key: Secret that proves the site's name, as in the server's ``keys``.

    Raises:
        InputError: If Flower is missing, the server has other settings than this site, or the
            federation ended without a result; ``client.policy`` is then no common policy.
    """
    flower = _flower()
    answers = _answers(flower)(client, key)
    reason = ""
    try:
        flower.start_client(
            server_address=address,
            client=answers.to_client(),
            grpc_max_message_length=MAX_BYTES,
            root_certificates=root_certificates,
            insecure=root_certificates is None,
        )
    except flower.RpcError as error:
        reason = f" ({one_line(error)[:160]})"
    if not answers.finished:
        raise InputError(
            f"the server at {address} ended the federation, or the connection, before site "
            f"{client.name} had the common result{reason}; see the server's messages, and join "
            "again if it still runs"
        )


def _flower() -> Any:
    """The names used from Flower, imported on demand."""
    try:
        client, common, server = (
            importlib.import_module(f"flwr.{part}") for part in ("client", "common", "server")
        )
        return types.SimpleNamespace(
            start_client=client.start_client,
            NumPyClient=client.NumPyClient,
            start_server=server.start_server,
            ServerConfig=server.ServerConfig,
            FitIns=common.FitIns,
            EvaluateIns=common.EvaluateIns,
            GetPropertiesIns=common.GetPropertiesIns,
            GetParametersIns=common.GetParametersIns,
            to_parameters=common.ndarrays_to_parameters,
            to_arrays=common.parameters_to_ndarrays,
            RpcError=importlib.import_module("grpc").RpcError,
        )
    except (ImportError, AttributeError) as error:
        raise InputError(
            "sites as processes need Flower 1.42, which is not installed; create an environment "
            'of its own with neorl-train, and run python -m pip install "flwr>=1.42,<1.43" in it'
        ) from error


def _require_served(settings: Federation) -> None:
    for name, chosen in (
        ('federation.rule = "gossip"', settings.federation.rule == "gossip"),
        ("messages.secure_sum", settings.messages.secure_sum),
        ('federation.method = "retuning"', settings.federation.method == "retuning"),
    ):
        if chosen:
            raise InputError(
                f"{name} is not supported over Flower; run all sites in one process with "
                "`neorl-train federate`"
            )


def _answers(flower: Any) -> type:
    """The client side of Flower's protocol."""

    class Answers(flower.NumPyClient):
        def __init__(self, client: Client, key: bytes | None) -> None:
            self._client, self._key = client, key
            self._started, self._next, self.finished = False, 0, False

        def get_properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
            introduction = pack_introduction(self._client.introduce())
            proof = _proof(self._key or b"", bytes(config[NONCE]), introduction)
            return {INTRODUCTION: introduction, PROOF: proof}

        def get_parameters(self, config: Mapping[str, Any]) -> list[np.ndarray]:
            return [self._begin(config)]

        def fit(self, parameters: list[np.ndarray], config: Mapping[str, Any]) -> Any:
            if not self._started:
                self._begin(config)
            round_ = int(config[ROUND])
            if self._next == 0 and round_ > 0:
                self._client.restart(round_)
            self._next = round_ + 1
            update = self._client.work(RoundStart(round_, parameters[0]))()
            facts = {SITE: update.site, ROUND: update.round, ROWS: update.rows}
            return list(update.arrays), update.rows, facts

        def evaluate(self, parameters: list[np.ndarray], config: Mapping[str, Any]) -> Any:
            """Adopts the result, which is what the server sends for evaluation."""
            if not self._started:
                self._begin(config)
            self._client.adopt(parameters[0])
            self.finished = True
            return 0.0, 1, {}

        def _begin(self, config: Mapping[str, Any]) -> Vector:
            _require_equal(str(config[SETTINGS]), _settings_text(self._client.settings))
            self._started = True
            return self._client.begin(unpack_statistics(bytes(config[MERGED])))

    return Answers


def _require_equal(server_settings: str, own_settings: str) -> None:
    if server_settings != own_settings:
        raise InputError(
            f"the server has the settings {server_settings}, this site has {own_settings}; give "
            "the same file to both"
        )


class Site:
    """One connection, with the name that its site proved; requests wait for earlier ones.

    Args:
        proxy: Flower's side of the connection.
        timeout: Seconds until a request is given up. The site may finish it, and its answer is then
            dropped; Flower itself would disconnect the site.
    """

    def __init__(self, proxy: Any, timeout: float | None) -> None:
        self.proxy, self.name, self.late = proxy, "", False
        self.timeout = timeout
        self._requests = ThreadPoolExecutor(1)

    def ask(self, kind: str, instruction: Any) -> Any:
        """The site's answer to one kind of request.

        Raises:
            TimeoutError: If there is none in time.
        """
        call = getattr(self.proxy, kind)
        answer = self._requests.submit(call, instruction, timeout=None, group_id=0)
        try:
            return answer.result(self.timeout)
        except TimeoutError:
            answer.cancel()
            self.late = True
            raise

    def fit(self, instruction: Any, timeout: float | None, group_id: int | None) -> Any:
        """The answer to a round, as Flower asks for it."""
        self.late = False
        return self.ask("fit", instruction)

    def evaluate(self, instruction: Any, timeout: float | None, group_id: int | None) -> Any:
        """Sends the result, as Flower asks for an evaluation."""
        return self.ask("evaluate", instruction)


class Rounds:
    """The server side in the form of a Flower strategy: the coordinator computes every sum."""

    def __init__(
        self,
        flower: Any,
        settings: Federation,
        names: Sequence[str],
        seed: int,
        *,
        watch: Callable[[RoundRecord], None],
        print_line: Callable[[str], None],
        timeout: float | None,
        keys: Mapping[str, bytes] | None,
    ) -> None:
        self.flower = flower
        self.settings, self.names, self.seed = settings, tuple(names), seed
        self.watch, self.print_line = watch, print_line
        self.timeout, self.keys = timeout, keys
        self.vector: Vector = np.zeros(0, np.float32)
        self.fault: Exception | None = None
        self.coordinator: Any = None
        self.failed, self.config = 0, {}
        self.sites: dict[str, Site] = {}
        """Connected sites, by the key of their connection; one that was refused has no name."""

    def initialize_parameters(self, client_manager: Any) -> Any:
        """Waits for all sites, merges their statistics and asks one for the initial parameters."""
        client_manager.wait_for(len(self.names))
        try:
            introductions = {}
            for key, proxy in dict(client_manager.all()).items():
                introduction = self._introduce(key, proxy)
                introductions[introduction.site] = introduction
            missing = [name for name in self.names if name not in introductions]
            if missing:
                raise InputError(
                    f"site {missing[0]} did not join; sites that joined: "
                    f"{', '.join(introductions) or 'none'}"
                )
            ordered = [introductions[name] for name in self.names]
            self.coordinator = Coordinator(self.settings, ordered, seed=self.seed)
            merged = pack_statistics(self.coordinator.merge())
            self.config = {MERGED: merged, SETTINGS: _settings_text(self.settings)}
            first = next(iter(client_manager.all().values()))
            request = self.flower.GetParametersIns(config=self.config)
            answer = first.get_parameters(request, timeout=None, group_id=0)
            (self.vector,) = self.flower.to_arrays(answer.parameters)
        except Exception as error:  # Flower would leave the sites waiting
            self.fault = error
        return self.flower.to_parameters([self.vector])

    def _introduce(self, key: str, proxy: Any) -> Introduction:
        """Binds a connection to the name of its site, which answers under no other from then on.

        Raises:
            InputError: If the name is unknown, in use, or not proved by its key.
        """
        # Before the first round all sites are waited for, however long they read their logs.
        site = self.sites[key] = Site(proxy, self.timeout if self.coordinator else None)
        nonce = secrets.token_bytes(32)
        request = self.flower.GetPropertiesIns(config={NONCE: nonce})
        properties = site.ask("get_properties", request).properties
        packed = bytes(properties[INTRODUCTION])
        introduction = unpack_introduction(packed)
        name = introduction.site
        if name not in self.names:
            raise InputError(f"a site joined as {name}, which is none of {', '.join(self.names)}")
        if self.keys is not None:
            proof = _proof(self.keys[name], nonce, packed)
            if not hmac.compare_digest(proof, bytes(properties.get(PROOF, b""))):
                raise InputError(f"a site joined as {name} without the key of that site")
        if any(other.name == name for other in self.sites.values()):
            raise InputError(f"two sites joined under the name {name}; give each site its own name")
        site.name, site.timeout = name, self.timeout
        return introduction

    def _connected(self, client_manager: Any) -> list[Site]:
        """The sites with a connection, after an introduction of those that joined again."""
        if self.timeout is not None:
            client_manager.wait_for(1, timeout=self.timeout)
        proxies = dict(client_manager.all())
        self.sites = {key: site for key, site in self.sites.items() if key in proxies}
        for key in proxies.keys() - self.sites.keys():
            try:
                self._introduce(key, proxies[key])
            except Exception as error:  # whatever a newcomer sends must not end the federation
                self.print_line(f"a site that joined is left out: {one_line(error)}")
        return [site for site in self.sites.values() if site.name]

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Sends the number of the round and the parameters to the participating sites."""
        if self.fault is not None:
            return []
        drawn = set(self.coordinator.draw(server_round - 1))
        config = {**self.config, ROUND: server_round - 1}
        instruction = self.flower.FitIns(self.flower.to_parameters([self.vector]), config)
        sites = [site for site in self._connected(client_manager) if site.name in drawn]
        if not sites:  # Flower passes over a round without sites
            self.aggregate_fit(server_round, [], [])
        return [(site, instruction) for site in sites]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Combines the answers."""
        del failures
        try:
            self._combine(server_round - 1, results)
        except InputError as error:
            self.fault = error
        return self.flower.to_parameters([self.vector]), {}

    def _combine(self, round_: int, results: Any) -> None:
        drawn, size = self.coordinator.draw(round_), len(self.vector)
        outcomes = {name: DEAD if name in drawn else NOT_DRAWN for name in self.names}
        outcomes |= {s.name: LATE for s in self.sites.values() if s.late and s.name in drawn}
        updates: dict[str, Update] = {}
        for site, answer in results:
            update, refused = self._update_of(site, answer)
            refused = refused or self.coordinator.reason_to_refuse(update, round_, size)
            outcomes[site.name] = f"refused: {refused}" if refused else ANSWERED
            if not refused:
                updates[site.name] = update
        # In the order of the names, not of arrival, because floating-point sums depend on the
        # order.
        updates = {name: updates[name] for name in self.names if name in updates}
        record = RoundRecord(
            round_, outcomes, {}, False,
            bytes_up=sum(n_bytes(update) for update in updates.values()),
            bytes_down=4 * size * len(results), bytes_plain=4 * size * len(updates),
        )  # fmt: skip
        value, record = combined_answers(self.coordinator, size, updates, record)
        self.vector = self.vector if value is None else self.vector + value
        self.watch(record)
        self.failed = failed_rounds(
            self.failed,
            record,
            self.settings.federation,
            advice="bring the sites back and start the server again",
            print_line=self.print_line,
        )

    def _update_of(self, site: Site, answer: Any) -> tuple[Any, str]:
        """The update in an answer, and why it is refused; empty if it is of this site."""
        try:
            facts, arrays = answer.metrics, tuple(self.flower.to_arrays(answer.parameters))
            update = Update(str(facts[SITE]), int(facts[ROUND]), int(facts[ROWS]), arrays)
        except (KeyError, TypeError, ValueError) as error:
            return None, f"its answer has another form ({one_line(error)})"
        other = update.site != site.name
        return update, f"it answered under the name {update.site}" * other

    def evaluate(self, server_round: int, parameters: Any) -> None:
        """Does nothing: the sites evaluate policies."""
        return None

    def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Sends the result to every site after the last round."""
        if self.fault is not None or server_round < self.settings.federation.rounds:
            return []
        result = self.flower.EvaluateIns(self.flower.to_parameters([self.vector]), self.config)
        sites = self._connected(client_manager)
        if not sites:
            self.aggregate_evaluate(server_round, [], [])
        return [(site, result) for site in sites]

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        """Names the sites that do not have the result."""
        received = {site.name for site, _ in results}
        for name in self.names:
            if name not in received:
                self.print_line(f"site {name} did not receive the result of the federation")
        return None, {}


def _proof(key: bytes, nonce: bytes, introduction: bytes) -> bytes:
    """What only a site with this key can answer to a nonce."""
    return hmac.digest(key, nonce + introduction, hashlib.sha256)


def _settings_text(settings: Federation) -> str:
    return json.dumps(dataclasses.asdict(settings), sort_keys=True)
