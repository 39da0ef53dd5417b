"""Bumpless transfer between any two controllers, by an offset that decays."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

NEGLIGIBLE = 1e-3
"""Fraction of the actuator range below which an offset is dropped."""


def decayed_offset(
    proposal: Float[Array, " act"],
    last: Float[Array, " act"],
    offset: Float[Array, " act"],
    acted: Bool[Array, ""],
    *,
    span: Float[Array, " act"],
    dt: Float[Array, ""],
    settle: Float[Array, ""],
) -> Float[Array, " act"]:
    """The offset that is added to a controller's proposal in this step.

    ``b = (last - proposal) exp(-dt / settle)`` in the step in which the controller takes over, ``b
    = b exp(-dt / settle)`` in every later one. So the action continues from the current position
    and approaches the controller's own law with the time constant ``settle``, whether the
    controller has integral action or not (manual reset that decays).

    Args:
        proposal: Action that the controller proposes, within its limits; may hold NaN.
        last: Last action of the plant; NaN if unknown, and then there is no offset.
        offset: Offset in the last step.
        acted: Whether the controller acted in the last step.
        span: Range of every actuator.
        dt: Period in seconds.
        settle: Time constant in seconds; zero for no offset.

    Returns:
        The offset, always finite; zero where it would be negligible.
    """
    # `settle` of zero gives exp(-inf) = 0, and 0 / 0 with a bad period NaN, taken as zero below.
    decay = jnp.exp(-dt / settle)
    fresh = jnp.where(acted, offset, last - proposal)
    remaining = fresh * jnp.where(jnp.isfinite(decay), decay, 0)
    significant = jnp.isfinite(remaining) & (jnp.abs(remaining) > NEGLIGIBLE * span)
    return jnp.where(significant, remaining, 0)
