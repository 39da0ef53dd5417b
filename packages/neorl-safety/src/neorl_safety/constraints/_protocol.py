"""Protocol of a kind of constraint: its JSON, its description and its meaning for one action."""

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float

from neorl_core import InputError
from neorl_core.infrastructure import nearest_name


class ChannelRange(NamedTuple):
    """One variable that a constraint speaks of.

    Attributes:
        name: Tag of the channel.
        unit: Physical unit.
        low: Lower end of the actuator or of the measuring range, in ``unit``.
        high: Upper end, in ``unit``.
    """

    name: str
    unit: str
    low: float
    high: float


class Channels(NamedTuple):
    """The variables that constraints may speak of.

    Attributes:
        action: Manipulated variables with the ranges of their actuators, in order.
        obs: Observed variables with their measuring ranges, in order; empty where only actions
            are constrained.
    """

    action: tuple[ChannelRange, ...]
    obs: tuple[ChannelRange, ...]


class Situation(NamedTuple):
    """Everything that a constraint may depend on besides its own numbers.

    Attributes:
        obs: The observation, shape ``(obs,)``; may hold NaN.
        start: The action that the step starts from, shape ``(act,)``, always finite: the one that
            the plant received last or, where that is not known, the clipped fallback action.
        dt: Seconds that one step lasts, scalar, finite and not negative; zero where the period is
            malformed, so that no channel with a rate limit may move.
        request: The action that is asked for, shape ``(act,)``, always finite; the start for
            all kinds but those of rank :attr:`Rank.WEAR`.
        held: Seconds since each channel was last commanded to move, shape ``(act,)``; infinite
            where not known.
        position: The action that was commanded last, shape ``(act,)``; the start if that is
            unknown, or if another controller has moved the channel since.
    """

    obs: Float[Array, " obs"]
    start: Float[Array, " act"]
    dt: Float[Array, ""]
    request: Float[Array, " act"]
    held: Float[Array, " act"]
    position: Float[Array, " act"]


class Interval(NamedTuple):
    """The actions that one constraint admits, channel by channel.

    Attributes:
        low: Lowest admissible action, shape ``(act,)``; ``-inf`` where there is none.
        high: Highest admissible action, shape ``(act,)``; ``inf`` where there is none.
        bad: Flag of a malformed constraint, shape ``(act,)``; the fallback then acts. The ends
            hold all the same: those of the constraints that are sound.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    bad: Bool[Array, " act"]


class Rows(NamedTuple):
    """The actions that one constraint admits, by linear inequalities ``rows @ u <= bounds``.

    Attributes:
        rows: Coefficients, shape ``(row, act)``.
        bounds: Right sides, shape ``(row,)``; ``inf`` where there is no limit now.
        bad: Flag of a malformed row, shape ``(row,)``; the fallback then acts.
    """

    rows: Float[Array, "row act"]
    bounds: Float[Array, " row"]
    bad: Bool[Array, " row"]


class Rank(enum.IntEnum):
    """Which constraints give way where not all can hold; the actuator and the rate never do."""

    INTERLOCK = 0
    """An interval that takes the place of the box where it lies outside it."""
    LIMIT = 1
    """What must hold, inside the box."""
    WEAR = 2
    """What spares the actuator: shapes the policy's moves alone, gives way to every limit."""


class Record(NamedTuple):
    """One entry of the list of constraints in a document.

    Attributes:
        where: Place of the record, for messages: ``"constraint 3 (rate)"``.
        fields: Fields of the record without ``kind``.
    """

    where: str
    fields: Mapping[str, Any]


@runtime_checkable
class ConstraintKind(Protocol):
    """One kind of constraint: an object, or a module, with these functions.

    A constraint of the kind is any PyTree of arrays; ``channels`` are those of action and
    observation. A kind may have a ``rank``, see :class:`Rank`; without one it is a limit.
    """

    def to_records(self, channels: Channels, constraint: Any) -> Sequence[Mapping[str, Any]]:
        """The constraint as JSON records, without ``kind``."""
        ...

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Any:
        """The constraint of records that were read.

        Raises:
            InputError: If a field is missing, unknown or bad; the record is named by its place.
        """
        ...

    def describe(self, channels: Channels, constraint: Any) -> Sequence[str]:
        """Describes the demands, one sentence without full stop for each, with units."""
        ...

    def lower(self, constraint: Any, situation: Situation) -> Interval | Rows:
        """The actions that it admits now; traced, so total: NaN is an answer, never an error.

        What is admitted may depend on the situation, never the other way round: a wish that is
        no interval and no row (move by a percent or not at all) is an interval chosen by the
        situation. A kind of rank :attr:`Rank.WEAR` lowers to an interval.
        """
        ...


def require(condition: bool, message: str) -> None:
    """Raises :class:`~neorl_core.InputError` with the message unless the condition holds."""
    if not condition:
        raise InputError(message)


def require_fields(
    where: str, data: Any, fields: set[str], optional: AbstractSet[str] = frozenset()
) -> None:
    """Raises unless ``data`` is an object with these fields, and of others the optional ones."""
    require(isinstance(data, Mapping), f"{where} must be an object, got {type_name(data)}")
    given = set(map(str, data))
    known = fields | optional
    may = f" and may have {sorted(optional)}" if optional else ""
    near = [(name, nearest_name(name, known - given)) for name in sorted(given - known)]
    hints = "".join(f"; {name!r}: did you mean {other!r}?" for name, other in near if other)
    require(
        fields <= given <= known,
        f"{where} has the fields {sorted(fields)}{may}, got {sorted(given)}{hints}",
    )


def limit(where: str, field: str, data: Mapping[str, Any], unlimited: float) -> float:
    """A number of a record; ``unlimited``, an infinity, where it is missing or null."""
    value = data.get(field)
    return unlimited if value is None else number(where, field, value)


def number(where: str, field: str, value: Any) -> float:
    """A number of a document as a float.

    Raises:
        InputError: If it is none, or an integer too large for one.
    """
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    require(plain, f"{where}: {field} must be a number, got {type_name(value)}")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{where}: {field} is too large for a floating-point number") from None


def type_name(value: Any) -> str:
    """The type of a value of a document, in words."""
    return "null" if value is None else type(value).__name__
