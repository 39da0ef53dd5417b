"""The policy objective of TD3+BC."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import checked_mask, checked_positive, floats, require_same_shape
from neorl_core.losses._masked_mean import masked_mean


def td3_bc_policy_loss(
    q: Float[Array, " batch"],
    action: Float[Array, "batch act"],
    logged_action: Float[Array, "batch act"],
    mask: Bool[Array, " batch"] | None = None,
    *,
    alpha: float | Float[Array, ""],
) -> Float[Array, ""]:
    """Minus the value, scaled to its mean size, plus the squared distance to the logged action.

    ``-lam mean(q) + mean((action - logged_action)^2)`` with ``lam = alpha / mean(|q|)``. Both means
    are over the batch, the second also over the action channels. ``lam`` carries no gradient, so
    the loss is invariant to ``q -> c q`` for ``c > 0``; ``alpha = 0`` gives behaviour cloning.

    Args:
        q: Value of ``action`` according to one critic.
        action: Action of the policy, in [-1, 1].
        logged_action: Logged action, in [-1, 1].
        mask: Rows to include; all if ``None``. The others may hold NaN, which reaches neither the
            loss nor its gradient.
        alpha: Weight of the value, not negative; NaN results under ``jit`` if it is negative.

    Returns:
        Scalar. If every ``q`` is zero, the first term and its gradient are zero.

    Raises:
        ValueError: If the shapes disagree, ``mask`` consists of floats, or a concrete ``alpha`` is
            negative.

    Source: Fujimoto and Gu, A minimalist approach to offline reinforcement learning,
    arXiv 2106.06860, equation 5.
    """
    require_same_shape("action", action, "logged_action", logged_action)
    if np.ndim(action) != 2 or np.shape(action)[:1] != np.shape(q):
        raise ValueError(
            "q must be one value for each row of action, got shapes "
            f"{np.shape(q)} and {np.shape(action)}; give the values of one critic as (batch,)"
        )
    alpha = checked_positive("alpha", alpha, or_zero=True)
    q, action, logged_action = floats(q), floats(action), floats(logged_action)
    size = jax.lax.stop_gradient(masked_mean(jnp.abs(q), mask))
    sized = size > jnp.finfo(q.dtype).tiny
    value = jnp.where(sized, masked_mean(q, mask) / jnp.where(sized, size, 1), 0)
    if mask is not None:
        # Before the square: a NaN masked after it would come back as 0 * NaN in the gradient.
        counts = checked_mask("mask", mask)[:, None]
        action, logged_action = jnp.where(counts, action, 0), jnp.where(counts, logged_action, 0)
    distance = jnp.mean(jnp.square(action - logged_action), axis=-1)
    return masked_mean(distance, mask) - (alpha * value).astype(q.dtype)
