"""First-order-plus-dead-time models of single loops, from a log."""

from typing import NamedTuple

import numpy as np

from neorl_agents.classical._log import Log
from neorl_agents.classical.lags import lag_search, whitening_filter
from neorl_core import InputError

LEAST_ROWS = 16
MOST_LAGS = 20
"""Number of terms of the whitening filter, if pieces of the log are long enough."""


class FirstOrderModel(NamedTuple):
    """``y_{t+h} = pole^h y_t + gain (u_{t-delay} pole^(h-1) + ...) + offset (1 + pole + ...)``.

    Attributes:
        pole: Pole of the sampled model, from 0 to 1; 1 is an integrating loop.
        gain: Output change per unit of input in one period, units of output per unit of input.
        offset: Output change in one period without input, units of output.
        delay: Dead time in whole periods.
        share: Fraction of the variance of the output's changes over ``steps`` periods that the
            model predicts (R2): 1 at best, small if loads move the output, and negative if the
            model is worse than predicting no change.
        steps: Number of periods for ``share``.
        dt: Period in seconds.
        gain_error: Relative standard error of the gain, given the pole and the dead time.
    """

    pole: float
    gain: float
    offset: float
    delay: int
    share: float
    steps: int
    dt: float
    gain_error: float = 0.0

    @property
    def time_constant(self) -> float:
        """Time constant in seconds; infinite for an integrating loop."""
        return np.inf if self.pole >= 1 else self.dt / -np.log(max(self.pole, 1e-12))

    @property
    def slope(self) -> float:
        """Initial slope of a step response, units of output per unit of input and second."""
        if self.pole >= 1:
            return self.gain / self.dt
        return self.gain / (1 - self.pole) / self.time_constant

    @property
    def static_gain(self) -> float:
        """Final value of a step response, units of output per unit of input; may be infinite."""
        return np.inf * np.sign(self.gain) if self.pole >= 1 else self.gain / (1 - self.pole)

    @property
    def dead_time(self) -> float:
        """Dead time in seconds, including the average lag of a held input, half a period."""
        return (self.delay + 0.5) * self.dt

    def holding(self, output: float) -> float:
        """The input that holds the output at the given value."""
        return ((1 - self.pole) * output - self.offset) / self.gain


def identify_first_order(
    log: Log, output: int, act: int, *, dt: float, longest: int
) -> FirstOrderModel:
    """Fits one loop by least squares on errors that a filter has whitened.

    A long ARX model of the log separates the input's effect from noise and load: its autoregression
    is the inverse of their model. Output and input are passed through this filter, and pole, dead
    time and gain are fitted to them by least squares, over a grid with a refinement of the pole.
    This way a noisy measurement is not taken for a fast plant, and the response of a logged
    controller to a drifting load is not taken for a plant without dead time. The fit uses only
    ratios of changes in the log, so units do not matter.

    ``dt`` is in seconds, ``longest`` in periods. Raises an ``InputError`` if pieces of the log are
    too short, or input or output never moved.

    Source: Wahlberg, Model reductions of high-order estimated models: the asymptotic ML approach,
    International Journal of Control 49, 1989.
    """
    available = int(log.age.max()) - longest - LEAST_ROWS
    steps, order = max(1, min(2 * longest + 10, available)), filter_order(log, longest)
    y, u = log.next_obs[:, output], log.action[:, act]
    rows = np.flatnonzero(log.age >= max(steps, order) + longest)
    if len(rows) < LEAST_ROWS:
        raise InputError(
            f"episodes of the log must have more than {longest + LEAST_ROWS} rows without a gap to "
            f"estimate a dead time of up to {longest} periods; reduce longest_delay or record "
            "longer episodes"
        )
    for name, column in (("output", y), ("input", u)):
        if np.ptp(column[rows]) <= 1e-12 * np.max(np.abs(column)):
            raise InputError(
                f"the {name} of the loop is constant in the log, so no model can be fitted; record "
                "a log in which it moves, such as a step test"
            )
    whitening = whitening_filter(log, output, act, order=order, longest=longest)
    pole, delay, gain, error = lag_search(log, output, act, whitening, longest=longest).best()
    offset = float(np.mean(y[rows] - pole * y[rows - 1] - gain * u[rows - delay]))
    model = FirstOrderModel(pole, gain, offset, delay, 0.0, steps, dt, error)
    return model._replace(share=_explained_share(model, y, u, rows))


def filter_order(log: Log, longest: int) -> int:
    """Number of terms of the whitening filter that the pieces of a log are long enough for."""
    return max(1, min(MOST_LAGS, int(log.age.max()) - longest - LEAST_ROWS))


def _explained_share(
    model: FirstOrderModel, y: np.ndarray, u: np.ndarray, rows: np.ndarray
) -> float:
    """Fraction of the variance of the changes over ``model.steps`` periods that is predicted."""
    weights = model.pole ** np.arange(model.steps)
    input_effect = np.convolve(u, weights)[rows - model.delay]
    start = y[rows - model.steps]
    residual = y[rows] - model.pole**model.steps * start - model.gain * input_effect
    return float(1 - np.var(residual) / np.var(y[rows] - start))
