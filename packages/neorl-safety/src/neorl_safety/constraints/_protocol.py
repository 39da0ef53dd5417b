"""What every kind of constraint has and shares.

The protocol of a kind is its JSON, its description and its meaning for one action; the fields of
its records are channels by name and unit, numbers and coefficients.
"""

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core import InputError
from neorl_core.infrastructure import nearest_name, unknown_name


class ChannelRange(NamedTuple):
    """One variable that a constraint can refer to.

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
    """The variables that constraints can refer to.

    Attributes:
        action: Manipulated variables with the ranges of their actuators, in order.
        obs: Observed variables with their measuring ranges, in order; empty if only actions are
            constrained.
    """

    action: tuple[ChannelRange, ...]
    obs: tuple[ChannelRange, ...]


class Situation(NamedTuple):
    """Everything that a constraint may depend on besides its own numbers.

    Attributes:
        obs: The observation, shape ``(obs,)``; may hold NaN.
        start: Action from which the step starts, shape ``(act,)``, always finite: the one that the
            plant last received or, if that is unknown, the clipped fallback action.
        dt: Length of one step in seconds, scalar, finite and not negative; zero if the period is
            malformed, so that no channel with a rate limit may move.
        request: Requested action, shape ``(act,)``, always finite; equal to ``start`` for all kinds
            except those of rank :attr:`Rank.WEAR`.
        held: Seconds since each channel was last commanded to move, shape ``(act,)``; infinite if
            unknown.
        position: Last commanded action, shape ``(act,)``; equal to ``start`` if that is unknown, or
            if another controller has moved the channel since.
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
        low: Lowest admissible action, shape ``(act,)``; ``-inf`` where there is no limit.
        high: Highest admissible action, shape ``(act,)``; ``inf`` where there is no limit.
        bad: Flag of a malformed constraint, shape ``(act,)``, which makes the fallback act. The
            ends of well-formed constraints still hold.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    bad: Bool[Array, " act"]


class Rows(NamedTuple):
    """The actions that one constraint admits, by linear inequalities ``rows @ u <= bounds``.

    Attributes:
        rows: Coefficients, shape ``(row, act)``.
        bounds: Right sides, shape ``(row,)``; ``inf`` where there is currently no limit.
        bad: Flag of a malformed row, shape ``(row,)``, which makes the fallback act.
    """

    rows: Float[Array, "row act"]
    bounds: Float[Array, " row"]
    bad: Bool[Array, " row"]


class Rank(enum.IntEnum):
    """Which constraints yield if not all can hold; actuator and rate limits never do."""

    INTERLOCK = 0
    """An interval that replaces the box if it lies outside the box."""
    LIMIT = 1
    """A limit that must hold inside the box."""
    WEAR = 2
    """Reduces actuator wear: affects only the policy's moves, and yields to every limit."""


class Record(NamedTuple):
    """One entry in a document's list of constraints.

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
    observation. A kind may have a ``rank``, see :class:`Rank`; the default is ``LIMIT``.
    """

    def to_records(self, channels: Channels, constraint: Any) -> Sequence[Mapping[str, Any]]:
        """The constraint as JSON records, without ``kind``."""
        ...

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Any:
        """Builds the constraint from records that were read.

        Raises:
            InputError: If a field is missing, unknown or bad; the message names the place of the
                record.
        """
        ...

    def describe(self, channels: Channels, constraint: Any) -> Sequence[str]:
        """Describes each requirement in a sentence without full stop, with units."""
        ...

    def lower(self, constraint: Any, situation: Situation) -> Interval | Rows:
        """The actions admitted now. Traced, so it must not raise an error: NaN is a valid input.

        The admitted set may depend on the situation, but only in this form. A rule that is neither
        an interval nor a row (move by a percent or not at all) becomes an interval that depends on
        the situation. A kind of rank :attr:`Rank.WEAR` lowers to an interval.
        """
        ...


def require(condition: bool, message: str) -> None:
    """Raises :class:`~neorl_core.InputError` with the message unless the condition holds."""
    if not condition:
        raise InputError(message)


def require_fields(
    where: str, data: Any, fields: set[str], optional: AbstractSet[str] = frozenset()
) -> None:
    """Raises an error unless ``data`` is an object with these and at most the optional fields."""
    require(isinstance(data, Mapping), f"{where} must be an object, got {type_name(data)}")
    given = set(map(str, data))
    known = fields | optional
    optional_text = f" and may have {sorted(optional)}" if optional else ""
    suggestions = [(name, nearest_name(name, known - given)) for name in sorted(given - known)]
    hints = "".join(f"; {name!r}: did you mean {other!r}?" for name, other in suggestions if other)
    require(
        fields <= given <= known,
        f"{where} must have the fields {sorted(fields)}{optional_text}, got {sorted(given)}{hints}",
    )


