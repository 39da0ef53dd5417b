"""Relations between actions and observations: delays, correlation, determinism of the behaviour."""

from collections.abc import Set
from typing import Any

import numpy as np

from neorl_core import Spec
from neorl_envs.inspection._channels import Sample

LONGEST_DELAY = 60
"""Longest delay that is searched for, steps."""
SIGNIFICANT = 5.0
"""A correlation is significant if it exceeds this many times 1 / sqrt(rows)."""
BEGINS = 0.5
"""A response begins at this fraction of the largest correlation."""
OWN = 0.2
"""Share of an action's moves that nothing logged before explains, from which they are its own: made
by hand or by a test, and not by a controller that follows the measurements."""
EXPLAINING_ROWS = 5
"""Number of rows, including the current one, whose observations may explain an action's change."""
NEIGHBOURS = 1500


def relations(sample: Sample, spec: Spec, setpoints: Set[str] = frozenset()) -> dict[str, Any]:
    """Report entries for every pair of a manipulated and an observed variable.

    No observation in ``setpoints`` is said to show an action.
    """
    return {
        "delays": [row for row in delays(sample, spec) if row["obs"] not in setpoints],
        "correlation": correlation(sample).tolist(),
        "behaviour": behaviour(sample, spec),
    }


def delays(sample: Sample, spec: Spec) -> list[dict[str, Any]]:
    """Delays after which changes of an action begin to show in an observation.

    Differences between rows are used instead of the signals, which removes slow trends. In a closed
    loop, measurement noise moves the action and is gone in the next row, which would look like a
    response one row later. All changes are therefore prewhitened: those of an action are replaced
    by the part that earlier actions and the observations up to the same row do not explain, and
    those of an observation by the part that earlier observations do not explain. The response
    begins at the first lag with at least half the largest correlation and the same sign. The result
    has one entry per significant pair.

    A controller moves an action because something else has moved, so what follows may have the same
    cause. Only an action that mostly moves by itself is said to act (``acts``).

    Source: Box, Jenkins and Reinsel, Time series analysis, 1994, section 11.2 (prewhitening).
    """
    lines = []
    step_u, step_y = (_steps(column, sample.episode) for column in (sample.action, sample.obs))
    known = [_later(step_y, lag) for lag in range(EXPLAINING_ROWS)]
    own = [_later(step_u, lag) for lag in range(1, EXPLAINING_ROWS)]
    moves = step_u
    step_u, step_y = (
        _unexplained_changes(step_u, [*known, *own]),
        _unexplained_changes(step_y, known[1:]),
    )
    for i, action in enumerate(spec.action):
        for j, observed in enumerate(spec.obs):
            answer = _first_lag(step_u[:, i], step_y[:, j])
            if answer is not None:
                lag, strongest, value, rows = answer
                lines.append(
                    {
                        "action": action.name,
                        "obs": observed.name,
                        "delay_s": lag * spec.dt,
                        "strongest_s": strongest * spec.dt,
                        "acts": _own_share(moves[:, i], step_u[:, i]) >= OWN,
                        "correlation": value,
                        "rows": rows,
                    }
                )
    return lines


def _own_share(moves: np.ndarray, unexplained: np.ndarray) -> float:
    """The part of the variance of an action's moves that is its own."""
    both = np.isfinite(moves) & np.isfinite(unexplained)
    whole = float(moves[both].var()) if both.any() else 0.0
    return float(unexplained[both].var()) / whole if whole > 0 else 0.0


