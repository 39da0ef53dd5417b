"""Conformal quantiles: limits for one future outcome, without a model of its distribution."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    checked_probability,
    floats,
    is_concrete,
    require_rank,
    require_same_shape,
    require_scalar,
)
from neorl_core._internal.float_widths import narrow, widen
from neorl_core._internal.sorting import sort_floats


def conformal_quantile(
    scores: Float[ArrayLike, " sample"], *, miscoverage: float = 0.1
) -> Float[Array, ""]:
    """The ``ceil((n + 1) (1 - miscoverage))``-th smallest score.

    If the scores and one more score are exchangeable, the new score does not exceed the result with
    probability at least ``1 - miscoverage``. This probability includes the sampling of the scores;
    it does not hold for a given sample. Scores of whole episodes are exchangeable, those of the
    steps of one episode are not. The limit is for one outcome, not for a mean. The rank is exact
    for up to 10^7 scores in float32.

    Args:
        scores: Scores of calibration episodes; may be empty.
        miscoverage: Probability of error, in (0, 1); NaN under ``jit`` if it is outside.

    Returns:
        The quantile; infinite if ``n < 1 / miscoverage - 1``, NaN if a score is NaN.

    Raises:
        ValueError: If there is not exactly one axis or ``miscoverage`` is outside (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> float(conformal_quantile(jnp.arange(9.0), miscoverage=0.1))
        8.0

    Source: Vovk, Gammerman and Shafer, Algorithmic learning in a random world, 2005.
    """
    require_rank("scores", scores, 1, "sample")
    miscoverage = checked_probability("miscoverage", miscoverage)
    scores = floats(scores)
    dtype = widen(scores).dtype
    n = scores.shape[0]
    above = (n + 1) * jnp.asarray(miscoverage, dtype)
    # Rounding may put it just below the integer it stands for.
    slack = jnp.minimum(4 * jnp.finfo(dtype).eps * above, 1e-3)
    left_above = jnp.floor(above + slack).astype(jnp.int32)
    padded = jnp.append(sort_floats(scores), jnp.asarray(jnp.inf, scores.dtype))
    undefined = jnp.any(jnp.isnan(scores)) | jnp.isnan(above)
    return jnp.where(undefined, jnp.nan, padded[n - jnp.clip(left_above, 0, n)])


def conformal_sample_size(miscoverage: float) -> int:
    """Smallest number of scores with a finite conformal quantile: ``ceil(1 / miscoverage - 1)``.

    Args:
        miscoverage: Probability of error, a concrete number in (0, 1).

    Returns:
        The number of scores to record so that :func:`conformal_quantile` is finite.

    Raises:
        ValueError: If ``miscoverage`` is outside (0, 1).

    Example:
        >>> conformal_sample_size(0.05)
        19

    Source: Vovk, Gammerman and Shafer, Algorithmic learning in a random world, 2005.
    """
    if not 0 < miscoverage < 1:
        raise ValueError(
            f"miscoverage must be in (0, 1), got {miscoverage}; it is a probability, such as 0.1"
        )
    # Rounding may put the quotient just above an integer; it then stands for that integer.
    return math.ceil((1 - 1e-9) / miscoverage - 1)


def weighted_conformal_quantile(
    scores: Float[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"],
    weight: Float[ArrayLike, ""],
    *,
    miscoverage: float = 0.1,
) -> Float[Array, ""]:
    """The conformal quantile under a known shift of distribution.

    The smallest ``q`` with ``sum_{V_i <= q} p_i >= 1 - miscoverage`` for ``p_i = w_i / (sum_j w_j +
    w)``; the remaining ``w / (sum_j w_j + w)`` lies at infinity. With the weights of
    :class:`LoggedTrajectories` the quantile applies to a policy other than the logged one. Equal
    weights give :func:`conformal_quantile`.

    Args:
        scores: Scores of calibration episodes; may be empty.
        weights: Likelihood ratio of every score, not negative, up to a common factor.
        weight: Likelihood ratio of the future case, a scalar.
        miscoverage: Probability of error, in (0, 1); NaN under ``jit`` if it is outside.

    Returns:
        The quantile; infinite if the scores have too little weight, NaN under ``jit`` if a score is
        NaN or a weight is negative or NaN.

    Raises:
        ValueError: If shapes differ, there is not exactly one axis, ``weight`` is not a scalar, a
            concrete weight is negative, or ``miscoverage`` is outside (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> scores, weights = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 0.0, 9.0])
        >>> float(weighted_conformal_quantile(scores, weights, 1.0, miscoverage=0.2))
        3.0

    Source: Tibshirani et al., Conformal prediction under covariate shift, arXiv 1904.06019;
    Taufiq et al., Conformal off-policy prediction in contextual bandits, arXiv 2206.04405.
    """
    require_rank("scores", scores, 1, "sample")
    require_same_shape("scores", scores, "weights", weights)
    require_scalar("weight", weight)
    miscoverage = checked_probability("miscoverage", miscoverage)
    if is_concrete((weights, weight)):
        both = np.append(np.asarray(weights), np.asarray(weight))
        if not np.all(both >= 0):
            raise ValueError(
                f"weights must not be negative, got {both.min()}; check the likelihood ratios"
            )
    dtype, scores, weights = floats(scores).dtype, widen(scores), widen(weights)
    weight = jnp.asarray(weight, weights.dtype)
    order = jnp.argsort(scores)
    ordered, mass = scores[order], weights[order]
    total = jnp.sum(mass) + weight
    # The weight above each score, summed from the top, which is exact for a small miscoverage.
    above = jnp.append(jnp.cumsum(mass[::-1])[::-1][1:], jnp.zeros(1, mass.dtype))
    mass_above = (above[: scores.shape[0]] + weight) / jnp.where(total > 0, total, 1)
    allowed = jnp.asarray(miscoverage, scores.dtype) * (1 + 8 * jnp.finfo(scores.dtype).eps)
    sufficient = mass_above <= allowed
    quantile = jnp.min(jnp.where(sufficient & (total > 0), ordered, jnp.inf), initial=jnp.inf)
    valid = jnp.all(weights >= 0) & (weight >= 0) & ~jnp.any(jnp.isnan(scores))
    return narrow(jnp.where(valid & ~jnp.isnan(allowed), quantile, jnp.nan), dtype)
