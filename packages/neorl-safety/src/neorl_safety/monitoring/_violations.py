"""Frequency, duration and size of constraint violations, counted on the host."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Bool, Float

from neorl_core.statistics import DEFAULT_LEVEL, Interval


class ViolationStatistics(NamedTuple):
    """Violations of one constraint over a batch of episodes.

    Attributes:
        steps: Number of violating steps.
        step_fraction: Fraction of valid steps that violate the constraint; without an interval,
            since the steps of an episode are not independent.
        longest: Longest uninterrupted violation, in steps.
        episodes: Number of episodes with at least one violating step.
        episode_fraction: Fraction of such episodes, with its exact (Clopper-Pearson) interval.
    """

    steps: int
    step_fraction: float
    longest: int
    episodes: int
    episode_fraction: Interval


def violation_statistics(
    violated: Bool[ArrayLike, "episode time"],
    mask: Bool[ArrayLike, "episode time"] | None = None,
    *,
    level: float = DEFAULT_LEVEL,
) -> ViolationStatistics:
    """Counts violations, and bounds the probability that an episode has one.

    The interval has a coverage of at least ``level`` if the episodes are independent samples of the
    situation to which it is applied: the stated simulator, starts and seeds, nothing else. No
    violation in 299 episodes bounds the probability by 1 % (one-sided, 95 %).

    Args:
        violated: Whether the constraint was violated, one row per episode.
        mask: False where an episode has no step (padding); an episode without any step is ignored.
        level: Coverage of the two-sided interval, in (0, 1).

    Returns:
        The counts and fractions.

    Raises:
        ValueError: If ``violated`` is not two-dimensional, ``mask`` has another shape or ``level``
            is outside (0, 1).

    Source: Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, Biometrika 26 (1934) 404.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}; 0.95 is 95 %")
    violated, valid = _with_mask("violated", np.asarray(violated, bool), mask)
    violated = violated & valid
    steps, episodes = int(violated.sum()), int(violated.any(axis=1).sum())
    return ViolationStatistics(
        steps=steps,
        step_fraction=steps / max(int(valid.sum()), 1),
        longest=_longest_run(violated),
        episodes=episodes,
        episode_fraction=_exact_interval(episodes, int(valid.any(axis=1).sum()), level),
    )


class Depth(NamedTuple):
    """Size of the violations of a limit over a batch of episodes.

    Attributes:
        largest: Largest excess of any step, in the unit of the quantity; zero if none exceeds the
            limit.
        mean: Mean excess of the violating steps; zero if there are none.
        integral: Mean over the episodes of the excess summed over time, in the unit times seconds.
    """

    largest: float
    mean: float
    integral: float


def violation_depth(
    excess: Float[ArrayLike, "episode time"],
    mask: Bool[ArrayLike, "episode time"] | None = None,
    *,
    dt: float,
) -> Depth:
    """Size of violations; :func:`violation_statistics` gives their frequency and duration.

    Args:
        excess: Quantity minus its limit, positive where violated; NaN counts as infinite.
        mask: False where an episode has no step.
        dt: Length of one step in seconds.

    Returns:
        The depths.

    Raises:
        ValueError: If ``excess`` is not two-dimensional or ``mask`` has another shape.
    """
    excess, valid = _with_mask("excess", np.asarray(excess, np.float64), mask)
    # An excess that cannot be computed counts as infinite, but not in padding.
    over = np.where(valid, np.maximum(np.where(np.isnan(excess), np.inf, excess), 0), 0)
    total = float(over.sum())
    return Depth(
        largest=float(over.max(initial=0)),
        mean=total / max(int((over > 0).sum()), 1),
        integral=total * dt / max(int(valid.any(axis=1).sum()), 1),
    )


def _with_mask(
    name: str, values: np.ndarray, mask: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """The values and which of them count; raises an error if a shape is wrong."""
    if values.ndim != 2:
        raise ValueError(f"{name} must have shape (episode, time), got {values.shape}")
    valid = np.ones(values.shape, bool) if mask is None else np.asarray(mask, bool)
    if valid.shape != values.shape:
        raise ValueError(f"mask has shape {valid.shape}; expected {values.shape}")
    return values, valid


def _exact_interval(count: int, total: int, level: float) -> Interval:
    """Clopper and Pearson's; without trials it is [0, 1], and the estimate NaN."""
    from scipy.special import betaincinv  # Imported here: slow, and only needed for reports.

    tail = (1 - level) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    numbers: Any = count / total if total else float("nan"), low, high
    return Interval(*numbers)


def _longest_run(violated: np.ndarray) -> int:
    index = np.broadcast_to(np.arange(violated.shape[1]), violated.shape)
    # The last step without a violation up to each step; the distance to it is the length so far.
    last_clear = np.maximum.accumulate(np.where(violated, -1, index), axis=1)
    return int((index - last_clear).max(initial=0))
