"""Sorting, ranks and rank correlation of floats."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, DTypeLike, Float, Int, Num, UInt

from neorl_core._internal.checks import (
    floats,
    require_length,
    require_rank,
    require_same_shape,
)
from neorl_core._internal.precision import narrow, widen

# Sorting floats by their bits, which XLA does several times as fast on CPUs.


@jax.custom_jvp
def sort_floats(values: Float[Array, "*shape item"]) -> Float[Array, "*shape item"]:
    """Sorts along the last axis, with the gradient of ``jnp.sort``; NaNs may end up at either end.

    The bits of a non-negative float, read as an integer, have the order of its value. For a
    negative float all bits except the sign are inverted.
    """
    integers = jnp.dtype(f"int{jnp.finfo(values.dtype).bits}")
    bits = jax.lax.bitcast_convert_type(values, integers)
    return jax.lax.bitcast_convert_type(_turn_bits(jnp.sort(_turn_bits(bits))), values.dtype)


@sort_floats.defjvp
def _sort_floats_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return jax.jvp(jnp.sort, primals, tangents)


def ordered_bits(values: Float[Array, "*shape item"]) -> Int[Array, "*shape item"]:
    """Integers in the same order; both zeros map to one number, and NaNs may lie at either end."""
    integers = jnp.dtype(f"int{jnp.finfo(values.dtype).bits}")
    one_zero = jnp.where(values == 0, jnp.zeros_like(values), values)
    return _turn_bits(jax.lax.bitcast_convert_type(one_zero, integers))


def _turn_bits(bits: Array) -> Array:
    return bits ^ ((bits >> (jnp.iinfo(bits.dtype).bits - 1)) & jnp.iinfo(bits.dtype).max)


def sizes_and_signs(
    values: Float[Array, " item"],
) -> tuple[UInt[Array, " item"], Float[Array, " item"]]:
    """The absolute values in order, as integers that sort like them, and their signs, 1 or -1.

    The sign is packed into the lowest bit, so that one integer holds both.
    """
    integers = jnp.dtype(f"uint{jnp.finfo(values.dtype).bits}")
    bits = jax.lax.bitcast_convert_type(jnp.abs(values), integers)
    both = jnp.sort((bits << 1) | (values > 0).astype(integers))
    return both >> 1, jnp.where((both & 1) == 1, 1, -1).astype(values.dtype)


# Ranks and rank correlation.


def ranks_in_order(ordered: Num[Array, " item"], dtype: DTypeLike) -> Float[Array, " item"]:
    """Ranks, from one upwards, of sorted values; ties share the mean of their ranks."""
    position = jnp.arange(ordered.shape[0], dtype=jnp.int32)
    new = ordered[1:] != ordered[:-1]
    ends = jnp.ones(min(ordered.shape[0], 1), bool)
    first = jax.lax.cummax(jnp.where(jnp.concatenate([ends, new]), position, 0))
    last = jnp.where(jnp.concatenate([new, ends]), position, jnp.iinfo(position.dtype).max)
    last = jax.lax.cummin(last, reverse=True)
    return (first + last).astype(dtype) / 2 + 1


def midranks(values: Float[Array, " item"]) -> Float[Array, " item"]:
    """Ranks from one upwards, smallest first; ties share the mean of their ranks.

    All ranks are NaN if a value is NaN, which has no rank. Each value is looked up among the sorted
    ones, because XLA sorts a single array of integers many times as fast as one that carries
    another.
    """
    if not values.size:
        return values
    bits = ordered_bits(values)
    ordered = jnp.sort(bits)
    ranks = ranks_in_order(ordered, values.dtype)[jnp.searchsorted(ordered, bits)]
    return jnp.where(jnp.any(jnp.isnan(values)), jnp.nan, ranks)


def rank_correlation(
    first: Float[ArrayLike, " item"], second: Float[ArrayLike, " item"]
) -> Float[Array, ""]:
    """Spearman's rank correlation: Pearson's correlation of the midranks.

    Args:
        first: First variable, for example the estimated values of policies; at least two.
        second: Second variable, for example their true values, same order.

    Returns:
        In [-1, 1]; NaN if all values of one side are equal, or one is NaN.

    Raises:
        ValueError: If the shapes differ or there are fewer than two items.

    Example:
        >>> import jax.numpy as jnp
        >>> float(rank_correlation(jnp.array([1.0, 2.0, 3.0]), jnp.array([4.0, 5.0, 60.0])))
        1.0

    Source: Spearman, The proof and measurement of association between two things, American Journal
    of Psychology 15 (1904) 72.
    """
    require_same_shape("first", first, "second", second)
    require_rank("first", first, 1, "item")
    require_length("first", first, 2)
    dtype = jnp.result_type(floats(first))
    x, y = midranks(widen(first)), midranks(widen(second))
    middle = (x.shape[0] + 1) / 2
    x, y = x - middle, y.astype(x.dtype) - middle
    spread = jnp.sum(x**2) * jnp.sum(y**2)
    ratio = jnp.sum(x * y) / jnp.sqrt(jnp.where(spread > 0, spread, 1))
    return narrow(jnp.where(spread > 0, jnp.clip(ratio, -1, 1), jnp.nan), dtype)
