"""The in-process engine: the rounds of all sites, resumable after every one."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from neorl_agents import Algorithm, Learner
from neorl_agents.learning import for_run
from neorl_core import InputError, Policy
from neorl_train._process.progress import Reporter
from neorl_train.data._training_data import TrainingData
from neorl_train.federation._client import (
    Client,
    federated_learner,
    named_clients,
    proximal_strength,
)
from neorl_train.federation._coordinator import Coordinator
from neorl_train.federation._messages import RoundStart, Update, Vector, n_bytes
from neorl_train.federation._privacy import Pairings, epsilon
from neorl_train.federation._rules import alter, is_fault, mix, mixings
from neorl_train.federation._settings import (
    Fault,
    Federation,
    FederationConfig,
    check_faults,
    check_federation,
)
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.runs._records import Records
from neorl_train.training._plan import Plan, check_learner, check_trainable


class RoundRecord(NamedTuple):
    """One round.

    Attributes:
        round: Its number, from 0.
        outcomes: What happened to every site, by name: ``"answered"``, ``"not drawn"``, ``"dead"``,
            ``"late"``, ``"not finite"``, or ``"refused: ..."`` with the reason.
        shares: Weight of every site that answered, if the rule uses weights.
        counted: Whether the round changed the parameters; false if too few sites answered.
        change: Euclidean norm of the change of the common parameters; without a server, of their
            mean.
        disagreement: Largest distance of a site's parameters from their mean; 0 with a server.
        bytes_up: Bytes that the sites sent.
        bytes_down: Bytes that the server sent to them.
        bytes_plain: Bytes that the sites would have sent uncompressed.
        error: Euclidean norm of what compression removed from all updates, relative to them.
    """

    round: int
    outcomes: dict[str, str]
    shares: dict[str, float]
    counted: bool
    change: float = 0.0
    disagreement: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    bytes_plain: int = 0
    error: float = 0.0

    @property
    def answered(self) -> list[str]:
        """Names of the sites whose updates were used."""
        return [name for name, outcome in self.outcomes.items() if outcome == ANSWERED]


ANSWERED, NOT_DRAWN, DEAD, LATE, NOT_FINITE = "answered", "not drawn", "dead", "late", "not finite"


def worst_text(record: RoundRecord) -> str:
    """Describes the outcomes of the sites that did not answer."""
    return "; ".join(
        f"{name}: {outcome}" for name, outcome in record.outcomes.items() if outcome != ANSWERED
    )


def combined_answers(
    coordinator: Coordinator, size: int, updates: Mapping[str, Update], record: RoundRecord
) -> tuple[Vector | None, RoundRecord]:
    """What the rule makes of the answers of a round; ``None`` if the round does not count.

    Args:
        coordinator: The server.
        size: Number of coordinates of an answer.
        updates: Usable answers by site, in the order of the sites.
        record: The record so far; the outcome of a site whose numbers are not finite is replaced.
    """
    if not coordinator.enough(list(updates)):
        return None, record
    federation = coordinator.settings.federation
    changes = {name: coordinator.decode(update, size) for name, update in updates.items()}
    value, not_finite = coordinator.combine(record.round, changes, size)
    record.outcomes.update(dict.fromkeys(not_finite, NOT_FINITE))
    usable = [name for name in updates if name not in not_finite]
    too_few = bool(not_finite) and len(usable) < federation.least_sites
    if too_few or not np.isfinite(value).all():
        return None, record
    shares = coordinator.shares(usable)[0] if federation.rule == "mean" else {}
    record = record._replace(counted=True, shares=shares, change=float(np.linalg.norm(value)))
    return value, record


def failed_rounds(
    failed: int,
    record: RoundRecord,
    federation: FederationConfig,
    *,
    advice: str,
    print_line: Callable[[str], None],
) -> int:
    """Number of consecutive rounds that failed, including this one; a line is printed for each.

    Args:
        failed: Number before this round.
        record: Record of the round.
        federation: Rounds and patience.
        advice: What to do if the federation ends.
        print_line: Called with one line if the round failed.

    Raises:
        InputError: If there are as many as ``patience`` allows, or no round has counted at all.
    """
    if record.counted:
        return 0
    print_line(f"round {record.round}: too few sites answered ({worst_text(record)})")
    if failed + 1 >= min(federation.patience, federation.rounds):
        raise InputError(
            f"no round has been completed since round {record.round - failed}: "
            f"{worst_text(record)}; {advice}"
        )
    return failed + 1


class Answering(Protocol):
    """A site of the rounds: what it is asked for, and the name under which it answers.

    Attributes:
        name: Name of the site.
        pairings: Its secrets with the others; ``None`` without masked sums.
        last_error: Norms of what compression removed from its last answer, and of the answer.
    """

    name: str
    pairings: Pairings | None
    last_error: tuple[float, float]

    def restart(self, rounds: int) -> None:
        """Starts again after a failure."""
        ...

    def work(self, start: RoundStart) -> Callable[[], Update]:
        """Begins to answer; returns a function that waits for the answer."""
        ...

    def mask(self, start: RoundStart, *, share: float, largest: float, scale: float) -> Update:
        """The masked answer, multiplied by the site's share."""
        ...


