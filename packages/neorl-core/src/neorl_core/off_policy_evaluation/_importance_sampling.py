"""Importance sampling: what a policy would have earned, from the log of another."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    floats,
    like,
    require_probability,
    require_rank,
    require_same_shape,
)


class LoggedTrajectories(NamedTuple):
    """Logged trajectories with the chances of their actions under another policy.

    Functions named ``…_return`` take one trajectory and are batched by ``vmap``; their mean over
    trajectories is the estimate. The weighted estimators take all of them, with the trajectory as
    first axis.

    Attributes:
        log_ratio: ``log pi_e(a_t | s_t) - log pi_b(a_t | s_t)`` of the evaluated policy over the
            logging one, shape ``(..., time)``; ``-inf`` where the evaluated policy never acts so.
        reward: Shape ``(..., time)``.
        mask: False behind the end of a trajectory, where the other fields may hold anything;
            ``None`` where all have the full length. A trajectory that has ended earns nothing and
            keeps its weight.
        q_value: ``Q(s_t, a_t)`` of a model of the evaluated policy; for doubly robust estimates.
        value: ``V(s_t) = E Q(s_t, a)`` over the evaluated policy, of the same model.
    """

    log_ratio: Float[Array, "*trajectory time"]
    reward: Float[Array, "*trajectory time"]
    mask: Bool[Array, "*trajectory time"] | None = None
    q_value: Float[Array, "*trajectory time"] | None = None
    value: Float[Array, "*trajectory time"] | None = None


def tis_return(
    trajectory: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Trajectory-wise importance sampling: ``rho_{T-1} sum_t discount^t r_t``.

    ``rho_t`` is the product of the ratios up to step ``t``. The mean over trajectories is an
    unbiased estimate of the value of the evaluated policy wherever that acts only as the logging
    policy may; its variance grows exponentially with the horizon. Deterministic policies over
    continuous actions have no ratio: use a marginalised or a model-based estimate.

    Args:
        trajectory: One trajectory.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` where it is outside.

    Returns:
        Its weighted return; infinite where the product of the ratios overflows, except that a
        return of zero stays zero under any weight, as does any return under a weight of zero.

    Raises:
        ValueError: If shapes differ, there is not one axis of one step or more, or a concrete
            ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([2.0, 0.5])), jnp.array([1.0, 2.0]))
        >>> round(float(tis_return(log, discount=0.5)), 4)
        2.0

    Source: Precup, Sutton and Singh, Eligibility traces for off-policy policy evaluation, 2000.
    """
    log_ratio, reward = checked(trajectory, 1, discount)
    powers = discounts(discount, reward)
    return weighted(jnp.sum(log_ratio), jnp.sum(powers * reward))


def pdis_return(
    trajectory: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Per-decision importance sampling: ``sum_t discount^t rho_t r_t``.

    Unbiased like :func:`tis_return`; a reward is not weighted by what was decided after it.

    Args:
        trajectory: One trajectory.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` where it is outside.

    Returns:
        Its weighted return; a step whose product of ratios overflows adds an infinity, or nothing
        where its discounted reward is zero.

    Raises:
        ValueError: As :func:`tis_return`.

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([2.0, 0.5])), jnp.array([1.0, 2.0]))
        >>> round(float(pdis_return(log, discount=0.5)), 4)
        3.0

    Source: Precup, Sutton and Singh, 2000.
    """
    log_ratio, reward = checked(trajectory, 1, discount)
    powers = discounts(discount, reward)
    return jnp.sum(weighted(jnp.cumsum(log_ratio), powers * reward))


def wis(
    trajectories: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Weighted (self-normalised) TIS: ``sum_i rho_i G_i / sum_i rho_i``.

    Biased by ``O(1 / n)``, of far less variance, and never outside the range of the returns. The
    weights are normalised in the logarithm, so they cannot overflow.

    Args:
        trajectories: All of them, shape ``(trajectory, time)``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` where it is outside.

    Returns:
        The estimate; NaN if every weight is zero.

    Raises:
        ValueError: If shapes differ, there are not two axes, there is no trajectory or no step,
            or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([[3.0], [1.0]])), jnp.array([[8.0], [0.0]]))
        >>> round(float(wis(log, discount=1.0)), 4)
        6.0

    Source: Precup, Sutton and Singh, 2000.
    """
    log_ratio, reward = checked(trajectories, 2, discount)
    returns = jnp.sum(discounts(discount, reward) * reward, axis=1)
    return jnp.sum(jax.nn.softmax(jnp.sum(log_ratio, axis=1)) * returns)


def wpdis(
    trajectories: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Weighted PDIS: ``sum_t discount^t sum_i rho_{i,t} r_{i,t} / sum_i rho_{i,t}``.

    Args:
        trajectories: All of them, shape ``(trajectory, time)``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` where it is outside.

    Returns:
        The estimate; NaN if at some step every weight is zero.

    Raises:
        ValueError: As :func:`wis`.

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([[3.0], [1.0]])), jnp.array([[8.0], [0.0]]))
        >>> round(float(wpdis(log, discount=1.0)), 4)
        6.0

    Source: Thomas, Safe reinforcement learning, 2015, section 3.10.
    """
    log_ratio, reward = checked(trajectories, 2, discount)
    weights = jax.nn.softmax(jnp.cumsum(log_ratio, axis=1), axis=0)
    return jnp.sum(discounts(discount, reward) * weights * reward)


