"""Bounds of the distributions on a box."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from neorl_core._internal.checks import is_concrete, like, require_broadcast


def box(low: ArrayLike, high: ArrayLike, data: Array) -> tuple[Array, Array]:
    """Both ends in the shape of the data; NaN if traced ends are not in order."""
    for name, end in (("low", low), ("high", high)):
        require_broadcast(name, end, "the parameters", data.shape)
    if is_concrete((low, high)) and not np.all(np.asarray(low) < np.asarray(high)):
        raise ValueError(f"low must be below high, got {low} and {high}; swap or widen them")
    below, above = (jnp.broadcast_to(like(end, data), data.shape) for end in (low, high))
    if is_concrete((low, high)):
        return below, above
    return below, jnp.where(below < above, above, jnp.nan)


def in_box(x: Array, low: Array, high: Array) -> Array:
    """Whether each coordinate of a point is in the box, up to rounding."""
    slack = 4 * jnp.finfo(x.dtype).eps * jnp.maximum(jnp.abs(low), jnp.abs(high))
    return (x >= low - slack) & (x <= high + slack)
