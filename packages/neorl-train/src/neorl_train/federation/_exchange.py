"""One in-process round: the sites that take part, those that answer, and the result."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_train.federation._client import Client
from neorl_train.federation._coordinator import Coordinator
from neorl_train.federation._messages import RoundStart, Update, Vector, n_bytes
from neorl_train.federation._rules import Fault, alter, is_fault, mix


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

    def line(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return self._asdict()

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
        clients: Sequence[Client],
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
        outcomes, updates, down = self._updates_of_round(number, vectors)
        up = sum(n_bytes(update) for update in updates.values())
        plain = 4 * len(vectors[0]) * len(updates)
        if self._matrices is not None:
            return self._mix(number, vectors, updates, outcomes)
        record = RoundRecord(number, outcomes, {}, False, 0.0, 0.0, up, down, plain)
        if not self._coordinator.enough(list(updates)):
            return vectors, record
        if self._coordinator.settings.messages.secure_sum:
            return self._masked_sum(number, vectors[0], updates, record)
        size = len(vectors[0])
        changes = {name: self._coordinator.decode(update, size) for name, update in updates.items()}
        value, not_finite = self._coordinator.combine(number, changes, size)
        for name in not_finite:
            outcomes[name] = NOT_FINITE
        usable = [name for name in updates if name not in not_finite]
        minimum = self._coordinator.settings.federation.least_sites
        if not np.isfinite(value).all() or len(usable) < minimum * bool(not_finite):
            return vectors, record
        shares, _ = self._coordinator.shares(usable)
        record = record._replace(
            counted=True,
            shares=shares if self._coordinator.settings.federation.rule == "mean" else {},
            change=float(np.linalg.norm(value)),
            error=self._relative_error(usable),
        )
        return [vectors[0] + value], record

    def _updates_of_round(
        self, number: int, vectors: list[Vector]
    ) -> tuple[dict[str, str], dict[str, Update], int]:
        """Trains all participating sites in parallel; returns their outcomes and answers."""
        outcomes, running, down = {}, {}, 0
        drawn = self._coordinator.draw(number)
        size = len(vectors[0])
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
    ) -> tuple[list[Vector], RoundRecord]:
        """The masked sum; restarted without any site that stops answering before it is complete."""
        present, attempt, up = list(updates), 0, 0
        while True:
            shares, largest, scale = self._coordinator.masking(present)
            start = RoundStart(number, vector, tuple(present), attempt)
            terms, silent = {}, []
            for client in self._clients:
                if client.name not in present:
                    continue
                if is_fault(self._faults, client.name, "late", number):
                    silent.append(client.name)
                    continue
                term = client.mask(start, share=shares[client.name], largest=largest, scale=scale)
                up += n_bytes(term)
                terms[client.name] = term.arrays[0]
            for name in silent:
                record.outcomes[name] = LATE
            record = record._replace(bytes_up=up)
            if not silent:
                break
            present = [name for name in present if name not in silent]
            attempt += 1
            if not present or not self._coordinator.enough(present):
                return [vector], record
        value = self._coordinator.unmask(number, list(terms.values()), scale)
        record = record._replace(counted=True, shares=shares, change=float(np.linalg.norm(value)))
        return [vector + value], record
