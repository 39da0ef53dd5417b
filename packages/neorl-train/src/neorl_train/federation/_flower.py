"""Sites as networked processes with Flower: the same rounds with the same arithmetic.

Flower is not a dependency: its version pins are narrower than ours, so a site that uses it needs a
separate environment (``pip install neorl-train "flwr>=1.42,<1.43"``).
"""

import dataclasses
import importlib
import json
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_train.federation._client import Client
from neorl_train.federation._coordinator import Coordinator
from neorl_train.federation._engine import (
    ANSWERED,
    DEAD,
    NOT_DRAWN,
    NOT_FINITE,
    RoundRecord,
    worst_text,
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

INTRODUCTION, MERGED, SETTINGS, ROUND, SITE, ROWS = (
    "introduction",
    "merged",
    "settings",
    "round",
    "site",
    "rows",
)
MAX_BYTES = 512 * 1024 * 1024


def serve_federation(
    settings: Federation,
    names: Sequence[str],
    address: str,
    *,
    seed: int = 0,
    round_timeout: float | None = None,
    certificates: tuple[bytes, bytes, bytes] | None = None,
    watch: Callable[[RoundRecord], None] = lambda record: None,
    print_line: Callable[[str], None] = print,
) -> Vector:
    """Serves all rounds of a federation and returns the common parameters.

    Waits until every named site has joined. A site that fails or exceeds the timeout is left out of
    that round, as in the in-process engine, which computes the same sums. A site that joins again
    under its name takes part in the remaining rounds.

    Args:
        settings: Settings of the federation; the sites must have the same ones.
        names: Names of the sites, in the order of their numbers.
        address: Address to listen on, such as ``"127.0.0.1:8080"``.
        seed: Seed of the federation.
        round_timeout: Seconds that a round waits for its answers; unlimited by default.
        certificates: Certificate of the authority, certificate of the server, and its key, for
            encryption.
        watch: Called after every round with its record.
        print_line: Called with messages for the user.

    Raises:
        InputError: If Flower is missing, settings need another engine, sites do not fit together,
            or too few of them answer in several consecutive rounds.
    """
    flower = _flower()
    check_federation(settings, list(names))
    _require_served(settings)
    strategy = Rounds(flower, settings, names, seed, watch, print_line)
    # Flower logs a strategy's exceptions and continues; they are raised where the caller sees them.
    flower.start_server(
        server_address=address,
        config=flower.ServerConfig(
            num_rounds=settings.federation.rounds, round_timeout=round_timeout
        ),
        strategy=strategy,
        grpc_max_message_length=MAX_BYTES,
        certificates=certificates,
    )
    if strategy.fault is not None:
        raise strategy.fault
    return strategy.vector


def join_federation(
    client: Client, address: str, *, root_certificates: bytes | None = None
) -> None:
    """Joins a federation as one site, and returns when its rounds are over.

    The client then has the parameters of the last round that the server sent to it.

    Args:
        client: The site, whose data stay in this process.
        address: Address of the server.
        root_certificates: Certificate of the authority, for encryption; without one, messages are
            not encrypted.

    Raises:
        InputError: If Flower is missing, or the server has other settings than this site.
    """
    flower = _flower()
    answers = _answers(flower)(client)
    flower.start_client(
        server_address=address,
        client=answers.to_client(),
        grpc_max_message_length=MAX_BYTES,
        root_certificates=root_certificates,
        insecure=root_certificates is None,
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
            GetPropertiesIns=common.GetPropertiesIns,
            GetParametersIns=common.GetParametersIns,
            to_parameters=common.ndarrays_to_parameters,
            to_arrays=common.parameters_to_ndarrays,
        )
    except (ImportError, AttributeError) as error:
        raise InputError(
            "sites as processes need Flower 1.42, which is not installed; create an environment "
            'for it with `pip install neorl-train "flwr>=1.42,<1.43"`'
        ) from error


def _require_served(settings: Federation) -> None:
    for name, chosen in (
        ('federation.rule = "gossip"', settings.federation.rule == "gossip"),
        ("messages.secure_sum", settings.messages.secure_sum),
    ):
        if chosen:
            raise InputError(
                f"{name} is not supported over Flower; run all sites in one process with "
                "`neorl-train federate`"
            )


def _answers(flower: Any) -> type:
    """The client side of Flower's protocol."""

    class Answers(flower.NumPyClient):
        def __init__(self, client: Client) -> None:
            self._client, self._started, self._next = client, False, 0

        def get_properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
            return {INTRODUCTION: pack_introduction(self._client.introduce())}

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

        def _begin(self, config: Mapping[str, Any]) -> Vector:
            server_settings, own_settings = (
                str(config[SETTINGS]),
                _settings_text(self._client.settings),
            )
            if server_settings != own_settings:
                raise InputError(
                    f"the server has the settings {server_settings}, this site has {own_settings}; "
                    "give the same file to both"
                )
            self._started = True
            return self._client.begin(unpack_statistics(bytes(config[MERGED])))

    return Answers


class Rounds:
    """The server side in the form of a Flower strategy: the coordinator computes every sum."""

    def __init__(
        self,
        flower: Any,
        settings: Federation,
        names: Sequence[str],
        seed: int,
        watch: Callable[[RoundRecord], None],
        print_line: Callable[[str], None],
    ) -> None:
        self.flower = flower
        self.settings, self.names, self.seed = settings, tuple(names), seed
        self.watch, self.print_line = watch, print_line
        self.vector: Vector = np.zeros(0, np.float32)
        self.fault: Exception | None = None
        self.coordinator: Any = None
        self.failed, self.config, self.by_proxy = 0, {}, {}

    def initialize_parameters(self, client_manager: Any) -> Any:
        """Waits for all sites, merges their statistics and asks one for the initial parameters."""
        client_manager.wait_for(len(self.names))
        try:
            introductions = self._introductions(client_manager)
            self.coordinator = Coordinator(self.settings, introductions, seed=self.seed)
            merged = pack_statistics(self.coordinator.merge())
            self.config = {MERGED: merged, SETTINGS: _settings_text(self.settings)}
            first = next(iter(client_manager.all().values()))
            request = self.flower.GetParametersIns(config=self.config)
            answer = first.get_parameters(request, timeout=None, group_id=0)
            (self.vector,) = self.flower.to_arrays(answer.parameters)
        except (InputError, KeyError, ValueError) as error:
            self.fault = error
        return self.flower.to_parameters([self.vector])

    def _introductions(self, client_manager: Any) -> list[Introduction]:
        by_site = {}
        for key, proxy in client_manager.all().items():
            request = self.flower.GetPropertiesIns(config={})
            answer = proxy.get_properties(request, timeout=None, group_id=0)
            introduction = unpack_introduction(bytes(answer.properties[INTRODUCTION]))
            if introduction.site in by_site:
                raise InputError(
                    f"two sites joined under the name {introduction.site}; give each "
                    "site its own name"
                )
            by_site[introduction.site] = introduction
            self.by_proxy[key] = introduction.site
        missing = [name for name in self.names if name not in by_site]
        if missing:
            raise InputError(
                f"site {missing[0]} did not join; sites that joined: {', '.join(by_site) or 'none'}"
            )
        return [by_site[name] for name in self.names]

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Sends the number of the round and the parameters to the participating sites."""
        if self.fault is not None:
            return []
        drawn = set(self.coordinator.draw(server_round - 1))
        config = {**self.config, ROUND: server_round - 1}
        instruction = self.flower.FitIns(self.flower.to_parameters([self.vector]), config)
        return [
            (proxy, instruction)
            for key, proxy in client_manager.all().items()
            # A site that joined again is identified by its name when it answers.
            if self.by_proxy.get(key) is None or self.by_proxy[key] in drawn
        ]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Combines the answers."""
        del failures
        try:
            self._combine(server_round - 1, results)
        except InputError as error:
            self.fault = error
        return self.flower.to_parameters([self.vector]), {}

    def _combine(self, round_: int, results: Any) -> None:
        if self.fault is not None:
            return
        drawn, size = self.coordinator.draw(round_), len(self.vector)
        outcomes = {name: DEAD if name in drawn else NOT_DRAWN for name in self.names}
        updates: dict[str, Update] = {}
        for _, answer in results:
            facts, arrays = answer.metrics, tuple(self.flower.to_arrays(answer.parameters))
            update = Update(str(facts[SITE]), int(facts[ROUND]), int(facts[ROWS]), arrays)
            refused = self.coordinator.reason_to_refuse(update, round_, size)
            outcomes[update.site] = f"refused: {refused}" if refused else ANSWERED
            if not refused:
                updates[update.site] = update
        # In the order of the names, not of arrival, because floating-point sums depend on the
        # order.
        updates = {name: updates[name] for name in self.names if name in updates}
        record = RoundRecord(
            round_, outcomes, {}, False,
            bytes_up=sum(n_bytes(update) for update in updates.values()),
            bytes_down=4 * size * len(results), bytes_plain=4 * size * len(updates),
        )  # fmt: skip
        if self.coordinator.enough(list(updates)):
            changes = {n: self.coordinator.decode(update, size) for n, update in updates.items()}
            value, lost = self.coordinator.combine(round_, changes, size)
            outcomes.update(dict.fromkeys(lost, NOT_FINITE))
            if np.isfinite(value).all():
                self.vector = self.vector + value
                change = float(np.linalg.norm(value))
                record = record._replace(counted=True, change=change)
        self.watch(record)
        self.failed = 0 if record.counted else self.failed + 1
        if not record.counted:
            self.print_line(f"round {round_}: too few sites answered ({worst_text(record)})")
        if self.failed >= self.settings.federation.patience:
            raise InputError(
                f"no round has been completed since round {round_ - self.failed + 1}: "
                f"{worst_text(record)}; bring the sites back and start the server again"
            )

    def evaluate(self, server_round: int, parameters: Any) -> None:
        """Does nothing: the sites evaluate policies."""
        return None

    def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Selects no site."""
        return []

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        """Does nothing."""
        return None, {}


def _settings_text(settings: Federation) -> str:
    return json.dumps(dataclasses.asdict(settings), sort_keys=True)
