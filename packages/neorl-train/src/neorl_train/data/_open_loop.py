"""Detects from a log that its plant is unstable while the actions are constant."""

import math
from typing import Any

import numpy as np

from neorl_envs import Dataset

# The numbers were set by hand; the loops of test_open_loop.py are on the right side of them. On the
# logs of four plants (tools/studies/tables/choice/log_thresholds.py) none is reported, nor with
# N_PARTS, ROWS_PER_COEFFICIENT, MAX_FRACTION or MAX_STEPS halved or doubled.
N_PARTS = 4
"""Parts of the log that must agree; the parts of a stable plant with a slow mode rarely do."""
MAX_ROWS = 100_000
"""Largest number of rows that are used; it only bounds the time."""
ROWS_PER_COEFFICIENT = 10
"""Smallest number of rows of a part for every coefficient of one output."""
MAX_FRACTION, MAX_STEPS = 0.25, 500
"""A doubling time above this fraction of an episode, or above these steps, is not reported."""


def doubling_steps(dataset: Dataset) -> float | None:
    """The number of steps in which a deviation doubles while the actions are constant.

    A linear model of one step, ``x_next = A x + B u + c``, is fitted by least squares to each of
    four parts of the log. If every ``A`` has an eigenvalue above one, the slowest of the four
    growths is returned. Feedback in the log does not hide such a mode as long as the actions also
    moved for other reasons; if they did not, ``A`` is not determined, and the result is ``None``.

    Args:
        dataset: Complete log.

    Returns:
        The steps; ``None`` if the log does not show such a mode, or only one so slow that it
        hardly matters within an episode.
    """
    columns: Any = dataset.transitions
    rows = np.flatnonzero(np.asarray(columns.mask))
    rows = rows[:: max(1, -(-len(rows) // MAX_ROWS))]
    obs, action, next_obs = (
        np.asarray(column[rows], np.float64)
        for column in (columns.obs, columns.action, columns.next_obs)
    )
    finite = np.logical_and.reduce(np.isfinite(np.hstack([obs, action, next_obs])), axis=1)
    obs, action, next_obs = obs[finite], action[finite], next_obs[finite]
    n_coefficients = dataset.spec.n_obs + dataset.spec.n_action + 1
    if len(obs) < N_PARTS * ROWS_PER_COEFFICIENT * n_coefficients:
        return None
    parts = zip(*(np.array_split(x, N_PARTS) for x in (obs, action, next_obs)), strict=True)
    radius = min(_spectral_radius(*part) for part in parts)
    if radius <= 1:
        return None
    steps = math.log(2) / math.log(radius)
    limit = min(MAX_STEPS, MAX_FRACTION * float(dataset.episode_lengths.mean()))
    return steps if steps <= limit else None


def _spectral_radius(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray) -> float:
    """The largest absolute eigenvalue of ``A``, fitted to columns of unit standard deviation."""
    inputs = np.concatenate([obs, action], axis=1)
    spread = inputs.std(axis=0)
    moving = spread > 1e-9 * np.abs(inputs).max(axis=0)
    moving_obs = moving[: obs.shape[1]]
    if not moving_obs.any():
        return 0.0
    mean, spread = inputs.mean(axis=0), np.where(moving, spread, 1.0)
    design = ((inputs - mean) / spread)[:, moving]
    n_obs = len(moving_obs)
    target = ((next_obs - mean[:n_obs]) / spread[:n_obs])[:, moving_obs]
    design = np.concatenate([design, np.ones((len(design), 1))], axis=1)
    weights = np.linalg.lstsq(design, target, rcond=None)[0]
    return float(np.abs(np.linalg.eigvals(weights[: moving_obs.sum()].T)).max())


def constant_fallback_warnings(dataset: Dataset) -> list[str]:
    """Warns of a fallback with constant actions, if the log shows that the plant needs feedback.

    Args:
        dataset: Complete log.

    Returns:
        One sentence; none if the log does not show that the plant needs feedback.
    """
    steps = doubling_steps(dataset)
    if steps is None:
        return []
    return [
        "according to a linear model of the log, the plant is unstable while its actions are "
        f"constant: a deviation doubles in about {steps:.0f} steps ({steps * dataset.spec.dt:.3g} "
        "s). The fallback of this run holds constant actions, so the plant would leave its "
        "operating point whenever the policy gives no valid action; use a controller as the "
        "fallback, for example with "
        "`--classical.controllers pid --fallback.kind classical --fallback.controller pid`"
    ]
