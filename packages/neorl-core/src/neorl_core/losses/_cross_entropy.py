"""The loss of categorical critics and of classification."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import floats, require_same_shape


def cross_entropy_loss(
    logits: Float[Array, "*batch choice"], targets: Float[Array, "*batch choice"]
) -> Float[Array, "*batch"]:
    """``-sum_i targets_i log softmax(logits)_i``, one number for each distribution.

    Args:
        logits: Unnormalised log-probabilities along the last axis.
        targets: Target probabilities, same shape: from
            :func:`~neorl_core.targets.categorical_td_target`, from
            :func:`~neorl_core.targets.two_hot`, or one-hot. If a target is zero, its logit may be
            minus infinity.

    Returns:
        The loss, without the last axis. Its minimum, the entropy of the targets, is reached where
        both distributions agree.

    Raises:
        ValueError: If the shapes differ or there is no choice.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(cross_entropy_loss(jnp.zeros(4), jnp.array([0.0, 1.0, 0.0, 0.0]))), 4)
        1.3863

    Source: Bellemare, Dabney and Munos, A distributional perspective on reinforcement learning,
    arXiv 1707.06887, algorithm 1.
    """
    require_same_shape("logits", logits, "targets", targets)
    logits, targets = floats(logits), floats(targets)
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(
            f"logits need a last axis with at least one choice, got shape {logits.shape}; "
            "give one logit for each choice"
        )
    log_p = jax.nn.log_softmax(logits, axis=-1)
    # An impossible choice with target zero adds nothing, whereas zero times infinity is NaN.
    silent = (targets == 0) & jnp.isneginf(log_p)
    return -jnp.sum(jnp.where(silent, 0, targets * jnp.where(silent, 0, log_p)), axis=-1)
