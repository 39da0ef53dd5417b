"""MAGIC: the blend of a model and importance sampling with the smallest estimated error."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import checked_integer, checked_probability, require_key
from neorl_core._internal.matrix_products import product
from neorl_core._internal.resampling import in_blocks, random_rows
from neorl_core.off_policy_evaluation._doubly_robust import model, weighted_terms
from neorl_core.off_policy_evaluation._importance_sampling import (
    LoggedTrajectories,
    checked,
    discounts,
    like_reward,
)
from neorl_core.off_policy_evaluation._simplex_quadratic import simplex_quadratic


class Magic(NamedTuple):
    """A MAGIC estimate.

    Attributes:
        estimate: The value of the evaluated policy, scalar.
        weights: Weights of the lengths of the importance-sampled part, shape ``(time + 1,)``: the
            first entry is the pure model, the last one the weighted doubly robust estimate.
        blended: The estimate for each of these lengths, shape ``(time + 1,)``.
    """

    estimate: Float[Array, ""]
    weights: Float[Array, " length"]
    blended: Float[Array, " length"]


def magic(
    trajectories: LoggedTrajectories,
    key: PRNGKeyArray,
    *,
    discount: float | Float[Array, ""],
    level: float = 0.5,
    resamples: int = 200,
) -> Magic:
    """Combines a model with guided importance sampling.

    ``g_j`` is the weighted doubly robust estimate up to step ``j`` plus the model's value of the
    rest, for ``j = -1 .. T - 1``. The estimate is ``x^T g`` with the weights on the simplex that
    minimise ``x^T (Omega + b b^T) x``. ``Omega`` is ``n`` times the covariance of the trajectories'
    terms. ``b_j`` is the distance of ``g_j`` from a percentile bootstrap interval of the weighted
    doubly robust estimate. The bootstrap runs in blocks of bounded memory.

    Args:
        trajectories: Shape ``(trajectory, time)``, two or more, with ``q_value`` and ``value``.
        key: Random key of the bootstrap over trajectories.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        level: Confidence level of that interval, in (0, 1); the paper uses one half. NaN under
            ``jit`` if it is outside.
        resamples: Number of bootstrap samples.

    Returns:
        The estimate and its components; NaN if at some step all weights are zero.

    Raises:
        ValueError: If shapes differ, there are not two axes, fewer than two trajectories or no
            step, the model's values are missing, or a hyperparameter is out of range.
        TypeError: If ``key`` is not a random key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> one, left = jnp.ones((4, 2)), jnp.tile(jnp.array([2.0, 1.0]), (4, 1))
        >>> log = LoggedTrajectories(0 * one, one, None, q_value=left, value=left)
        >>> round(float(magic(log, jax.random.key(0), discount=1.0).estimate), 4)
        2.0

    Source: Thomas and Brunskill, Data-efficient off-policy policy evaluation for reinforcement
    learning, arXiv 1604.00923, section 6 and algorithm 1.
    """
    level = checked_probability("level", level)
    resamples = checked_integer("resamples", resamples, 1, "give the number of draws")
    require_key(key)
    log_ratio, reward, discount = checked(trajectories, 2, discount)
    n, time = reward.shape
    if n < 2:
        raise ValueError(
            f"MAGIC needs two trajectories of one step or more, got shape {reward.shape}; "
            "give more trajectories"
        )
    q_value, value = model(trajectories)
    log = _Log(
        jnp.cumsum(log_ratio, axis=1),
        reward - q_value,
        value,
        discounts(discount, jnp.zeros((1, time + 1), reward.dtype)),
    )
    terms = _partial_terms(log)
    blended = jnp.sum(terms, axis=0)
    centred = terms - jnp.mean(terms, axis=0, keepdims=True)
    spread = product(centred.T, centred) * (n / (n - 1))
    low, high = _interval(log, key, level, resamples)
    bias = jnp.maximum(blended - high, 0) + jnp.minimum(blended - low, 0)
    weights = simplex_quadratic(spread + bias[:, None] * bias[None, :])
    return like_reward(Magic(jnp.sum(weights * blended), weights, blended), trajectories)


class _Log(NamedTuple):
    """Logarithms of the weights, ``r - Q``, ``V``, and powers of the discount up to the end."""

    log_weight: Float[Array, "trajectory time"]
    error: Float[Array, "trajectory time"]
    value: Float[Array, "trajectory time"]
    powers: Float[Array, "one length"]


def _partial_terms(log: _Log) -> Float[Array, "trajectory length"]:
    """The contribution of each trajectory to each ``g_j``."""
    n, value = log.value.shape[0], log.value
    weights = jax.nn.softmax(log.log_weight, axis=0)
    terms = log.powers[:, :-1] * weighted_terms(weights, log.error, value)
    following = jnp.concatenate([value[:, 1:], jnp.zeros_like(value[:, :1])], axis=1)
    tail = log.powers[:, 1:] * weights * following
    return jnp.concatenate([value[:, :1] / n, jnp.cumsum(terms, axis=1) + tail], axis=1)


@functools.partial(jax.jit, static_argnames="resamples")
def _interval(log: _Log, key: Array, level: float | Array, resamples: int) -> tuple[Array, Array]:
    """Percentile limits of the weighted doubly robust estimate over resampled trajectories.

    A trajectory that was sampled ``c`` times gets ``c`` times its weight, so nothing is copied.
    """
    n = log.value.shape[0]

    def one(key: Array) -> Array:
        drawn = jnp.zeros(n, log.value.dtype).at[random_rows(key, (n,), n)].add(1)[:, None]
        weights = jax.nn.softmax(log.log_weight + jnp.log(drawn), axis=0)
        terms = weighted_terms(weights, log.error, log.value, drawn / n)
        return jnp.sum(log.powers[:, :-1] * terms)

    replicates = in_blocks(one, jax.random.split(key, resamples), log.value.size)
    tail = (1 - jnp.asarray(level, replicates.dtype)) / 2
    ends = jnp.quantile(replicates, jnp.stack([tail, 1 - tail]))
    return ends[0], ends[1]
