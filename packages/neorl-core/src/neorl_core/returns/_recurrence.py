"""The backward linear recurrence behind every return, restarted at the ends of episodes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def backward_recurrence(
    offset: Float[Array, " time"],
    factor: Float[Array, "#time"] | Float[Array, ""],
    ends: Bool[Array, " time"],
) -> Float[Array, " time"]:
    """``y_t = offset_t + factor_t y_{t+1}``, and ``y_t = offset_t`` where ``ends``.

    The sum is not cut by multiplying with zero, so a NaN does not spread to the previous episode.
    """
    factors = jnp.broadcast_to(factor, offset.shape)
    _, result = jax.lax.scan(
        _step_back, jnp.zeros((), offset.dtype), (offset, factors, ends), reverse=True
    )
    return result


def _step_back(following: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    offset, factor, end = row
    here = offset + factor * jnp.where(end, jnp.zeros_like(following), following)
    return here, here


def cut_at_the_last(ends: Bool[Array, " time"]) -> Bool[Array, " time"]:
    """The same flags with the last row marked, since the record ends there."""
    return ends.at[-1].set(True)


def bootstrap(
    value: Float[Array, " time"], terminated: Bool[Array, " time"]
) -> Float[Array, " time"]:
    """The value to bootstrap from: zero after a termination, whatever ``value`` holds there."""
    return jnp.where(terminated, jnp.zeros_like(value), value)
