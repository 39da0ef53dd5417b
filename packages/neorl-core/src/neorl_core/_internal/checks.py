"""Checks of arguments, made before anything is traced, and conversions of their dtypes.

Functions named ``require_*`` raise an error and return nothing. Functions named ``checked_*`` raise
an error too, and return the value to compute with from there on: NaN in place of a traced number
that is out of range, an ``int`` for an integer, an array for a list. A value is *concrete* if its
numbers can be read now, and *traced* if they cannot.
"""

import operator
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike


def is_concrete(value: Any) -> bool:
    """Whether the numbers of ``value`` can be read now, that is, whether it is not being traced."""
    if isinstance(value, (int, float, np.ndarray, jax.Array)):  # No walk for the usual argument.
        return not isinstance(value, Tracer)
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


def floats(value: ArrayLike) -> Array:
    """``value`` as a floating array of strong dtype; integers and booleans take the default one."""
    if isinstance(value, Mapping):
        names = ", ".join(repr(name) for name in value)
        raise TypeError(f"expected an array, got a mapping of {names}; give one of its arrays")
    array = value if isinstance(value, jax.Array) else jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(array.dtype) if jax.typeof(array).weak_type else array
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise TypeError("expected numbers, got a random key; give the key after all data")
    return array.astype(jnp.result_type(float))


def booleans(flags: ArrayLike) -> Array:
    """Converts flags to booleans; a log may hold 0 and 1, other concrete numbers are an error."""
    array = jnp.asarray(flags)
    if array.dtype != jnp.bool_ and is_concrete(array):
        known = np.asarray(array)
        other = (known != 0) & (known != 1)
        if other.any():
            row = tuple(int(i) for i in np.argwhere(other)[0])
            where = f" at index {row[0] if len(row) == 1 else row}" if row else ""
            raise ValueError(
                f"flags such as terminated must be 0 or 1, got {known[row]:g}{where}; compare the "
                "values that they come from with a threshold"
            )
    return array.astype(jnp.bool_)


def like(value: ArrayLike, data: Array) -> Array:
    """A hyperparameter in the dtype of the data."""
    return jnp.asarray(value, data.dtype)


def checked_probability(name: str, value: Any, *, closed: bool = False, many: bool = False) -> Any:
    """Raises an error for concrete values outside (0, 1), or outside [0, 1] if ``closed``.

    Also raises an error for an array, unless ``many`` values are allowed.

    Returns:
        The value. A traced value cannot raise an error: it becomes NaN where it is out of range.
    """
    if not many:
        require_scalar(name, value)
    numbers = _readable(name, value)
    inside = (numbers >= 0) & (numbers <= 1) if closed else (numbers > 0) & (numbers < 1)
    if not is_concrete(value):
        return nan_unless(inside, numbers)
    if not np.all(inside):
        ends = "[0, 1]" if closed else "(0, 1)"
        raise ValueError(
            f"{name} must be in {ends}, got {value}; give a fraction, not a percentage"
        )
    return value


def checked_positive(name: str, value: Any, *, or_zero: bool = False, many: bool = False) -> Any:
    """Raises an error for concrete values not finite and positive (or zero, if ``or_zero``).

    Also raises an error for an array, unless ``many`` values are allowed.

    Returns:
        The value. A traced value cannot raise an error: it becomes NaN where it is out of range.
    """
    if not many:
        require_scalar(name, value)
    numbers = _readable(name, value)
    valid = ((numbers >= 0) if or_zero else (numbers > 0)) & (numbers < np.inf)
    if not is_concrete(value):
        return nan_unless(valid, numbers)
    if not np.all(valid):
        kind = "not negative" if or_zero else "positive"
        raise ValueError(f"{name} must be finite and {kind}, got {value}; check sign and unit")
    return value


def _readable(name: str, value: Any) -> Any:
    """A plain number as it is, a concrete value as a NumPy array, a traced one as a JAX array."""
    if isinstance(value, (int, float)):
        return value
    if not is_concrete(value):
        return jnp.asarray(value)
    array = np.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.number) and array.dtype != np.bool_:
        raise ValueError(f"{name} must be a number, got {value!r}; {_as_number(value)}")
    return array


def _as_number(value: Any) -> str:
    """Advice on how to write a value that is not a number."""
    return "write it without quotes" if isinstance(value, str) else "give a float"


def nan_unless(valid: ArrayLike, numbers: ArrayLike) -> Array:
    """The numbers, with NaN where ``valid`` is false; integers become floats to hold NaN."""
    numbers = jnp.asarray(numbers)
    real = jnp.issubdtype(numbers.dtype, jnp.floating)
    return jnp.where(valid, numbers if real else floats(numbers), jnp.nan)


def require_scalar(name: str, value: ArrayLike) -> None:
    """Raises an error for an array in place of one number, even one of shape ``(1,)``."""
    if np.ndim(value) != 0:
        raise ValueError(
            f"{name} must be one number, got shape {np.shape(value)}; "
            "index it, or use jax.vmap for several"
        )


