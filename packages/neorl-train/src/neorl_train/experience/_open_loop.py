"""Detects from a log that its plant leaves its operating point if the actions are held."""

import math
from typing import Any

import numpy as np

from neorl_envs import Dataset

PARTS = 4
"""Parts of the log that must agree; the parts of a stable plant with a slow mode rarely do."""
MOST_ROWS = 100_000
ROWS_A_COEFFICIENT = 10
"""Fewest rows of a part for every coefficient of one output."""
SHARE, LONGEST = 0.25, 500
"""Growth that takes more than this share of an episode, or more steps, is not reported."""


def doubling_steps(dataset: Dataset) -> float | None:
    """The number of steps in which a deviation doubles if the actions are held.

    A linear model of one step, ``x_next = A x + B u + c``, is fitted by least squares to each of
    four parts of the log. If every ``A`` has an eigenvalue above one, the slowest of the four
    growths is returned. Feedback in the log does not hide such a mode as long as the actions also
    moved for other reasons; if they did not, ``A`` is not determined, and nothing is found.

    Args:
        dataset: Complete log.

    Returns:
        The steps; ``None`` if the plant does not show such a mode, or only one so slow that it
        hardly matters within an episode.
    """
    columns: Any = dataset.transitions
    rows = np.flatnonzero(np.asarray(columns.mask))
    rows = rows[:: max(1, -(-len(rows) // MOST_ROWS))]
    obs, action, after = (
        np.asarray(column[rows], np.float64)
        for column in (columns.obs, columns.action, columns.next_obs)
    )
    known = np.logical_and.reduce(np.isfinite(np.hstack([obs, action, after])), axis=1)
    obs, action, after = obs[known], action[known], after[known]
    width = dataset.spec.n_obs + dataset.spec.n_action + 1
    if len(obs) < PARTS * ROWS_A_COEFFICIENT * width:
        return None
    radius = min(
        _radius(*part)
        for part in zip(*(np.array_split(x, PARTS) for x in (obs, action, after)), strict=True)
    )
    if radius <= 1:
        return None
    steps = math.log(2) / math.log(radius)
    return steps if steps <= min(LONGEST, SHARE * float(dataset.episode_lengths.mean())) else None


def _radius(obs: np.ndarray, action: np.ndarray, after: np.ndarray) -> float:
    """The largest absolute eigenvalue of ``A``, in units in which each column has spread one."""
    inputs = np.concatenate([obs, action], axis=1)
    spread = inputs.std(axis=0)
    moving = spread > 1e-9 * np.abs(inputs).max(axis=0)
    seen = moving[: obs.shape[1]]
    if not seen.any():
        return 0.0
    mean, spread = inputs.mean(axis=0), np.where(moving, spread, 1.0)
    design = ((inputs - mean) / spread)[:, moving]
    ahead = ((after - mean[: len(seen)]) / spread[: len(seen)])[:, seen]
    design = np.concatenate([design, np.ones((len(design), 1))], axis=1)
    weights = np.linalg.lstsq(design, ahead, rcond=None)[0]
    return float(np.abs(np.linalg.eigvals(weights[: seen.sum()].T)).max())


def held_fallback_warnings(dataset: Dataset) -> list[str]:
    """A warning about a fallback that holds an action, if the plant needs feedback.

    Args:
        dataset: Complete log.

    Returns:
        One sentence; none if the plant does not show that it needs feedback.
    """
    steps = doubling_steps(dataset)
    if steps is None:
        return []
    return [
        "by a linear model of the log the plant is unstable while its actions are held: a "
        f"deviation doubles in about {steps:.0f} steps ({steps * dataset.spec.dt:.3g} s). The "
        "fallback of this run holds constant actions, so the plant would leave its operating point "
        "whenever the policy gives no valid action; let a controller take over, for example with "
        "`--classical.controllers pid --fallback.kind classical --fallback.controller pid`"
    ]