def limit(where: str, field: str, data: Mapping[str, Any], unlimited: float) -> float:
    """A number of a record; ``unlimited``, an infinity, if it is missing or null."""
    value = data.get(field)
    return unlimited if value is None else number(where, field, value)


def number(where: str, field: str, value: Any) -> float:
    """A number of a document as a float; an integer too large for one is refused."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    require(is_number, f"{where}: {field} must be a number, got {type_name(value)}")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{where}: {field} is too large for a floating-point number") from None


def type_name(value: Any) -> str:
    """The type of a value in a document, in words."""
    return "null" if value is None else type(value).__name__


# Fields of records: channels by name and unit, numbers, coefficients.


def index_of(channels: Sequence[ChannelRange], where: str, field: str, name: Any) -> int:
    """The index of a channel by its name; the nearest one is suggested for an unknown name."""
    names = [channel.name for channel in channels]
    require(
        bool(names),
        f"{where}: it names a channel, but no {field} channels are declared; declare them",
    )
    require(isinstance(name, str), f"{where}: {field} must be a name, got {type_name(name)}")
    if name not in names:
        require(False, f"{where}: {unknown_name(f'{field} channel', name, names)}")
    return names.index(name)


def require_unit(where: str, field: str, unit: Any, channel: ChannelRange) -> None:
    """Raises an error unless a unit equals that of the channel, since numbers are not converted."""
    require(
        unit == channel.unit,
        f"{where}: {field} is {unit!r}, but {channel.name} is in {channel.unit!r}; convert the "
        "numbers",
    )


def coefficients(
    channels: Sequence[ChannelRange], where: str, field: str, value: Any
) -> np.ndarray:
    """One number for every channel, zero for those that the record does not name.

    A coefficient is a number, in the row's unit per unit of the channel, or the same number with
    that unit, ``{"per": unit, "value": number}``.

    Raises:
        InputError: If a channel is unknown, its unit differs, or a number is bad.
    """
    row = np.zeros(len(channels), np.float32)
    require(
        isinstance(value, Mapping),
        f"{where}: {field} must be an object of coefficients by channel, got {type_name(value)}",
    )
    for name, entry in value.items():
        index = index_of(channels, where, field, name)
        entry_where = f"{where}, {field} of {name}"
        if not isinstance(entry, Mapping):
            row[index] = finite(entry_where, "coefficient", entry)
            continue
        valid = set(entry) == {"value", "per"}
        require(
            valid,
            f'{entry_where}: expected a number or {{"value": number, "per": unit}}, got {entry!r}',
        )
        require_unit(entry_where, "per", entry["per"], channels[index])
        row[index] = finite(entry_where, "value", entry["value"])
    return row


def coefficient_records(channels: Sequence[ChannelRange], row: Any) -> dict[str, dict[str, Any]]:
    """Inverse of :func:`coefficients`."""
    return {
        channel.name: {"value": shortest(entry), "per": channel.unit}
        for channel, entry in zip(channels, np.asarray(row), strict=True)
        if entry != 0
    }


def row_text(channels: Sequence[ChannelRange], row: Any) -> str:
    """For example ``"1 feed + 2.5 jacket"``; empty if all coefficients are zero."""
    terms = [
        f"{signed(float(entry))} {channel.name}"
        for channel, entry in zip(channels, np.asarray(row), strict=True)
        if entry != 0
    ]
    text = " ".join(terms).removeprefix("+ ")
    return f"-{text[2:]}" if text.startswith("- ") else text


def signed(value: float) -> str:
    """A number as a further term of a sum, as in ``"+ 2.5"``."""
    return f"{'-' if value < 0 else '+'} {abs(value):g}"


def finite(where: str, field: str, value: Any) -> float:
    """A number that is finite in float32 and not subnormal; raises an error otherwise."""
    given = number(where, field, value)
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(given)
    require(bool(np.isfinite(nearest)), f"{where}: {field} must be finite in float32, got {given}")
    tiny = np.finfo(np.float32).tiny
    require(
        given == 0 or abs(float(nearest)) >= float(tiny),
        f"{where}: {field} is {given}, below the smallest normal number {tiny:g}; write 0",
    )
    return float(nearest)


def shortest(value: Any) -> float | None:
    """The shortest decimal that rounds to the same float32; ``None`` for infinity."""
    nearest = np.asarray(value)[()]
    return float(str(nearest)) if np.isfinite(nearest) else None


def column(values: Sequence[float]) -> Array:
    """Numbers as float32."""
    with np.errstate(over="ignore"):  # an infinite end is reported by name later
        return jnp.asarray(np.asarray(values, np.float32))


def indices(values: Sequence[int]) -> Array:
    """Indices of channels as an integer array."""
    return jnp.asarray(np.asarray(values, np.int32))
