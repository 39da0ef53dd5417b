"""Quantiles and tail means of returns, plain or importance-weighted."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._require import (
    floats,
    known,
    require_length,
    require_probability,
    require_rank,
    require_same_shape,
)


def weighted_quantile(
    samples: Float[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
    *,
    probability: float | Float[Array, ""],
) -> Float[Array, ""]:
    """The smallest sample whose cumulative weight reaches ``probability``.

    The left inverse of the weighted empirical distribution: always one of the samples. With the
    weights of trajectories it estimates a quantile of the return of the evaluated policy.

    Args:
        samples: For example returns of episodes, one or more.
        weights: Not negative; equal ones if ``None``.
        probability: In [0, 1]; NaN results under ``jit`` where it is outside.

    Returns:
        The quantile, in the units of the samples; NaN if all weights are zero, one is negative,
        or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is no sample, or ``probability`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> float(weighted_quantile(jnp.array([3.0, 1.0, 2.0]), probability=0.5))
        2.0

    Source: Chandak et al., Universal off-policy evaluation, arXiv 2104.12820.
    """
    probability = require_probability("probability", probability, closed=True)
    ordered, shares = _distribution(samples, weights)
    reached = jnp.cumsum(shares)
    slack = 4 * ordered.shape[0] * jnp.finfo(shares.dtype).eps
    least = jnp.asarray(probability, shares.dtype) - slack
    enough = (reached >= least) & (shares > 0)
    index = jnp.where(jnp.any(enough), jnp.argmax(enough), ordered.shape[0] - 1)
    return jnp.where(jnp.isnan(reached[-1] + least), jnp.nan, ordered[index])


def conditional_value_at_risk(
    samples: Float[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
    *,
    share: float | Float[Array, ""],
) -> Float[Array, ""]:
    """Mean of the lowest ``share`` of the returns: ``1/share`` times the integral of the quantile.

    The sample that straddles the share counts by the part inside. At 1 it is the mean, towards 0
    the minimum. For costs, negate samples and result.

    Args:
        samples: For example returns of episodes, one or more.
        weights: Not negative; equal ones if ``None``.
        share: In (0, 1]; NaN results under ``jit`` where it is outside.

    Returns:
        The tail mean, in the units of the samples; NaN if all weights are zero, one is negative,
        or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is no sample, or ``share`` is outside (0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> float(conditional_value_at_risk(jnp.array([4.0, 1.0, 2.0, 3.0]), share=0.5))
        1.5

    Source: Rockafellar and Uryasev, Optimization of conditional value-at-risk, 2000.
    """
    share = require_probability("share", share, closed=True)
    if known(share) and np.any(np.asarray(share) <= 0):
        raise ValueError(
            f"share must be in (0, 1], got {share}; 1 is the mean; give a share, not per cent"
        )
    ordered, shares = _distribution(samples, weights)
    share = jnp.asarray(share, shares.dtype)
    before = jnp.cumsum(shares) - shares
    inside = jnp.clip(share - before, 0, shares)
    return jnp.sum(inside * ordered) / jnp.sum(inside)


def _distribution(samples: ArrayLike, weights: ArrayLike | None) -> tuple[Array, Array]:
    require_rank("samples", samples, 1, "sample")
    require_length("samples", samples, 1)
    samples = floats(samples)
    weights = jnp.ones_like(samples) if weights is None else floats(weights)
    require_same_shape("samples", samples, "weights", weights)
    fine = jnp.all(weights >= 0) & ~jnp.any(jnp.isnan(samples))
    order = jnp.argsort(samples)
    mass = weights[order]
    return samples[order], jnp.where(fine, mass / jnp.sum(mass), jnp.nan)
