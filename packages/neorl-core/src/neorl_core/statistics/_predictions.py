"""Quality of predictions: separation of two groups by a score, and calibration of probabilities."""

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
)
from neorl_core._internal.float_widths import narrow, widen
from neorl_core._internal.sorting import ordered_bits


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
