"""Quality of predictions, and conformal limits for one future outcome."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_integer,
    checked_probability,
    floats,
    is_concrete,
    require_rank,
    require_same_shape,
    require_scalar,
)
from neorl_core._internal.precision import narrow, widen
from neorl_core.statistics._ranks import ordered_bits, sort_floats

# Quality of predictions: separation of two groups by a score, and calibration of probabilities.


def area_under_roc(
    scores: Float[ArrayLike, " sample"],
    positive: Bool[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
) -> Float[Array, ""]:
    """The probability that a positive sample has the larger score: ``P(s+ > s-) + P(s+ = s-) / 2``.

    The Mann-Whitney statistic divided by the number of pairs. Weights represent repeated samples,
    so that a bootstrap of whole episodes needs no copies.

    Args:
        scores: Any unit; larger values indicate the positive group.
        positive: Whether the sample belongs to the positive group.
        weights: Sample weights, not negative; equal if ``None``.

    Returns:
        In [0, 1], 0.5 for an uninformative score; NaN if one group has no weight, a weight is
        negative or infinite, or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is not exactly one axis, or a concrete weight is
            negative.

    Example:
        >>> import jax.numpy as jnp
        >>> scores, positive = jnp.array([0.1, 0.2, 0.2]), jnp.array([False, False, True])
        >>> float(area_under_roc(scores, positive))
        0.75

    Source: Hanley and McNeil, The meaning and use of the area under a receiver operating
    characteristic (ROC) curve, 1982.
    """
    dtype, scores, positives, negatives = _groups("scores", scores, "positive", positive, weights)
    bits = ordered_bits(scores)
    order = jnp.argsort(bits)
    ordered = bits[order]
    n_positive, n_negative = jnp.sum(positives), jnp.sum(negatives)
    both = (n_positive > 0) & (n_negative > 0)
    # Normalised weights, since products of weights might leave the range of floats.
    positives, negatives = (
        x[order] / jnp.where(both, of, 1)
        for x, of in ((positives, n_positive), (negatives, n_negative))
    )
    cumulative = jnp.append(jnp.zeros(1, negatives.dtype), jnp.cumsum(negatives))
    below = cumulative[jnp.searchsorted(ordered, ordered, side="left")]
    not_above = cumulative[jnp.searchsorted(ordered, ordered, side="right")]
    area = jnp.clip(jnp.sum(positives * (below + not_above) / 2), 0, 1)
    return narrow(jnp.where(both & ~jnp.any(jnp.isnan(scores)), area, jnp.nan), dtype)


def calibration_error(
    probability: Float[ArrayLike, " sample"],
    outcome: Bool[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
    *,
    bins: int = 15,
) -> Float[Array, ""]:
    """The expected calibration error: ``sum_b (n_b / n) |rate_b - mean probability_b|``.

    Over ``bins`` equal parts of [0, 1], each including its lower end and the last one both ends. If
    events are rare it is small for any prediction near the rate, so it means little without
    :func:`area_under_roc` or :func:`brier_skill`.

    Args:
        probability: Predicted probability, in [0, 1].
        outcome: Whether the event happened.
        weights: Sample weights, not negative; equal if ``None``.
        bins: Number of bins, at least one.

    Returns:
        In [0, 1]; NaN if there is no weight, a weight is negative or infinite, a probability is
        outside [0, 1] under ``jit``, or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is not exactly one axis, a concrete weight is negative,
            a concrete probability is outside [0, 1], or ``bins`` is not a positive integer.

    Example:
        >>> import jax.numpy as jnp
        >>> probability, outcome = jnp.array([0.25, 0.25, 0.75]), jnp.array([False, False, True])
        >>> float(calibration_error(probability, outcome))
        0.25

    Source: Guo et al., On calibration of modern neural networks, arXiv 1706.04599, equation 3.
    """
    bins = checked_integer("bins", bins, 1, "give the number of parts of [0, 1]")
    probability = checked_probability("probability", probability, closed=True, many=True)
    dtype, probability, positives, negatives = _groups(
        "probability", probability, "outcome", outcome, weights
    )
    weight = positives + negatives
    bin_index = jnp.minimum(jnp.where(probability >= 0, probability * bins, 0), bins - 1)
    excess = jnp.zeros(bins, weight.dtype)
    excess = excess.at[bin_index.astype(jnp.int32)].add(positives - weight * probability)
    return narrow(jnp.sum(jnp.abs(excess)) / jnp.sum(weight), dtype)


def brier_skill(
    probability: Float[ArrayLike, " sample"],
    outcome: Bool[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
) -> Float[Array, ""]:
    """Improvement over predicting the base rate: ``1 - sum (p - y)^2 / sum (mean(y) - y)^2``.

    Args:
        probability: Predicted probability ``p``, in [0, 1].
        outcome: Whether the event happened, ``y``.
        weights: Sample weights, not negative; equal if ``None``.

    Returns:
        1 for perfect predictions, 0 for always predicting the rate of these samples, negative for
        worse. NaN if all samples with weight are alike, a weight is negative or infinite, a
        probability is outside [0, 1] under ``jit``, or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is not exactly one axis, a concrete weight is negative,
            or a concrete probability is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> outcome = jnp.array([True, False])
        >>> float(brier_skill(jnp.array([0.75, 0.25]), outcome))
        0.75

    Source: Murphy, Skill scores based on the mean square error and their relationships to the
    correlation coefficient, 1988.
    """
    probability = checked_probability("probability", probability, closed=True, many=True)
    dtype, probability, positives, negatives = _groups(
        "probability", probability, "outcome", outcome, weights
    )
    # The base rate's error is n+ n- / (n+ + n-), with the weights of the two groups.
    n_positive, n_negative = jnp.sum(positives), jnp.sum(negatives)
    total_error = jnp.sum(
        positives * jnp.square(1 - probability) + negatives * jnp.square(probability)
    )
    both = (n_positive > 0) & (n_negative > 0)
    skill = 1 - total_error / jnp.where(both, n_positive, 1) * (
        (n_positive + n_negative) / jnp.where(both, n_negative, 1)
    )
    return narrow(jnp.where(both, skill, jnp.nan), dtype)


def _groups(
    name: str, scores: ArrayLike, label: str, labels: ArrayLike, weights: ArrayLike | None
) -> tuple[jnp.dtype, Array, Array, Array]:
    """The dtype of the result, the scores, and the weights of the positives and the negatives."""
    require_rank(name, scores, 1, "sample")
    require_same_shape(name, scores, label, labels)
    dtype, scores = floats(scores).dtype, widen(scores)
    flags = booleans(labels)
    if weights is None:
        weight = jnp.ones(scores.shape, scores.dtype)
    else:
        require_same_shape(name, scores, "weights", weights)
        if is_concrete(weights) and np.any(np.asarray(weights) < 0):
            raise ValueError(
                f"weights must not be negative, got {np.min(np.asarray(weights))}; check their "
                "source"
            )
        weight = widen(weights)
        weight = jnp.where(weight >= 0, weight, jnp.nan).astype(scores.dtype)
    # An invalid weight makes both groups NaN.
    validity = jnp.where(jnp.all(jnp.isfinite(weight)), jnp.ones((), weight.dtype), jnp.nan)
    weight = weight * validity
    return (
        dtype,
        scores,
        jnp.where(flags, weight, 0 * validity),
        jnp.where(flags, 0 * validity, weight),
    )


# Conformal quantiles: limits for one future outcome, without a model of its distribution.


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
