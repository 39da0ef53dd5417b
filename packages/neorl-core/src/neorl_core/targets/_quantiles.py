"""Targets for quantile critics."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import booleans, checked_integer, floats
from neorl_core.targets._td import td_target


def truncated_quantile_target(
    reward: Float[Array, "*batch"],
    next_quantiles: Float[Array, "ens *batch quantile"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
    drop: int,
) -> Float[Array, "*batch kept"]:
    """The samples of the TQC target: the pooled quantiles of all critics, without the largest.

    ``reward + discount (1 - terminated) z_(k)`` with ``z_(1) <= z_(2) <= ...`` the sorted quantiles
    of all members; the largest ``drop`` times ``ens`` are left out. For the soft version, first
    subtract ``temperature log_prob`` from every quantile.

    Args:
        reward: Any shape.
        next_quantiles: Quantiles of the return from the next observation, one critic per entry
            of the first axis.
        terminated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        drop: Number of quantiles left out per member, static; 0 keeps all. Must be below their
            number.

    Returns:
        The samples in increasing order, along a last axis of ``ens (quantile - drop)``, for
        :func:`~neorl_core.losses.quantile_huber_loss`. Gradients are not stopped.

    Raises:
        ValueError: If the shapes disagree, there is no member, ``drop`` is not an integer from zero
            to below the number of quantiles, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> quantiles = jnp.array([[1.0, 5.0], [3.0, 9.0]])
        >>> truncated_quantile_target(
        ...     jnp.array(1.0), quantiles, jnp.array(False), discount=0.5, drop=1
        ... ).tolist()
        [1.5, 2.5]

    Source: Kuznetsov et al., Controlling overestimation bias with truncated mixture of continuous
    distributional quantile critics, arXiv 2005.04269.
    """
    reward, quantiles = floats(reward), floats(next_quantiles)
    drop = checked_integer("drop", drop, 0, "0 keeps every quantile")
    if quantiles.ndim != reward.ndim + 2 or quantiles.shape[1:-1] != reward.shape:
        raise ValueError(
            "next_quantiles needs an axis of members, the axes of reward and one of quantiles, got "
            f"{quantiles.shape} for reward of {reward.shape}; for one critic add the axis with "
            "next_quantiles[None]"
        )
    members, count = quantiles.shape[0], quantiles.shape[-1]
    if members == 0 or drop >= count:
        raise ValueError(
            f"drop must be less than the number of quantiles of each member, got {drop} of {count} "
            f"for {members} members; keep one at least"
        )
    pooled = jnp.moveaxis(quantiles, 0, -2).reshape(*reward.shape, members * count)
    smallest = jnp.sort(pooled, axis=-1)[..., : members * (count - drop)]
    shape = smallest.shape
    return td_target(
        jnp.broadcast_to(reward[..., None], shape),
        smallest,
        jnp.broadcast_to(booleans(terminated)[..., None], shape),
        discount=discount,
    )
