"""One declaration of a setting: default and range on the field, for checks, help and pages."""

import dataclasses
import functools
import math
import operator
import typing
from typing import Any, Literal, TypeVar

from neorl_core._vocabulary.errors import InputError

T = TypeVar("T")

MAX_SEED = 2_147_483_647
"""Largest seed of a command: the largest integer of 32 bits."""
RANGE = "range"
"""Key of the range in the metadata of a field."""
KEEPS = {"low": operator.ge, "high": operator.le, "above": operator.gt, "below": operator.lt}
"""How a number compares with each end of a range that it keeps."""
_NOUNS = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("text", "strings"),
}
"""What one value of a kind is called, and several."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a setting may be: finite ones between two ends, and perhaps one more.

    Attributes:
        low: Smallest number.
        high: Largest number.
        above: Number that all must exceed, in place of ``low``.
        below: Number that none may reach, in place of ``high``.
        also: One further number with a meaning of its own, such as -1 or infinity.

    Example:
        >>> Range(above=0, high=1).text, Range(low=1, also=-1).text
        ('in (0, 1]', 'at least 1, or -1')
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    also: float | None = None

    @property
    def text(self) -> str:
        """The range as help texts and messages name it."""
        low = self.low if self.above is None else self.above
        high = self.high if self.below is None else self.below
        if low is None and high is None:
            text = "finite"
        elif high is None:
            text = f"{'at least' if self.above is None else 'above'} {low}"
        elif low is None:
            text = f"{'at most' if self.below is None else 'below'} {high}"
        else:
            ends = "[" if self.above is None else "(", "]" if self.below is None else ")"
            text = f"in {ends[0]}{low}, {high}{ends[1]}"
        return text if self.also is None else f"{text}, or {self.also}"

    def named(self, noun: str) -> str:
        """The range after what it consists of, as in *an integer of at least 1*."""
        if self.text.startswith("finite"):
            return f"{noun.replace('number', 'finite number')}{self.text.removeprefix('finite')}"
        return f"{noun} of {self.text}" if self.text.startswith("at ") else f"{noun} {self.text}"

    def admits(self, numbers: Any) -> bool:
        """Whether a number, or every number of an array, is in the range; NaN never is."""
        numbers = _on_host(numbers)
        inside = (numbers > -math.inf) & (numbers < math.inf)
        for end, keeps in KEEPS.items():
            if (limit := getattr(self, end)) is not None:
                inside = inside & keeps(numbers, limit)
        if self.also is not None:
            inside = inside | (numbers == self.also)
        return _all(inside)

    def require(self, name: str, value: Any, *, integer: bool = False) -> None:
        """Refuses a value that is not a number of the range; a value being traced passes.

        Args:
            name: Name of the setting, for the message.
            value: A number or an array of numbers.
            integer: Whether numbers with a fraction are refused too.

        Raises:
            InputError: If it is not.
        """
        if _is_traced(value) or (_is_numeric(value, integer) and self.admits(value)):
            return
        expected = self.named("an integer" if integer else "a number")
        if isinstance(value, float) and not math.isfinite(value) and "finite" not in expected:
            expected = expected.replace("a number", "a finite number", 1)
        raise InputError(f"{name} must be {expected}, got {value!r}")


def setting(
    default: T,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    also: float | None = None,
    static: bool = False,
    converter: Any = None,
) -> T:
    """The default of a field of a dataclass, and the range of its numbers.

    The range is declared here alone: :func:`require_settings` checks it, and the help of the
    commands shows it. It is inherited: a subclass that replaces the default by another number
    keeps the range, unless it declares one itself.

    Args:
        default: Default: a number, or a tuple, whose numbers must each be in the range.
        low: Smallest number.
        high: Largest number.
        above: Number that the value must exceed, in place of ``low``.
        below: Number that the value may not reach, in place of ``high``.
        also: One further number with a meaning of its own, such as -1 or infinity.
        static: Whether JAX takes the field as a part of the form of its object, not as a leaf.
        converter: Function that an ``equinox.Module`` applies to a value that is given.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Search:
        ...     step: float = setting(0.5, above=0)
        ...     generations: int = setting(12, low=1)
        >>> try:
        ...     require_settings(Search(step=0.0))
        ... except InputError as error:
        ...     print(error)
        Search.step must be a number above 0, got 0.0
    """
    metadata: dict[str, Any] = {RANGE: Range(low, high, above, below, also)}
    metadata |= {"static": True} if static else {}
    metadata |= {} if converter is None else {"converter": converter}
    return dataclasses.field(default=default, metadata=metadata)


@functools.cache
def range_of(kind: type, name: str) -> Range | None:
    """The range that a dataclass, or the nearest of its bases, declares for a field; else none.

    Args:
        kind: The dataclass.
        name: Name of the field.
    """
    for base in kind.__mro__:
        field = base.__dict__.get("__dataclass_fields__", {}).get(name)
        if field is not None and RANGE in field.metadata:
            return field.metadata[RANGE]
    return None


def require_settings(owner: Any, where: str | None = None) -> None:
    """Refuses an object with a field whose value is of another kind than declared, or out of range.

    Checks the annotations ``bool``, ``int``, ``float``, ``Literal[...]``, and tuples of them or of
    strings, and nested dataclasses field by field. Without a range (:func:`setting`), a ``float``
    may be any finite number, or also an infinite one if its default is. A value that is being
    traced passes, and so does a field with another annotation.

    Args:
        owner: A dataclass.
        where: Its name in messages, before the name of a field; that of its class by default.

    Raises:
        InputError: The message is one line and names the first such field, what it must be and what
            was given.
    """
    where = type(owner).__name__ if where is None else where
    for field, kind in _kinds(type(owner)).items():
        value, name = getattr(owner, field), f"{where}.{field}" if where else field
        if dataclasses.is_dataclass(value):
            require_settings(value, name)
        elif not _is_traced(value):
            default = getattr(type(owner), field, ())
            _require(name, value, kind, range_of(type(owner), field), default)


@functools.cache
def _kinds(kind: type) -> dict[str, Any]:
    """The type of every field; of the default, if an annotation names what only checkers import."""
    fields = dataclasses.fields(kind)
    try:
        hints = typing.get_type_hints(kind)
    except NameError:
        hints = {field.name: type(field.default) for field in fields}
    return {field.name: hints[field.name] for field in fields}


def _require(name: str, value: Any, kind: Any, range_: Range | None, default: Any) -> None:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    expected, fits = "", True
    if kind in (int, float) and range_ is not None:
        range_.require(name, value, integer=kind is int)
    elif kind in (int, float):
        expected, fits = _finite(_NOUNS[kind][0], value), _fits(value, kind, None, default)
    elif kind is bool:
        expected, fits = "true or false", _is_flag(value)
    elif origin is Literal:
        expected, fits = f"one of {', '.join(map(str, arguments))}", value in arguments
    elif origin is tuple and arguments[0] in _NOUNS:
        each = _NOUNS[arguments[0]][1]
        each = range_.named(each) if range_ else _finite(each, value)
        expected = f"one or more {each}, such as {default}" if default else f"a list of {each}"
        # Numbers with a range, such as the widths of layers, must exist if they do by default.
        fits = isinstance(value, tuple | list) and (bool(value) or not (range_ and default))
        fits = fits and all(_fits(one, arguments[0], range_, default) for one in value)
    if not fits:
        raise InputError(f"{name} must be {expected}, got {value!r}")


def _fits(value: Any, kind: Any, range_: Range | None, default: Any) -> bool:
    if kind is str or _is_traced(value):
        return kind is not str or isinstance(value, str)
    if not _is_numeric(value, kind is int):
        return False
    if range_ is None and _holds_infinity(default):
        return _all((known := _on_host(value)) == known)  # NaN is unequal to itself
    return (range_ or Range()).admits(value)


def _holds_infinity(value: Any) -> bool:
    numbers = value if isinstance(value, tuple | list) else [value]
    return any(isinstance(number, float) and math.isinf(number) for number in numbers)


def _finite(noun: str, value: Any) -> str:
    """What was expected, with the word *finite* if the value is a number that is not."""
    numbers = value if isinstance(value, tuple | list) else [value]
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        return noun.replace("number", "finite number")
    return noun


def _is_traced(value: Any) -> bool:
    if not hasattr(value, "dtype"):
        return False
    from jax.core import Tracer  # Only here: importing JAX takes seconds.

    return isinstance(value, Tracer)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _is_numeric(value: Any, integer: bool) -> bool:
    """Whether a value is a number or an array of numbers; a boolean is neither."""
    if isinstance(value, int | float):
        return not isinstance(value, bool) and not (integer and isinstance(value, float))
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return bool(kind) and kind in ("iu" if integer else "iufV")  # "V" is bfloat16


def _on_host(numbers: Any) -> Any:
    """A number, or a known array as one of NumPy, which compares at once inside a trace too."""
    return numbers if isinstance(numbers, int | float) else numbers.__array__()


def _all(condition: Any) -> bool:
    return condition if isinstance(condition, bool) else bool(condition.all())