def require_each(name: str, value: Any, count: int, counted: str) -> None:
    """Raises an error unless the shape is ``(count,)``: one number for each of the ``counted``."""
    if np.shape(value) != (count,):
        raise ValueError(
            f"{name} must have one number for each of the {count} {counted}, "
            f"got shape {np.shape(value)}; give it the shape ({count},)"
        )


def require_broadcast(name: str, value: ArrayLike, other: str, shape: tuple[int, ...]) -> None:
    """Raises an error unless the value broadcasts to exactly ``shape``, the shape of ``other``."""
    try:
        fits = np.broadcast_shapes(np.shape(value), shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must broadcast against the shape {shape} of {other}, "
            f"got shape {np.shape(value)}; give one number, or one for each element"
        )


def require_order(low: ArrayLike, high: ArrayLike) -> None:
    """Raises an error if concrete ends cross or one of them is NaN."""
    if is_concrete((low, high)) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(
            f"low must not be above high, got {low} and {high}; swap the ends that cross"
        )


def require_same_shape(first: str, a: ArrayLike, second: str, b: ArrayLike) -> None:
    """Raises an error if two arrays differ in shape."""
    if np.shape(a) != np.shape(b):
        raise ValueError(
            f"{first} and {second} must have one shape, got {np.shape(a)} and {np.shape(b)}; "
            "index or reshape one of them, nothing is broadcast here"
        )


def checked_mask(name: str, mask: ArrayLike) -> Array:
    """Converts a mask to booleans; floats are an error, since they may be meant as weights."""
    flags = jnp.asarray(mask)
    if jnp.issubdtype(flags.dtype, jnp.floating):
        raise ValueError(
            f"{name} must be boolean, got {flags.dtype}; "
            f"compare it with a threshold, {name} > 0, or multiply by it if it is a weight"
        )
    return flags.astype(jnp.bool_)


def require_rank(name: str, value: ArrayLike, rank: int, axes: str) -> None:
    """Raises an error unless the array has ``rank`` axes, which the message calls ``axes``."""
    if np.ndim(value) != rank:
        way_out = (
            "add the missing axes, for example with jnp.expand_dims"
            if np.ndim(value) < rank
            else "for a batch of them use jax.vmap"
        )
        raise ValueError(
            f"{name} must have the axes ({axes}), got shape {np.shape(value)}; {way_out}"
        )


def require_members(name: str, values: ArrayLike, other: str, of_one: ArrayLike) -> None:
    """Raises an error unless ``values`` stacks one or more members with the shape of ``of_one``."""
    shape, each = np.shape(values), np.shape(of_one)
    if shape[1:] != each or shape[:1] in ((), (0,)):
        raise ValueError(
            f"{name} needs a first axis of at least one ensemble member before the axes of "
            f"{other}, got shape {shape} for {other} of {each}; "
            f"for one critic add the axis with {name}[None]"
        )


def require_length(name: str, value: ArrayLike, minimum: int) -> None:
    """Raises an error if the first axis of an array is missing or shorter than ``minimum``."""
    if np.ndim(value) < 1 or np.shape(value)[0] < minimum:
        raise ValueError(
            f"{name} needs a first axis of length {minimum} or more, got shape {np.shape(value)}; "
            "check how it was sliced"
        )


def require_series(**series: ArrayLike) -> None:
    """Raises an error unless all arrays have the same shape ``(time,)`` and at least one step."""
    names = list(series)
    for name in names:
        require_rank(name, series[name], 1, "time")
        require_same_shape(names[0], series[names[0]], name, series[name])
    require_length(names[0], series[names[0]], 1)


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises an error for a word that is not among ``choices``."""
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(choices)}, got {value!r}; spell it as listed"
        )


def checked_integer(name: str, value: Any, minimum: int | None = None, advice: str = "") -> int:
    """Converts an integer of Python or NumPy, or an array without axes, to an int.

    Raises an error for a float, which would be truncated, for a boolean, and for a traced value. If
    ``minimum`` is given, it also raises one for a smaller integer, with ``advice`` on what to do.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(
            f"{name} must be an integer that is known before tracing, got {value!r}; give an int"
        )
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} must be {minimum} or more, got {number}; {advice}")
    return number


def require_key(key: Any) -> None:
    """Raises an error unless ``key`` is a JAX random key; a seed or a NumPy generator is not."""
    is_array = isinstance(key, jax.Array | np.ndarray)
    if not is_array or (key.ndim == 0 and not jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(
            f"key must be a JAX random key, got {key!r}; make one from a seed: jax.random.key(0)"
        )


def require_integers(name: str, value: ArrayLike) -> None:
    """Raises an error for numbers whose dtype is not an integer one; an empty list passes."""
    if isinstance(value, int):
        return
    dtype = jnp.asarray(value).dtype
    if not jnp.issubdtype(dtype, jnp.integer) and np.size(value) > 0:
        raise ValueError(f"{name} must be integers, got {dtype}; cast it with astype(jnp.int32)")
