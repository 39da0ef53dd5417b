"""Whether a log contains evidence of the effect of other actions."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from neorl_agents.models import LogRows
from neorl_agents.models._log_rows import histories
from neorl_core import Spec, highs, lows

LEAST = 1e-4
"""Smallest free fraction of an action's variance: a hundredth of its standard deviation."""
SATURATED = 0.99
"""Fraction of the rows at one end of its range above which an action counts as saturated."""
ROWS = 50_000
"""Largest number of rows that are used."""


class Excitation(NamedTuple):
    """How freely every action moved in a log.

    Attributes:
        free: Fraction of its variance that does not follow linearly from the measurements, the
            earlier actions and the other actions, which a model also reads; 0 if it never moves.
        at_end: Largest fraction of the rows that it spent at the same end of its range.
        names: Names of the actions.
    """

    free: Float[np.ndarray, " act"]
    at_end: Float[np.ndarray, " act"]
    names: tuple[str, ...]

    @property
    def least(self) -> float:
        """The smallest free fraction; zero if an action is saturated."""
        return float(np.where(self.at_end > SATURATED, 0.0, self.free).min())

    @property
    def required(self) -> float:
        """The free fraction that every action must exceed."""
        return LEAST

    @property
    def suffices(self) -> bool:
        """Whether every action moved independently."""
        return self.least > self.required

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for every action whose effect the log does not show."""
        warnings = []
        for name, free, share in zip(self.names, self.free, self.at_end, strict=True):
            if share > SATURATED:
                warnings.append(
                    f"{name} is at the same end of its range in {share:.1%} of the rows"
                )
            elif free == 0:
                warnings.append(f"{name} is constant")
            elif free <= LEAST:
                warnings.append(
                    f"{name} is almost determined by the measurements and the other actions: only "
                    f"a fraction {free:.1g} of its variance is independent of them"
                )
        return tuple(warnings)


def excitation(rows: LogRows, spec: Spec, history: int) -> Excitation:
    """How freely every action of a log moved.

    If a controller computes actions exactly from measurements, their effect cannot be distinguished
    from that of the measurements.

    Args:
        rows: The log.
        spec: Its channels.
        history: Number of past steps that the plant model reads.

    Returns:
        One number per action.

    Source: Ljung, System identification (1999), section 13.4 on data from closed loops.
    """
    indices = np.arange(len(rows.start))[:: max(1, len(rows.start) // ROWS)]
    obs_rows, action_rows = histories(rows, indices, history)
    action = rows.action[indices].astype(np.float64)
    # The action before the first row of an episode is not known; its place holds the first action.
    inside = indices > rows.start[indices]
    if inside.sum() > action.shape[1] * history + 2:
        obs_rows, action_rows, action = obs_rows[inside], action_rows[inside], action[inside]
    past = [
        rows.obs[obs_rows].reshape(len(action), -1),
        rows.action[action_rows].reshape(len(action), -1),
    ]
    low, high = (np.asarray(ends(spec.action)) for ends in (lows, highs))
    near = 1e-6 * (high - low)
    at_end = np.maximum((action <= low + near).mean(axis=0), (action >= high - near).mean(axis=0))
    free = [
        _free_fraction(np.concatenate([*past, np.delete(action, i, axis=1)], axis=1), action[:, i])
        for i in range(action.shape[1])
    ]
    return Excitation(np.asarray(free), at_end, tuple(channel.name for channel in spec.action))


def _free_fraction(regressors: Any, action: np.ndarray) -> float:
    """Fraction of an action's variance that the other columns leave in a least-squares fit."""
    if np.ptp(action) == 0:
        return 0.0
    regressors = regressors.astype(np.float64)
    scale = regressors.std(axis=0)
    inputs = (regressors - regressors.mean(axis=0)) / np.where(scale > 0, scale, 1)
    centred = action - action.mean()
    residual = centred - inputs @ np.linalg.lstsq(inputs, centred, rcond=1e-8)[0]
    return float(residual.var() / centred.var())
