"""Checks of arguments at the boundary, before anything is traced."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike


def known(value: Any) -> bool:
    """Whether the numbers of ``value`` can be read now: it is not being traced."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


def floats(value: ArrayLike) -> Array:
    """``value`` as a floating array of strong dtype; integers and booleans take the default one."""
    array = jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(array.dtype)
    return array.astype(jnp.result_type(float))


def require_probability(name: str, value: Any, *, closed: bool = False) -> Any:
    """Refuses known values outside (0, 1), or outside [0, 1] where ``closed``.

    Returns:
        The value. What is being traced cannot be refused: it becomes NaN where it is outside.
    """
    numbers = np.asarray(value) if known(value) else jnp.asarray(value)
    inside = (numbers >= 0) & (numbers <= 1) if closed else (numbers > 0) & (numbers < 1)
    if not known(value):
        return nan_unless(inside, numbers)
    if not np.all(inside):
        ends = "[0, 1]" if closed else "(0, 1)"
        raise ValueError(f"{name} must be in {ends}, got {value}; give a share, not per cent")
    return value


def require_positive(name: str, value: Any, *, or_zero: bool = False) -> Any:
    """Refuses known values that are not positive (or negative, where ``or_zero``) or not finite.

    Returns:
        The value. What is being traced cannot be refused: it becomes NaN where it is outside.
    """
    numbers = np.asarray(value) if known(value) else jnp.asarray(value)
    fine = ((numbers >= 0) if or_zero else (numbers > 0)) & (numbers < np.inf)
    if not known(value):
        return nan_unless(fine, numbers)
    if not np.all(fine):
        kind = "not negative" if or_zero else "positive"
        raise ValueError(f"{name} must be finite and {kind}, got {value}; check sign and unit")
    return value


def nan_unless(fine: ArrayLike, numbers: ArrayLike) -> Array:
    """The numbers, NaN where ``fine`` is false; integers become floats, which can hold it."""
    numbers = jnp.asarray(numbers)
    real = jnp.issubdtype(numbers.dtype, jnp.floating)
    return jnp.where(fine, numbers if real else floats(numbers), jnp.nan)


def require_same_shape(first: str, a: ArrayLike, second: str, b: ArrayLike) -> None:
    """Refuses two arrays of different shapes."""
    if jnp.shape(a) != jnp.shape(b):
        raise ValueError(
            f"{first} and {second} must have one shape, got {jnp.shape(a)} and {jnp.shape(b)}; "
            "index or reshape one of them, nothing is broadcast here"
        )


def require_rank(name: str, value: ArrayLike, rank: int, axes: str) -> None:
    """Refuses an array that has not ``rank`` axes, which the message calls ``axes``."""
    if jnp.ndim(value) != rank:
        raise ValueError(
            f"{name} must have the axes ({axes}), got shape {jnp.shape(value)}; "
            "for a batch of them use jax.vmap"
        )


def require_length(name: str, value: ArrayLike, least: int) -> None:
    """Refuses an array whose first axis is missing or shorter than ``least``."""
    if jnp.ndim(value) < 1 or jnp.shape(value)[0] < least:
        raise ValueError(
            f"{name} needs a first axis of length {least} or more, got shape {jnp.shape(value)}; "
            "check how it was sliced"
        )


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuses a word that is not among ``choices``."""
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(choices)}, got {value!r}; spell it as listed"
        )


def require_whole(name: str, value: Any) -> int:
    """The whole number; refuses a float, which would be cut, and what is being traced."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(
            f"{name} must be a whole number that is known before tracing, got {value!r}; "
            "give an int"
        ) from None


def require_integers(name: str, value: ArrayLike) -> None:
    """Refuses numbers that are not of an integer dtype; an empty list passes."""
    if isinstance(value, int):
        return
    dtype = jnp.asarray(value).dtype
    if not jnp.issubdtype(dtype, jnp.integer) and np.size(value) > 0:
        raise ValueError(
            f"{name} must be integers, got {dtype}; cast with astype(jnp.int32) what is whole"
        )
