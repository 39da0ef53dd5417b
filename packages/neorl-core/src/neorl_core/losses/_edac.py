"""The diversity term of EDAC."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import floats, require_rank

TINY = 1e-10


def edac_diversity(gradients: Float[Array, "ens act"]) -> Float[Array, ""]:
    """How parallel the critics' gradients with respect to the action are, at one state and action.

    ``sum_{i != j} cos(g_i, g_j) / (ens - 1)``: ``ens`` for identical critics, zero for orthogonal
    ones, smallest if they point apart. Added to the loss with a weight, it makes the ensemble
    disagree outside the data.

    Args:
        gradients: ``g_i``, the gradient of critic ``i`` with respect to the action.

    Returns:
        Scalar. A gradient with no component above 1e-10 counts as zero, orthogonal to all others.

    Raises:
        ValueError: If there are fewer than two critics or ``gradients`` is not two-dimensional.

    Example:
        >>> import jax.numpy as jnp
        >>> float(edac_diversity(jnp.array([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0]])))
        3.0

    Source: An et al., Uncertainty-based offline reinforcement learning with diversified
    Q-ensemble, arXiv 2110.01548, equation 5.
    """
    require_rank("gradients", gradients, 2, "ens, act")
    gradients = floats(gradients)
    members = gradients.shape[0]
    if members < 2:
        raise ValueError(
            f"diversity needs two critics or more, got {members}; for one critic leave the term out"
        )
    largest = jnp.max(jnp.abs(gradients), axis=-1, keepdims=True, initial=0)
    moves = largest > TINY
    # Scaled before squaring, with scale one for a zero gradient: no overflow, no root of zero.
    scaled = jnp.where(moves, gradients, 0) / jnp.where(moves, largest, 1)
    squares = jnp.sum(jnp.square(scaled), axis=-1, keepdims=True)
    directions = scaled / jnp.sqrt(jnp.where(moves, squares, 1))
    total = jnp.sum(directions, axis=0)
    parallel = jnp.sum(jnp.square(total)) - jnp.sum(jnp.square(directions))
    return parallel / (members - 1)
