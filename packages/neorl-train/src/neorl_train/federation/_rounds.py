"""Record of a round, and of every site in it."""

from typing import Any, NamedTuple


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


def worst_words(record: RoundRecord) -> str:
    """Describes the outcomes of the sites that did not answer."""
    return "; ".join(
        f"{name}: {outcome}" for name, outcome in record.outcomes.items() if outcome != ANSWERED
    )