class Exchange:
    """The rounds of a federation.

    Args:
        coordinator: The server; without a server, it only supplies the list of sites.
        clients: The sites.
        faults: Simulated faults of the sites.
        matrices: Mixing matrices of a round without a server; ``None`` with one.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        clients: Sequence[Answering],
        faults: Sequence[Fault],
        matrices: np.ndarray | None,
    ) -> None:
        self._coordinator, self._clients, self._faults = coordinator, list(clients), faults
        self._matrices = matrices
        if coordinator.settings.messages.secure_sum:
            published = {
                client.name: client.pairings.public for client in clients if client.pairings
            }
            for client in clients:
                if client.pairings:
                    client.pairings.exchange_keys(published)

    def round(self, number: int, vectors: list[Vector]) -> tuple[list[Vector], RoundRecord]:
        """Carries out one round.

        ``vectors`` are the common parameters; without a server those of every site.
        """
        if self._matrices is not None:
            outcomes, updates, _ = self._answers(number, vectors, len(vectors[0]))
            return self._mix(number, vectors, updates, outcomes)
        value, record = self.ask(number, vectors[0], len(vectors[0]))
        return vectors if value is None else [vectors[0] + value], record

    def ask(self, number: int, question: Vector, size: int) -> tuple[Vector | None, RoundRecord]:
        """What the rule makes of the answers of all sites to a vector, in a round with a server.

        Args:
            number: Number of the round.
            question: What every site receives, shape ``(question,)``.
            size: Number of coordinates of an answer.

        Returns:
            The combined answer, shape ``(size,)``, ``None`` if the round does not count; and the
            record.
        """
        outcomes, updates, down = self._answers(number, [question], size)
        up = sum(n_bytes(update) for update in updates.values())
        plain = 4 * size * len(updates)
        record = RoundRecord(number, outcomes, {}, False, 0.0, 0.0, up, down, plain)
        if self._coordinator.settings.messages.secure_sum:
            if not self._coordinator.enough(list(updates)):
                return None, record
            return self._masked_sum(number, question, updates, record)
        value, record = combined_answers(self._coordinator, size, updates, record)
        if value is None:
            return None, record
        usable = [name for name in updates if name in record.answered]
        return value, record._replace(error=self._relative_error(usable))

    def _answers(
        self, number: int, vectors: list[Vector], size: int
    ) -> tuple[dict[str, str], dict[str, Update], int]:
        """Lets all participating sites work in parallel; returns their outcomes and answers."""
        outcomes, running, down = {}, {}, 0
        drawn = self._coordinator.draw(number)
        for i, client in enumerate(self._clients):
            name = client.name
            is_dead = is_fault(self._faults, name, "dead", number)
            is_back = number and is_fault(self._faults, name, "dead", number - 1)
            if is_dead:
                outcomes[name] = DEAD
                continue
            if is_back:
                client.restart(number)
            if name not in drawn:
                outcomes[name] = NOT_DRAWN
                continue
            start = RoundStart(number, vectors[i if len(vectors) > 1 else 0])
            down += n_bytes(start)
            running[name] = client.work(start)
        updates = {}
        for name, finish in running.items():
            update = alter(self._faults, finish())
            refused = self._coordinator.reason_to_refuse(update, number, size)
            is_late = is_fault(self._faults, name, "late", number)
            secure = self._coordinator.settings.messages.secure_sum
            outcomes[name] = (
                f"refused: {refused}" if refused else LATE if is_late and not secure else ANSWERED
            )
            if outcomes[name] == ANSWERED:
                updates[name] = update
        return outcomes, updates, down

    def _relative_error(self, names: Sequence[str]) -> float:
        """The part of a round's updates that compression removed, relative to their norm."""
        errors = [client.last_error for client in self._clients if client.name in names]
        whole = np.sqrt(sum(length**2 for _, length in errors))
        return float(np.sqrt(sum(error**2 for error, _ in errors)) / whole) if whole else 0.0

    def _mix(
        self,
        number: int,
        vectors: list[Vector],
        updates: Mapping[str, Update],
        outcomes: dict[str, str],
    ) -> tuple[list[Vector], RoundRecord]:
        names, before = self._coordinator.names, np.mean(vectors, axis=0)
        record = RoundRecord(number, outcomes, {}, False)
        if not self._coordinator.enough(list(updates)):
            return vectors, record
        present = {
            name: vectors[names.index(name)] + update.arrays[0] for name, update in updates.items()
        }
        assert self._matrices is not None
        after, not_finite, sent = mix(present, names, self._matrices)
        for name in not_finite:
            outcomes[name] = NOT_FINITE
        new_vectors: list[Any] = [
            after.get(name, old) for name, old in zip(names, vectors, strict=True)
        ]
        # A site that received nothing finite keeps its parameters.
        new_vectors = [
            new if np.isfinite(new).all() else old
            for new, old in zip(new_vectors, vectors, strict=True)
        ]
        mean = np.mean(new_vectors, axis=0)
        disagreement = max(float(np.linalg.norm(vector - mean)) for vector in new_vectors)
        change = float(np.linalg.norm(mean - before))
        record = record._replace(
            counted=len(not_finite) < len(present), change=change, disagreement=disagreement,
            bytes_up=sent, bytes_plain=sent,
        )  # fmt: skip
        return new_vectors, record

    def _masked_sum(
        self, number: int, vector: Vector, updates: Mapping[str, Update], record: RoundRecord
    ) -> tuple[Vector | None, RoundRecord]:
        """The combination of the masked sums of all groups; by default all sites are one group."""
        terms, shares, up = [], {}, 0
        for group in self._coordinator.groups(number, list(updates)):
            of_group, shares_of_group, sent = self._masked_group(number, vector, group, record)
            up += sent
            if of_group:
                terms.append(of_group)
                shares |= shares_of_group
        record = record._replace(bytes_up=up)
        value = self._coordinator.unmask(number, terms)
        if value is None:
            return None, record
        shares = shares if len(terms) == 1 else {}
        record = record._replace(counted=True, shares=shares, change=float(np.linalg.norm(value)))
        return value, record

    def _masked_group(
        self, number: int, vector: Vector, group: Sequence[str], record: RoundRecord
    ) -> tuple[list[np.ndarray], dict[str, float], int]:
        """The masked terms of a group, restarted without any site that stops answering.

        No group is formed anew: two sums over groups that overlap would reveal their difference.

        Returns:
            The terms, the weights of their sites, and the bytes sent; no terms if too few sites are
            left to hide one another, or to count.
        """
        present, attempt, up = list(group), 0, 0
        while self._coordinator.hides(present):
            shares, largest, scale = self._coordinator.masking(present)
            start = RoundStart(number, vector, tuple(present), attempt)
            terms, silent = [], []
            for client in self._clients:
                if client.name not in present:
                    continue
                if is_fault(self._faults, client.name, "late", number):
                    silent.append(client.name)
                    continue
                term = client.mask(start, share=shares[client.name], largest=largest, scale=scale)
                up += n_bytes(term)
                terms.append(term.arrays[0])
            record.outcomes.update(dict.fromkeys(silent, LATE))
            if not silent:
                return terms, shares, up
            if self._coordinator.settings.noise_of_sites:
                break  # a second sum of the round would need noise of its own
            present = [name for name in present if name not in silent]
            attempt += 1
        return [], {}, up


