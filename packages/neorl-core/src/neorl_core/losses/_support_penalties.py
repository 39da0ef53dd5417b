"""COMBO's penalty on distance from the log."""

from jaxtyping import Array, Bool, Float

from neorl_core.losses._masked_mean import masked_mean


def combo_regulariser(
    q_data: Float[Array, " batch"],
    q_rollout: Float[Array, " rollout"],
    mask: Bool[Array, " batch"] | None = None,
    rollout_mask: Bool[Array, " rollout"] | None = None,
) -> Float[Array, ""]:
    """Difference between a critic's values of steps of a learned model and of logged steps.

    ``mean(q_rollout) - mean(q_data)``, to be multiplied by a weight and added to the critic's loss:
    it lowers values in the states that the model visits and raises them in the log.

    Args:
        q_data: One critic's values of logged states and actions.
        q_rollout: The critic's values of states and actions of rollouts in the model. If actions
            are sampled as in CQL, the soft maximum over them.
        mask: Rows of the log to include; all if ``None``.
        rollout_mask: Rows of the rollouts to include; all if ``None``.

    Returns:
        Scalar.

    Raises:
        ValueError: If a mask consists of floats or does not have the shape of its values.

    Example:
        >>> import jax.numpy as jnp
        >>> float(combo_regulariser(jnp.array([1.0]), jnp.array([4.0, 6.0])))
        4.0

    Source: Yu et al., COMBO: conservative offline model-based policy optimization,
    arXiv 2102.08363.
    """
    return masked_mean(q_rollout, rollout_mask) - masked_mean(q_data, mask)
