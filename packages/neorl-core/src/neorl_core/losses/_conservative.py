"""Terms that make critics cautious about actions and states that the log does not hold."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    checked_positive,
    floats,
    like,
    require_rank,
    require_same_shape,
)
from neorl_core.losses._regression import masked_mean

# The conservative term of CQL, and Cal-QL's clamp.


def cql_regulariser(
    q_data: Float[Array, "*batch"],
    q_samples: Float[Array, "*batch sample"],
    log_prob: Float[Array, "*batch sample"] | None = None,
    *,
    temperature: float | Float[Array, ""] = 1.0,
) -> Float[Array, "*batch"]:
    """How far a soft maximum of sampled actions' values exceeds the logged action's value.

    Not reduced over states. With density correction (if ``log_prob`` is given): ``temperature
    logsumexp_i((q_samples_i - log_prob_i) / temperature) - q_data``. Without it ``q_data`` joins
    the samples: ``temperature logsumexp([q_samples, q_data] / temperature) - q_data``. Neither form
    subtracts the logarithm of the number of samples.

    Args:
        q_data: One critic's value of the logged action.
        q_samples: The critic's values of sampled actions, along a last axis.
        log_prob: Log-density of each sample under the distribution it was sampled from (``-act log
            2`` for uniform actions in [-1, 1]); no gradient passes through it.
        temperature: Positive; NaN results under ``jit`` if it is not.

    Returns:
        The term for every state, to be multiplied by a weight.

    Raises:
        ValueError: If shapes disagree, the corrected form has no sample, or a concrete
            ``temperature`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> constant = cql_regulariser(jnp.array(3.0), jnp.full(4, 3.0), jnp.zeros(4))
        >>> round(float(constant), 4)
        1.3863

    Source: Kumar et al., Conservative Q-learning for offline reinforcement learning,
    arXiv 2006.04779, equation 4; the corrected form is its appendix F.
    """
    q_data, q_samples = floats(q_data), floats(q_samples)
    if q_samples.ndim != q_data.ndim + 1 or q_samples.shape[:-1] != q_data.shape:
        raise ValueError(
            "q_samples must have the shape of q_data and a last axis of samples, got "
            f"{q_samples.shape} for {q_data.shape}; put the samples last"
        )
    temperature = checked_positive("temperature", temperature)
    scale = like(temperature, q_data)
    if log_prob is None:
        scores = jnp.concatenate([q_samples, q_data[..., None]], axis=-1)
    else:
        require_same_shape("q_samples", q_samples, "log_prob", log_prob)
        if q_samples.shape[-1] == 0:
            raise ValueError(
                "the corrected form needs at least one sample, got none; "
                "draw some or leave log_prob out"
            )
        scores = q_samples - jax.lax.stop_gradient(floats(log_prob))
    return scale * jax.nn.logsumexp(scores / scale, axis=-1) - q_data


def cal_ql_clamp(
    q_policy: Float[Array, "*batch sample"], reference_return: Float[Array, "*batch"]
) -> Float[Array, "*batch sample"]:
    """Values of the policy's own samples, raised at least to the return of a reference policy.

    ``max(q_policy_i, reference_return)``. Apply it only to samples of the policy, before
    :func:`cql_regulariser`; values of random actions are not clamped.

    Args:
        q_policy: Values of actions sampled from the policy, along a last axis.
        reference_return: Monte-Carlo return of the logged behaviour from the same state.

    Returns:
        The clamped values; no gradient reaches a clamped one.

    Raises:
        ValueError: If the shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> cal_ql_clamp(jnp.array([1.0, 5.0]), jnp.array(2.0)).tolist()
        [2.0, 5.0]

    Source: Nakamoto et al., Cal-QL: calibrated offline RL pre-training for efficient online
    fine-tuning, arXiv 2303.05479, equation 6.
    """
    q_policy, reference = floats(q_policy), floats(reference_return)
    if q_policy.ndim != reference.ndim + 1 or q_policy.shape[:-1] != reference.shape:
        raise ValueError(
            "q_policy must have the shape of reference_return and a last axis of samples, got "
            f"{q_policy.shape} for {reference.shape}; put the samples last"
        )
    floor = jnp.broadcast_to(reference[..., None], q_policy.shape)
    # Not jnp.maximum, which would halve the gradient at a tie.
    return jnp.where(q_policy > floor, q_policy, floor)


# The diversity term of EDAC.


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


# COMBO's penalty on distance from the log.


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
