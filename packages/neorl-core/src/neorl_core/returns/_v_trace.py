"""V-trace: values and advantages of one policy from the steps of another."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_positive,
    checked_probability,
    floats,
    like,
    require_series,
)
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.returns._ratios import require_ratios
from neorl_core.returns._recurrence import (
    backward_recurrence,
    bootstrap,
    cut_at_the_last,
    following_row,
)


class VTrace(NamedTuple):
    """Results of V-trace for every step.

    Attributes:
        returns: Targets for the value.
        advantages: Advantages for a policy gradient, including the ratio.
    """

    returns: Float[Array, " time"]
    advantages: Float[Array, " time"]


def v_trace(
    reward: Float[Array, " time"],
    value: Float[Array, " time"],
    next_value: Float[Array, " time"],
    ratio: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
    lam: float | Float[Array, ""] = 1.0,
    max_rho: float | Float[Array, ""] = 1.0,
    max_c: float | Float[Array, ""] = 1.0,
) -> VTrace:
    """The V-trace targets and advantages of every step of one episode.

    ``v_t = V_t + D_t`` with ``D_t = rho_t d_t + discount c_t D_{t+1}``,
    ``rho_t = min(max_rho, ratio_t)``, ``c_t = lam min(max_c, ratio_t)`` and the temporal
    difference ``d_t = r_t + discount (1 - terminated_t) next_value_t - V_t``. The advantage is
    ``rho_t (d_t + discount lam D_{t+1})``.

    Args:
        reward: Rewards of one episode.
        value: ``V``, the value of each ``obs``.
        next_value: Value of each step's own ``next_obs``; ignored where terminated.
        ratio: Probability of each action under the policy being trained divided by that under the
            policy that acted (not the logarithm), not negative; NaN results under ``jit`` if it is
            negative.
        terminated: Flags of the rows where the plant ended the episode.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        lam: The lambda of the trace, in [0, 1]; NaN results under ``jit`` if it is outside.
        max_rho: Largest weight of a temporal difference, positive; it determines the policy whose
            value is estimated. NaN results under ``jit`` if it is not positive.
        max_c: Largest factor of the trace, positive; it affects only the speed of convergence. NaN
            results under ``jit`` if it is not positive.

    Returns:
        Targets and advantages, one per step. Gradients are not stopped.

    Raises:
        ValueError: If the time axis is empty, shapes differ, a concrete ``discount`` or ``lam`` is
            outside [0, 1], a concrete ``max_rho`` or ``max_c`` is not positive, or a concrete
            ``ratio`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> value, ended = jnp.array([1.0, 2.0]), jnp.array([False, True])
        >>> result = v_trace(
        ...     jnp.ones(2), value, jnp.array([2.0, 0.0]), jnp.array([4.0, 0.5]), ended,
        ...     discount=0.5,
        ... )
        >>> result.returns.tolist()
        [1.75, 1.5]

    Source: Espeholt et al., IMPALA: scalable distributed deep-RL with importance weighted
    actor-learner architectures, arXiv 1802.01561, equation 1 and remark 1.
    """
    return segment_v_trace(
        reward,
        value,
        next_value,
        ratio,
        terminated,
        jnp.zeros_like(booleans(terminated)),
        discount=discount,
        lam=lam,
        max_rho=max_rho,
        max_c=max_c,
    )


def segment_v_trace(
    reward: Float[Array, " time"],
    value: Float[Array, " time"],
    next_value: Float[Array, " time"],
    ratio: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
    lam: float | Float[Array, ""] = 1.0,
    max_rho: float | Float[Array, ""] = 1.0,
    max_c: float | Float[Array, ""] = 1.0,
) -> VTrace:
    """:func:`v_trace` of every episode of a flat log.

    Args:
        reward: Rewards of a log of consecutive episodes.
        value: Value of each ``obs``.
        next_value: Value of each row's own ``next_obs``; ignored where terminated.
        ratio: Ratio of the probabilities of each action, not negative.
        terminated: Flags of the rows where the plant ended the episode.
        truncated: Flags of the rows where the record ended; the temporal difference bootstraps
            there and the trace stops.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        lam: The lambda of the trace, in [0, 1]; NaN results under ``jit`` if it is outside.
        max_rho: Largest weight of a temporal difference, positive.
        max_c: Largest factor of the trace, positive.

    Returns:
        Targets and advantages, one per row.

    Raises:
        ValueError: See :func:`v_trace`.

    Example:
        >>> import jax.numpy as jnp
        >>> tripped, stopped = jnp.array([False, True, False]), jnp.array([False, False, True])
        >>> then = jnp.array([0.0, 0.0, 8.0])
        >>> segment_v_trace(
        ...     jnp.ones(3), jnp.zeros(3), then, jnp.ones(3), tripped, stopped, discount=0.5
        ... ).returns.tolist()
        [1.5, 1.0, 5.0]
    """
    require_series(
        reward=reward,
        value=value,
        next_value=next_value,
        ratio=ratio,
        terminated=terminated,
        truncated=truncated,
    )
    discount = checked_probability("discount", discount, closed=True)
    lam = checked_probability("lam", lam, closed=True)
    max_rho = checked_positive("max_rho", max_rho)
    max_c = checked_positive("max_c", max_c)
    weights = require_ratios(ratio)
    dtype = jnp.result_type(*map(floats, (reward, value, next_value, ratio)))
    reward, value, next_value = map(widened, (reward, value, next_value))
    terminated = booleans(terminated)
    ends = cut_at_the_last(terminated | booleans(truncated))
    factor, trace = like(discount, reward), like(lam, reward)
    difference = reward + factor * bootstrap(next_value, terminated) - value
    rho = jnp.minimum(weights, like(max_rho, weights))
    c = trace * jnp.minimum(weights, like(max_c, weights))
    correction = backward_recurrence(rho * difference, factor * c, ends)
    later = following_row(correction, ends)
    advantage = rho * (difference + factor * trace * later)
    return narrowed(VTrace(value + correction, advantage), dtype)
