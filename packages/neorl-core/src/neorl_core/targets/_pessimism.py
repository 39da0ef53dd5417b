"""Disagreement of an ensemble, and values and rewards penalised by it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_positive, floats, like
from neorl_core._internal.float_widths import narrowed, widened


def ensemble_lower_bound(
    values: Float[Array, "ens *batch"], *, coefficient: float | Float[Array, ""]
) -> Float[Array, "*batch"]:
    """A lower confidence bound of a value: ``mean_i - coefficient std_i`` over the members.

    The standard deviation is that of the population, ``sqrt(mean (v - mean v)^2)``.

    Args:
        values: One estimate per member along the first axis.
        coefficient: Number of standard deviations below the mean, not negative; 0 gives the mean, 1
            the smaller of two members. NaN results under ``jit`` if it is negative.

    Returns:
        The bound, without the first axis. If all members agree, its gradient is that of the mean.

    Raises:
        ValueError: If there is no member or a concrete ``coefficient`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> float(ensemble_lower_bound(jnp.array([1.0, 5.0]), coefficient=1.0))
        1.0

    Source: Ghasemipour, Gu and Nachum, Why so pessimistic? Estimating uncertainties for offline
    RL through ensembles, arXiv 2205.13703.
    """
    values = _members("values", values, 1)
    coefficient = checked_positive("coefficient", coefficient, or_zero=True)
    dtype, wide = values.dtype, widened(values)
    mean = jnp.mean(wide, axis=0)
    deviation = wide - mean[None]
    # Scaling keeps the squares in range and the root away from zero.
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(deviation), axis=0))
    unit = jnp.where(largest > 0, largest, 1)
    share = jnp.where(largest > 0, jnp.mean(jnp.square(deviation / unit[None]), axis=0), 1)
    std = jnp.where(largest > 0, unit * jnp.sqrt(share), 0)
    return narrowed(mean - like(coefficient, wide) * std, dtype)


def mopo_penalty(std: Float[Array, "ens *batch channel"]) -> Float[Array, "*batch"]:
    """The uncertainty that MOPO subtracts from the reward: ``max_i ||std_i||``, the Euclidean norm.

    The reward for a step of a learned model is ``reward - weight mopo_penalty(std)``.

    Args:
        std: Standard deviations that each member predicts for the next observation and, if it is
            predicted too, for the reward; all channels in the same (standardised) unit.

    Returns:
        The penalty, not negative, without the first and the last axis.

    Raises:
        ValueError: If there is no member or no axis of channels.

    Example:
        >>> import jax.numpy as jnp
        >>> float(mopo_penalty(jnp.array([[3.0, 4.0], [1.0, 1.0]])))
        5.0

    Source: Yu et al., MOPO: model-based offline policy optimization, arXiv 2005.13239.
    """
    return jnp.max(_norm(_members("std", std, 2)), axis=0)


def ensemble_discrepancy(means: Float[Array, "ens *batch channel"]) -> Float[Array, "*batch"]:
    """The largest distance between two members' predictions: ``max_ij ||mean_i - mean_j||``.

    MOReL stops a rollout with a penalty if this exceeds a threshold; other methods subtract a
    multiple of it from the reward.

    Args:
        means: Next observations that each member predicts, with all channels in the same unit.

    Returns:
        The distance, without the first and the last axis; zero for one member.

    Raises:
        ValueError: If there is no member or no axis of channels.

    Example:
        >>> import jax.numpy as jnp
        >>> float(ensemble_discrepancy(jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])))
        5.0

    Source: Kidambi et al., MOReL: model-based offline reinforcement learning, arXiv 2005.05951.
    """
    means = _members("means", means, 2)
    return jnp.max(_norm(means[:, None] - means[None, :]), axis=(0, 1))


def _members(name: str, values: Array, rank: int) -> Array:
    values = floats(values)
    if values.ndim < rank or values.shape[0] == 0:
        axes = "members and a last one of channels" if rank > 1 else "members"
        raise ValueError(
            f"{name} needs a first axis of one or more {axes}, got shape {values.shape}; "
            f"for one member add the axis with {name}[None]"
        )
    return values


def _norm(vectors: Array) -> Array:
    """The Euclidean norm along the last axis, with gradient zero at zero and no overflow."""
    dtype, wide = vectors.dtype, widened(vectors)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(wide), axis=-1, initial=0))
    moves = largest > 0
    unit = jnp.where(moves, largest, 1)
    squares = jnp.sum(jnp.square(wide / unit[..., None]), axis=-1)
    return narrowed(jnp.where(moves, unit * jnp.sqrt(jnp.where(moves, squares, 1)), 0), dtype)