def effective_sample_size(
    log_weights: Float[Array, "sample *shape"],
) -> Float[Array, "*shape"]:
    """How many equally weighted samples are worth these: ``(sum w)^2 / sum w^2``.

    Args:
        log_weights: Logarithms of the weights along the first axis, up to a common constant. For
            a trajectory the sum of its log ratios; for every step their cumulative sum.

    Returns:
        From 1 to the number of samples; 0 where all weights are zero or there is no sample.

    Raises:
        ValueError: If there is no axis.

    Example:
        >>> import jax.numpy as jnp
        >>> float(effective_sample_size(jnp.zeros(8)))
        8.0

    Source: Kong, A note on importance sampling using standardized weights, 1992.
    """
    if jnp.ndim(log_weights) < 1:
        raise ValueError(
            "log_weights needs the samples along its first axis, got a scalar; "
            "put one log-weight a trajectory into an array"
        )
    logs = floats(log_weights)
    largest = jnp.max(logs, axis=0, keepdims=True, initial=-jnp.inf)
    weights = jnp.exp(logs - jnp.where(jnp.isneginf(largest), 0, largest))
    total, squares = jnp.sum(weights, axis=0), jnp.sum(weights**2, axis=0)
    return total**2 / jnp.where(squares == 0, 1, squares)


def checked(
    data: LoggedTrajectories, rank: int, discount: float | Array
) -> tuple[Float[Array, "*trajectory time"], Float[Array, "*trajectory time"]]:
    """The log ratios and rewards of a valid log, zero where masked."""
    checked_discount(discount)
    axes = "time" if rank == 1 else "trajectory, time"
    require_rank("log_ratio", data.log_ratio, rank, axes)
    require_same_shape("log_ratio", data.log_ratio, "reward", data.reward)
    if data.mask is not None:
        require_same_shape("log_ratio", data.log_ratio, "mask", data.mask)
    if rank > 1 and jnp.shape(data.log_ratio)[0] < 1:
        raise ValueError(
            "a weighted estimate needs one trajectory or more, got none; "
            "check how the log was cut into episodes"
        )
    if jnp.shape(data.log_ratio)[-1] < 1:
        raise ValueError(
            f"a trajectory needs one step or more, got shape {jnp.shape(data.log_ratio)}; "
            "leave out the trajectories that never began"
        )
    return masked(data.log_ratio, data.mask), masked(data.reward, data.mask)


def weighted(log_weight: Array, amount: Array) -> Array:
    """``exp(log_weight) amount``; zero where one of both is, even if the other overflows."""
    overflows = jnp.exp(log_weight) == jnp.inf
    nothing = ((amount == 0) & overflows) | (jnp.isneginf(log_weight) & jnp.isinf(amount))
    log_weight, amount = jnp.where(nothing, 0, log_weight), jnp.where(nothing, 0, amount)
    return jnp.exp(log_weight) * amount


def masked(values: Array, mask: Array | None) -> Array:
    """The values as floats, zero where the mask is false."""
    return floats(values) if mask is None else jnp.where(booleans(mask), floats(values), 0)


def checked_discount(discount: float | Array) -> float | Array:
    """The discount; NaN where it is traced and outside [0, 1]."""
    return require_probability("discount", discount, closed=True)


def discounts(discount: float | Array, reward: Array) -> Array:
    """``discount^t``, with as many axes as the rewards; ``0^0`` is 1."""
    factor = like(checked_discount(discount), reward)
    powers = jnp.cumprod(jnp.full(reward.shape[-1:], factor))
    first = jnp.where(jnp.isnan(factor), factor, 1)
    powers = jnp.concatenate([first[None], powers])[: reward.shape[-1]]
    return powers.reshape((1,) * (reward.ndim - 1) + powers.shape)