DEFAULT = Federation()
Watch = Callable[[RoundRecord], None]


@dataclasses.dataclass(frozen=True)
class Federated:
    """Results of a federation.

    Attributes:
        policies: Policy of every site: the common one, or its own without a server.
        parameters: Parameters of every site.
        rounds: Number of completed rounds.
        records: Records of the rounds in this call.
        epsilon: Privacy loss at ``privacy.delta`` over all rounds; infinite without noise.
        finished: Whether all rounds were completed; false after a request to stop.
    """

    policies: dict[str, Policy]
    parameters: dict[str, Vector]
    rounds: int
    records: tuple[RoundRecord, ...]
    epsilon: float
    finished: bool


def never() -> bool:
    """Never requests a stop."""
    return False


def ignore(record: RoundRecord) -> None:
    """Ignores all events."""


def recorded_rounds(
    records: Records, reporter: Reporter, seed: int, *, votes: bool = False
) -> Watch:
    """Writes a line about every round, and shows its progress; votes change no parameters."""

    def watch(record: RoundRecord) -> None:
        records.write({"seed": seed, **record._asdict()})
        records.sync()
        answered = f"{len(record.answered)} of {len(record.outcomes)} answered"
        text = answered if votes else f"{answered}, change {record.change:.3g}"
        reporter.update(record.round + 1, text)

    return watch


