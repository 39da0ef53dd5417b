"""Disagreement of an ensemble, by which rewards of model rollouts are penalised."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import floats
from neorl_core._internal.float_widths import narrow, widen


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
    dtype, wide = vectors.dtype, widen(vectors)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(wide), axis=-1, initial=0))
    moves = largest > 0
    unit = jnp.where(moves, largest, 1)
    squares = jnp.sum(jnp.square(wide / unit[..., None]), axis=-1)
    return narrow(jnp.where(moves, unit * jnp.sqrt(jnp.where(moves, squares, 1)), 0), dtype)
