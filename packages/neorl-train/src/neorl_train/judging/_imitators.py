"""Baselines without learning that are fitted to the log: the mean action and a straight line."""

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import jax.numpy as jnp
import numpy as np

from neorl_core import Policy, Spec, Transition, highs, lows
from neorl_core.control import ConstantPolicy, StateFeedback
from neorl_train.judging._results import LINE, MEAN

ROWS_AT_ONCE = 65_536


class LoggedActions(Protocol):
    """Rows in memory or in a file, read for their observations and actions."""

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions, one block at a time."""
        ...


Training: TypeAlias = LoggedActions | Transition


def classical_imitators(training: Training, spec: Spec) -> dict[str, Policy]:
    """Baselines without learning: the mean logged action, and the best linear feedback.

    Args:
        training: Logged rows on the host, or in their file; read one block at a time.
        spec: Action channels with their ranges.

    Returns:
        ``"mean action"``, and ``"linear feedback"``: least squares of the logged action on the
        observation, clipped to the range.
    """
    obs_mean, action_mean, slope = _least_squares(training)
    ends = [jnp.asarray(end, jnp.float32) for end in (lows(spec.action), highs(spec.action))]
    numbers = [jnp.asarray(x, jnp.float32) for x in (-slope.T, obs_mean, action_mean)]
    return {
        MEAN: ConstantPolicy(numbers[2]),
        LINE: StateFeedback(*numbers, *ends),
    }


def _least_squares(training: Training) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean observation, mean action and the slope between them, by QR block after block."""
    count, sums = 0, []
    for obs, action in _actions(training):
        count += len(obs)
        sums.append([part.sum(axis=0, dtype=np.float64) for part in (obs, action)])
    obs_mean, action_mean = (np.sum(part, axis=0) / count for part in zip(*sums, strict=True))
    upper: Any = np.zeros((0, len(obs_mean) + len(action_mean)))
    for obs, action in _actions(training):
        block = np.concatenate([obs - obs_mean, action - action_mean], axis=1)
        upper = np.linalg.qr(np.concatenate([upper, block]), mode="r")
    # The cut-off of lstsq for all rows, not just for the few rows of the factor.
    rcond = np.finfo(np.float64).eps * max(count, len(obs_mean))
    left, right = upper[:, : len(obs_mean)], upper[:, len(obs_mean) :]
    return obs_mean, action_mean, np.linalg.lstsq(left, right, rcond=rcond)[0]


def _actions(training: Training) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if not isinstance(training, Transition):
        yield from training.actions()
        return
    obs, action = np.asarray(training.obs), np.asarray(training.action)
    for start in range(0, len(obs), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        yield obs[block], action[block]