def federate(
    learner: Learner,
    sites: Mapping[str, TrainingData],
    settings: Federation = DEFAULT,
    *,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    secret: np.ndarray | None = None,
    checkpoints: Checkpoints | None = None,
    watch: Watch = ignore,
    print_line: Callable[[str], None] = print,
    stop: Callable[[], bool] = never,
) -> Federated:
    """Trains one learner on the data of several sites, which stay with their clients.

    The result depends on learner, data, settings, seed, faults and, with privacy, the secret, but
    not on where it was interrupted.

    Args:
        learner: Learner with plain numbers; schedules of length -1 take the length of all rounds.
        sites: Training data of every site, by name.
        settings: How they train together.
        seed: Seed of all random numbers.
        faults: Simulated failures or false messages of sites.
        secret: Four integers below 2^32 that determine the noise for privacy; generated by the
            operating system by default, and stored in the checkpoints.
        checkpoints: Checkpoints to resume from and save to, once per round; closed on return.
        watch: Called after every round with its record.
        print_line: Called with messages for the user.
        stop: Called once per round; training ends when it returns true.

    Returns:
        Policies and parameters of all sites, and the rounds.

    Raises:
        InputError: In one line: settings, sites or learner do not fit together, or too few sites
            answered in several consecutive rounds; the last checkpoint is kept.
    """
    names = list(sites)
    check_federation(settings, names)
    check_faults(faults, names, secure_sum=settings.messages.secure_sum)
    learner = checked_learner(learner, sites, settings)
    clients = named_clients(learner, sites, settings, seed=seed)
    coordinator = Coordinator(
        settings, [client.introduce() for client in clients], seed=seed, secret=secret
    )
    merged = coordinator.merge()
    vectors = [client.begin(merged) for client in clients]
    if settings.federation.proximal:
        proximal_strength(learner, clients[0].parameter_tree, settings.federation.proximal)
    if isinstance(learner, Algorithm):
        _ = clients[0].policy  # refused before anything is compiled
    _, limited = coordinator.shares(names)
    for name in limited * (settings.federation.rule == "mean"):
        print_line(
            f"site {name} has {coordinator.rows[name]} of {sum(coordinator.rows.values())} rows; "
            "its weight is limited to federation.largest_share = "
            f"{settings.federation.largest_share:g}"
        )
    engine = _Engine(coordinator, clients, vectors[0], faults, print_line)
    try:
        return engine.run(checkpoints, watch, stop)
    finally:
        if checkpoints is not None:
            checkpoints.close()


