"""How well a score tells two groups apart, and how well a probability is one; float64, on the host.

Every measure takes weights of rows, so that a bootstrap of whole episodes needs no copies.
"""

import numpy as np
from jaxtyping import Bool, Float

from neorl_core import InputError


def area_under_roc(
    score: Float[np.ndarray, " row"],
    positive: Bool[np.ndarray, " row"],
    weight: Float[np.ndarray, " row"] | None = None,
) -> float:
    """The chance that a positive row has the larger score: ``P(s+ > s-) + P(s+ = s-) / 2``.

    Args:
        score: Any unit; larger for positive.
        positive: Whether the row is of the group that is to be found.
        weight: Weight of every row, not negative; one by default.

    Returns:
        A number in [0, 1], 0.5 for a score that tells nothing; NaN where one group has no weight.

    Raises:
        InputError: If the columns differ in length or a score is NaN.

    Example:
        >>> import numpy as np
        >>> area_under_roc(np.array([0.1, 0.2, 0.9]), np.array([False, True, True]))
        1.0

    Source: Hanley and McNeil, The meaning and use of the area under a ROC curve, 1982.
    """
    score, positive, weight = _columns(score, positive, weight)
    _, place = np.unique(score, return_inverse=True)
    count = int(place.max(initial=-1)) + 1
    found = np.bincount(place, weight * positive, count)
    other = np.bincount(place, weight * ~positive, count)
    pairs = found.sum() * other.sum()
    below = np.cumsum(other) - other / 2
    return float(found @ below / pairs) if pairs > 0 else float("nan")


def calibration_error(
    probability: Float[np.ndarray, " row"],
    happened: Bool[np.ndarray, " row"],
    weight: Float[np.ndarray, " row"] | None = None,
    *,
    bins: int = 15,
) -> float:
    """The expected calibration error: ``sum_b (n_b / n) |rate_b - mean probability_b|``.

    Over ``bins`` equal parts of [0, 1]. Where events are rare it is small for any prediction near
    the rate, so it says little without :func:`area_under_roc` or :func:`brier_skill` beside it.

    Args:
        probability: Predicted, in [0, 1].
        happened: Whether it did.
        weight: Weight of every row, not negative; one by default.
        bins: Number of bins, at least one.

    Returns:
        A number in [0, 1]; NaN without any weight.

    Raises:
        InputError: If the columns differ in length, or a probability is outside [0, 1].

    Example:
        >>> import numpy as np
        >>> round(calibration_error(np.array([0.2, 0.2, 0.8]), np.array([False, False, True])), 3)
        0.2

    Source: Guo et al., On calibration of modern neural networks, arXiv 1706.04599, equation 3.
    """
    probability, happened, weight = _columns(probability, happened, weight)
    _require_probabilities(probability)
    place = np.minimum((probability * bins).astype(int), bins - 1)
    apart = np.bincount(place, weight * (happened - probability), bins)
    total = weight.sum()
    return float(np.abs(apart).sum() / total) if total > 0 else float("nan")


def brier_skill(
    probability: Float[np.ndarray, " row"],
    happened: Bool[np.ndarray, " row"],
    weight: Float[np.ndarray, " row"] | None = None,
) -> float:
    """How much better than the base rate alone: ``1 - sum (p - y)^2 / sum (mean(y) - y)^2``.

    Args:
        probability: Predicted, in [0, 1].
        happened: Whether it did.
        weight: Weight of every row, not negative; one by default.

    Returns:
        1 for an oracle, 0 for one who always says the rate of these rows, negative for worse; NaN
        where all rows are alike.

    Raises:
        InputError: If the columns differ in length, or a probability is outside [0, 1].

    Example:
        >>> import numpy as np
        >>> happened = np.array([True, False])
        >>> brier_skill(np.array([0.5, 0.5]), happened), brier_skill(np.array([1.0, 0.0]), happened)
        (0.0, 1.0)

    Source: Murphy, Skill scores based on the mean square error, 1988.
    """
    probability, happened, weight = _columns(probability, happened, weight)
    _require_probabilities(probability)
    total = weight.sum()
    rate = (weight * happened).sum() / total if total > 0 else np.nan
    least = (weight * (rate - happened) ** 2).sum()
    if not least > 1e-12 * total:
        return float("nan")
    return float(1 - (weight * (probability - happened) ** 2).sum() / least)


def _columns(
    score: np.ndarray, label: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    score, label = np.asarray(score, np.float64), np.asarray(label, bool)
    weight = np.ones(score.shape) if weight is None else np.asarray(weight, np.float64)
    if score.ndim != 1 or score.shape != label.shape or score.shape != weight.shape:
        raise InputError(
            f"scores, labels and weights must be columns of one length, got shapes {score.shape}, "
            f"{label.shape} and {weight.shape}"
        )
    if np.isnan(score).any():
        raise InputError(f"{int(np.isnan(score).sum())} of {len(score)} scores are NaN; leave out")
    return score, label, weight


def _require_probabilities(probability: np.ndarray) -> None:
    if probability.size and not (probability.min() >= 0 and probability.max() <= 1):
        raise InputError(
            "a probability must lie in [0, 1], got values from "
            f"{probability.min():g} to {probability.max():g}"
        )