def _steps(column: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """Change since the previous row; NaN at the start of an episode."""
    step = np.full_like(column, np.nan)
    step[1:] = np.where((episode[1:] == episode[:-1])[:, None], np.diff(column, axis=0), np.nan)
    return step


def _unexplained_changes(step: np.ndarray, known: list[np.ndarray]) -> np.ndarray:
    """Changes minus their regression on known changes; NaN where these are not available."""
    design = np.concatenate(known, axis=1)
    used = np.isfinite(design).all(axis=1) & np.isfinite(step).all(axis=1)
    if used.sum() <= 2 * design.shape[1]:
        return step
    size = design[used].std(axis=0)
    scaled = design[used] / np.where(size > 0, size, 1)
    residual = np.full_like(step, np.nan)
    moved = step[used]
    residual[used] = moved - scaled @ np.linalg.lstsq(scaled, moved, rcond=None)[0]
    return residual


def _later(column: np.ndarray, rows: int) -> np.ndarray:
    """Shifts a column down, so that each row holds an earlier value."""
    moved = np.full_like(column, np.nan)
    moved[rows:] = column[: len(column) - rows]
    return moved


def _first_lag(action: np.ndarray, observed: np.ndarray) -> tuple[int, int, float, int] | None:
    """Lag at which a response begins, its strongest lag, and correlation and rows there."""
    correlations: dict[int, tuple[float, int]] = {}
    # Steps are NaN at the start of every episode, so a pair spans two episodes only if one of them
    # is shorter than the lag. Such pairs are few and contribute only noise.
    for lag in range(1, min(LONGEST_DELAY, len(action) - 2) + 1):
        u, y = action[:-lag], observed[lag:]
        both = np.isfinite(u) & np.isfinite(y)
        rows = int(both.sum())
        if rows < 30:
            continue
        u, y = u[both] - u[both].mean(), y[both] - y[both].mean()
        scale = np.sqrt((u**2).sum() * (y**2).sum())
        value = float((u * y).sum() / scale) if scale > 0 else 0.0
        if abs(value) > SIGNIFICANT / np.sqrt(rows):
            correlations[lag] = value, rows
    if not correlations:
        return None
    at = max(correlations, key=lambda lag: abs(correlations[lag][0]))
    strongest, rows = correlations[at]
    begins = min(lag for lag, (value, _) in correlations.items() if value / strongest >= BEGINS)
    return begins, at, strongest, rows


def correlation(sample: Sample) -> np.ndarray:
    """Pearson correlation of every action with every observation; zero for a constant."""
    used = np.isfinite(sample.obs).all(axis=1) & np.isfinite(sample.action).all(axis=1)
    action, obs = (_standardise(column[used]) for column in (sample.action, sample.obs))
    return action.T @ obs / max(len(obs), 1)


def _standardise(column: np.ndarray) -> np.ndarray:
    if not len(column):
        return column
    deviation = column.std(axis=0)
    return (column - column.mean(axis=0)) / np.where(deviation > 0, deviation, np.inf)


def behaviour(sample: Sample, spec: Spec) -> list[dict[str, Any]]:
    """Degree to which the observation determines each action.

    ``explained`` is R² of a linear least-squares fit on the observation. ``repeatable`` is one
    minus the mean squared difference between an action and that at the nearest other observation,
    in units of twice the variance: 1 if similar observations get similar actions, 0 if the action
    is independent of the observation. If both are close to 1, a learner can only learn to imitate
    the behaviour. A variable that never moves has no entry.
    """
    used = np.isfinite(sample.obs).all(axis=1) & np.isfinite(sample.action).all(axis=1)
    obs, action = _standardise(sample.obs[used]), sample.action[used]
    if len(obs) < 3:
        return []
    design = np.column_stack([obs, np.ones(len(obs))])
    fitted = design @ np.linalg.lstsq(design, action, rcond=None)[0]
    variance = action.var(axis=0)
    unexplained = ((action - fitted) ** 2).mean(axis=0)
    subset = np.random.default_rng(0).permutation(len(obs))[:NEIGHBOURS]
    nearest = _nearest(obs[subset])
    neighbour_difference = ((action[subset] - action[subset][nearest]) ** 2).mean(axis=0) / 2
    moving = variance > 0
    scale = np.where(moving, variance, 1)
    return [
        {
            "action": channel.name,
            "explained": float(1 - unexplained[i] / scale[i]),
            "repeatable": float(1 - neighbour_difference[i] / scale[i]),
        }
        for i, channel in enumerate(spec.action)
        if moving[i]
    ]


def _nearest(points: np.ndarray) -> np.ndarray:
    """Index of the nearest other point for every point."""
    square = (points**2).sum(axis=1)
    distance = square[:, None] + square[None] - 2 * points @ points.T
    np.fill_diagonal(distance, np.inf)
    return distance.argmin(axis=1)
