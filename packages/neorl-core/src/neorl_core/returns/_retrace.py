"""Retrace(lambda): action values of one policy from the steps of another."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import booleans, checked_probability, floats, like, require_series
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.returns._ratios import require_ratios
from neorl_core.returns._recurrence import (
    backward_recurrence,
    bootstrap,
    cut_at_the_last,
    following_row,
)


def retrace_returns(
    reward: Float[Array, " time"],
    q: Float[Array, " time"],
    next_value: Float[Array, " time"],
    ratio: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
    lam: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """The Retrace(lambda) target for the value of every logged action of one episode.

    ``G_t = Q_t + D_t`` with ``D_t = d_t + discount c_{t+1} D_{t+1}``,
    ``c_t = lam min(1, ratio_t)`` and the temporal difference
    ``d_t = r_t + discount (1 - terminated_t) next_value_t - Q_t``. With all ratios one it is
    Q(lambda) with off-policy corrections; Peng's Q(lambda) is :func:`td_lambda_returns` of the
    largest next values.

    Args:
        reward: Rewards of one episode.
        q: ``Q``, the value of each logged action at its ``obs``.
        next_value: Expected value over the evaluated policy's actions at each step's own
            ``next_obs``; ignored where terminated.
        ratio: Probability of each logged action under the evaluated policy divided by that under
            the policy that acted (not the logarithm), not negative; NaN results under ``jit`` if it
            is negative. The first one is not used.
        terminated: Flags of the rows where the plant ended the episode.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        lam: The lambda of the trace, in [0, 1]: 0 gives one-step targets. NaN results under ``jit``
            if it is outside.

    Returns:
        The targets, one per step. Gradients are not stopped.

    Raises:
        ValueError: If the time axis is empty, shapes differ, a concrete ``discount`` or ``lam`` is
            outside [0, 1], or a concrete ``ratio`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> q, ended = jnp.array([1.0, 2.0]), jnp.array([False, True])
        >>> retrace_returns(
        ...     jnp.ones(2), q, jnp.array([2.0, 0.0]), jnp.array([4.0, 0.5]), ended,
        ...     discount=0.5, lam=1.0,
        ... ).tolist()
        [1.75, 1.0]

    Source: Munos et al., Safe and efficient off-policy reinforcement learning, arXiv 1606.02647,
    equation 3 and section 3.
    """
    return segment_retrace_returns(
        reward,
        q,
        next_value,
        ratio,
        terminated,
        jnp.zeros_like(booleans(terminated)),
        discount=discount,
        lam=lam,
    )


def segment_retrace_returns(
    reward: Float[Array, " time"],
    q: Float[Array, " time"],
    next_value: Float[Array, " time"],
    ratio: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
    lam: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """:func:`retrace_returns` of every episode of a flat log.

    Args:
        reward: Rewards of a log of consecutive episodes.
        q: Value of each logged action.
        next_value: Expected value over the actions at each row's own ``next_obs``; ignored where
            terminated.
        ratio: Ratio of the probabilities of each logged action, not negative; the first of an
            episode is not used.
        terminated: Flags of the rows where the plant ended the episode.
        truncated: Flags of the rows where the record ended; the temporal difference bootstraps
            there and the trace stops.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        lam: The lambda of the trace, in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The targets, one per row.

    Raises:
        ValueError: See :func:`retrace_returns`.

    Example:
        >>> import jax.numpy as jnp
        >>> tripped, stopped = jnp.array([False, True, False]), jnp.array([False, False, True])
        >>> then = jnp.array([0.0, 0.0, 8.0])
        >>> rewards, ratios, q = jnp.ones(3), jnp.ones(3), jnp.zeros(3)
        >>> segment_retrace_returns(
        ...     rewards, q, then, ratios, tripped, stopped, discount=0.5, lam=1.0
        ... ).tolist()
        [1.5, 1.0, 5.0]
    """
    require_series(
        reward=reward,
        q=q,
        next_value=next_value,
        ratio=ratio,
        terminated=terminated,
        truncated=truncated,
    )
    discount = checked_probability("discount", discount, closed=True)
    lam = checked_probability("lam", lam, closed=True)
    weights = require_ratios(ratio)
    dtype = jnp.result_type(*map(floats, (reward, q, next_value, ratio)))
    reward, q, next_value = map(widened, (reward, q, next_value))
    terminated = booleans(terminated)
    ends = cut_at_the_last(terminated | booleans(truncated))
    factor = like(discount, reward)
    trace = factor * like(lam, reward) * jnp.minimum(following_row(weights, ends), 1)
    # Compute the target itself; a small difference from Q would be lost in rounding.
    offset = reward + factor * bootstrap(next_value, terminated) - trace * following_row(q, ends)
    return narrowed(backward_recurrence(offset, trace, ends), dtype)