def checked_learner(
    learner: Learner, sites: Mapping[str, TrainingData], settings: Federation
) -> Learner:
    """The learner with resolved schedules, if sites can train it."""
    local = settings.federation.local_updates
    plan = Plan(local * settings.federation.rounds, local, local)
    check_learner(learner, plan)
    for name, data in sites.items():
        if not isinstance(data, TrainingData):
            raise InputError(
                f"site {name}: its log does not fit in data.memory, and sites train on logs in "
                "memory; raise data.memory"
            )
        try:
            check_trainable(learner, data, plan)
        except InputError as error:
            raise InputError(f"site {name}: {error}") from error
    return for_run(federated_learner(learner), plan.updates)


def federation_checkpoints(
    folder: Path,
    identity: Mapping[str, Any],
    *,
    keep: int = 2,
    print_line: Callable[[str], None] = print,
) -> Checkpoints:
    """Checkpoints of one federation, which other federations cannot continue.

    Args:
        folder: Folder of the checkpoints.
        identity: Description of the federation, as plain JSON.
        keep: Number of checkpoints that are kept.
        print_line: Called with one line about each damaged checkpoint.
    """
    return Checkpoints(folder, identity=identity, interval=1, keep=keep, print_line=print_line)


class _Engine:
    def __init__(
        self,
        coordinator: Coordinator,
        clients: Sequence[Client],
        vector: Vector,
        faults: Sequence[Fault],
        print_line: Callable[[str], None],
    ) -> None:
        self.settings = coordinator.settings
        self.coordinator, self.clients = coordinator, list(clients)
        gossip = self.settings.federation.rule == "gossip"
        matrices = mixings(self.settings.gossip, coordinator.names) if gossip else None
        self.exchange = Exchange(coordinator, clients, faults, matrices)
        self.vectors = [vector.copy() for _ in (clients if gossip else [0])]
        self.round, self.failed, self.print_line = 0, 0, print_line

    def run(
        self, checkpoints: Checkpoints | None, watch: Watch, stop: Callable[[], bool]
    ) -> Federated:
        restored = checkpoints and checkpoints.restore(self._tree())
        if restored:
            self._restore(restored.step, restored.tree)
        records, rounds = [], self.settings.federation.rounds
        while self.round < rounds and not stop():
            self.vectors, record = self.exchange.round(self.round, self.vectors)
            self.round += 1
            watch(record)
            records.append(record)
            self.failed = failed_rounds(
                self.failed,
                record,
                self.settings.federation,
                advice="bring the sites back and repeat the command, which continues from the last "
                "checkpoint",
                print_line=self.print_line,
            )
            if checkpoints is not None:
                # A failed round is stored too, so that it is not repeated forever.
                last = self.round == rounds or stop()
                checkpoints.save(self.round, self._tree(), force=last)
        return self._result(records, finished=self.round >= rounds)

    def _tree(self) -> dict[str, Any]:
        return {
            "vectors": np.stack(self.vectors),
            "failed": np.asarray(self.failed, np.int32),
            "secret": self.coordinator.secret,
            "sites": {client.name: client.snapshot() for client in self.clients},
        }

    def _restore(self, step: int, tree: Mapping[str, Any]) -> None:
        self.round, self.failed = step, int(tree["failed"])
        self.vectors = list(np.asarray(tree["vectors"]))
        self.coordinator.secret = np.asarray(tree["secret"])
        for client in self.clients:
            client.restore(tree["sites"][client.name])

    def _result(self, records: Sequence[RoundRecord], *, finished: bool) -> Federated:
        own = self.vectors * (len(self.clients) if len(self.vectors) == 1 else 1)
        parameters = dict(zip(self.coordinator.names, own, strict=True))
        for client in self.clients:
            client.adopt(parameters[client.name])
        policies = {
            client.name: client.policy
            for client in self.clients
            if isinstance(client.learner, Algorithm)
        }
        federation, privacy = self.settings.federation, self.settings.privacy
        spent_epsilon = (
            epsilon(
                rounds=self.round, noise_multiplier=privacy.noise_multiplier,
                participation=federation.participation, delta=privacy.delta,
            )
            if self.settings.private
            else float("inf")
        )  # fmt: skip
        return Federated(policies, parameters, self.round, tuple(records), spent_epsilon, finished)
