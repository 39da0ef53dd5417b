"""MAGIC: the blend of a model and importance sampling with the least estimated error."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import require_probability, require_whole
from neorl_core._internal.matrix_products import product
from neorl_core.off_policy_evaluation._doubly_robust import model, step_weights, weighted_terms
from neorl_core.off_policy_evaluation._importance_sampling import (
    LoggedTrajectories,
    checked,
    discounts,
)
from neorl_core.off_policy_evaluation._simplex_quadratic import simplex_quadratic


class Magic(NamedTuple):
    """A MAGIC estimate.

    Attributes:
        estimate: The value of the evaluated policy, scalar.
        weights: Weights on the lengths of the importance-sampled part, shape ``(time + 1,)``: the
            first entry is the pure model, the last one the weighted doubly robust estimate.
        blended: What each of these says by itself, shape ``(time + 1,)``.
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
    """Model and guided importance sampling combined.

    ``g_j`` is the weighted doubly robust estimate up to step ``j`` with the model's value of what
    follows, for ``j = -1 .. T - 1``. The estimate is ``x^T g`` with the weights on the simplex
    that minimise ``x^T (Omega + b b^T) x``: ``Omega`` is ``n`` times the covariance of the terms
    of the trajectories, and ``b_j`` the distance of ``g_j`` from a percentile bootstrap interval
    of the weighted doubly robust estimate.

    Args:
        trajectories: Shape ``(trajectory, time)``, two or more, with ``q_value`` and ``value``.
        key: Random key of the bootstrap over trajectories.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` where it is outside.
        level: Confidence level of that interval, in (0, 1); the paper takes one half.
            NaN under ``jit`` outside.
        resamples: Number of bootstrap draws.

    Returns:
        The estimate and what it was blended from; NaN if at some step every weight is zero.

    Raises:
        ValueError: If shapes differ, there are not two axes, fewer than two trajectories or no
            step, the model's values are missing, or a hyperparameter is out of range.

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
    level = require_probability("level", level)
    resamples = require_whole("resamples", resamples, 1, "give the number of draws")
    terms = _partial_terms(trajectories, discount)
    n = terms.shape[0]
    blended = jnp.sum(terms, axis=0)
    centred = terms - jnp.mean(terms, axis=0, keepdims=True)
    spread = product(centred.T, centred) * (n / (n - 1))
    low, high = _interval(trajectories, key, discount, level, resamples)
    bias = jnp.maximum(blended - high, 0) + jnp.minimum(blended - low, 0)
    weights = simplex_quadratic(spread + bias[:, None] * bias[None, :])
    return Magic(jnp.sum(weights * blended), weights, blended)


def _partial_terms(
    trajectories: LoggedTrajectories, discount: float | Array
) -> Float[Array, "trajectory length"]:
    """What each trajectory adds to each ``g_j``."""
    log_ratio, reward = checked(trajectories, 2, discount)
    n, time = reward.shape
    if n < 2 or time < 1:
        raise ValueError(
            f"MAGIC needs two trajectories of one step or more, got shape {reward.shape}; "
            "give more trajectories"
        )
    _, value = model(trajectories)
    corrected = jnp.cumsum(weighted_terms(trajectories, discount), axis=1)
    following = jnp.concatenate([value[:, 1:], jnp.zeros_like(value[:, :1])], axis=1)
    powers = discounts(discount, jnp.zeros((1, time + 1), reward.dtype))[:, 1:]
    tail = powers * step_weights(log_ratio) * following
    return jnp.concatenate([value[:, :1] / n, corrected + tail], axis=1)


def _interval(
    trajectories: LoggedTrajectories,
    key: Array,
    discount: float | Array,
    level: float | Array,
    resamples: int,
) -> tuple[Array, Array]:
    n = trajectories.reward.shape[0]

    def one(key: Array) -> Array:
        rows = jax.random.randint(key, (n,), 0, n)
        drawn = jax.tree.map(lambda leaf: leaf[rows], trajectories)
        return jnp.sum(weighted_terms(drawn, discount))

    replicates = jax.vmap(one)(jax.random.split(key, resamples))
    tail = (1 - jnp.asarray(level, replicates.dtype)) / 2
    ends = jnp.quantile(replicates, jnp.stack([tail, 1 - tail]))
    return ends[0], ends[1]
