"""Sorting floats by their bits, which XLA does several times as fast on CPUs."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt


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
