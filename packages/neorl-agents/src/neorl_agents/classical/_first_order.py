"""First-order-plus-dead-time models of single loops, from a log."""

from typing import NamedTuple

import numpy as np

from neorl_agents.classical._log import Log
from neorl_core import InputError

POLES = np.unique(np.concatenate([np.linspace(0.0, 0.9, 19), 1 - np.logspace(-1, -4, 37), [1.0]]))
REFINEMENTS = 24
LEAST_ROWS = 16


class FirstOrderModel(NamedTuple):
    """``y_{t+h} = pole^h y_t + gain (u_{t-delay} pole^(h-1) + ...) + offset (1 + pole + ...)``.

    Attributes:
        pole: Pole of the sampled model, from 0 to 1; 1 is an integrating loop.
        gain: What one unit of input adds in one period, units of output per unit of input.
        offset: What the output moves by itself in one period, units of output.
        delay: Dead time in whole periods.
        share: Part of the variance of the output's moves over ``steps`` periods that the model
            explains (R2), 1 at best.
        steps: Periods that it was fitted to predict ahead.
        dt: Period in seconds.
    """

    pole: float
    gain: float
    offset: float
    delay: int
    share: float
    steps: int
    dt: float

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
        """Dead time in seconds, with the half period by which a held input lags on average."""
        return (self.delay + 0.5) * self.dt

    def holding(self, output: float) -> float:
        """The input that keeps the output where it is."""
        return ((1 - self.pole) * output - self.offset) / self.gain


def identify_first_order(
    log: Log, output: int, act: int, *, dt: float, longest: int
) -> FirstOrderModel:
    """Fits one loop by the error of predictions ``2 longest + 10`` periods ahead.

    For every pole of a grid and every dead time the gain is a linear least squares,
    ``y_{t+h} - p^h y_t = gain s_t(p, delay) + offset (1 + ... + p^(h-1))``, with a smaller ``h``
    where episodes are short; the pair that leaves least is refined by golden section. Far
    predictions keep noise of the measurement, which one period ahead looks like a fast pole, from
    hiding a slow plant. Everything is a ratio of moves of the log, so units do not matter.

    Args:
        log: The log; its inputs must have moved.
        output: Index of the controlled observation.
        act: Index of the manipulated action.
        dt: Period in seconds.
        longest: Longest dead time to try, in periods.

    Raises:
        InputError: If pieces of the log are too short, or input or output never moved.
    """
    ahead = max(1, min(2 * longest + 10, int(log.age.max()) - longest - LEAST_ROWS))
    y, u = log.next_obs[:, output], log.action[:, act]
    rows = np.flatnonzero(log.age >= ahead + longest)
    if len(rows) < LEAST_ROWS:
        raise InputError(
            f"pieces of the log must be longer than {longest + LEAST_ROWS} rows to find a dead "
            f"time of up to {longest} periods; shorten longest_delay or record longer"
        )
    for name, column in (("output", y), ("input", u)):
        if np.ptp(column[rows]) <= 1e-12 * np.max(np.abs(column)):
            raise InputError(f"the {name} of the loop never moved in the log; excite it")
    problem = _Problem(y[rows], y[rows - ahead], u, rows, ahead, longest)
    left = np.array([problem.residuals(pole) for pole in POLES])
    place, delay = np.unravel_index(int(np.argmin(left)), left.shape)
    around = POLES[max(place - 1, 0)], POLES[min(place + 1, len(POLES) - 1)]
    pole = _golden(lambda pole: problem.residuals(pole)[delay], *around)
    if problem.residuals(1.0)[delay] <= (1 + 1e-6) * problem.residuals(pole)[delay]:
        pole = 1.0
    gain, offset, rest = problem.fit(pole, int(delay))
    moves = np.var(y[rows] - y[rows - ahead])
    share = 1 - rest / moves
    return FirstOrderModel(pole, gain, offset, int(delay), float(share), ahead, dt)


class _Problem(NamedTuple):
    """Predictions over ``ahead`` periods that end in ``rows``."""

    later: np.ndarray
    now: np.ndarray
    u: np.ndarray
    rows: np.ndarray
    ahead: int
    longest: int

    def fit(self, pole: float, delay: int) -> tuple[float, float, float]:
        """Gain, offset and mean square of what is left."""
        moved = self._inputs(pole)[delay]
        target = self.later - pole**self.ahead * self.now
        x, y = moved - moved.mean(), target - target.mean()
        power = x @ x
        gain = (x @ y) / power if power > 0 else 0.0
        rest = float(np.mean((y - gain * x) ** 2))
        periods = float(np.sum(pole ** np.arange(self.ahead)))
        return float(gain), float(target.mean() - gain * moved.mean()) / periods, rest

    def residuals(self, pole: float) -> np.ndarray:
        """Mean square of what every dead time leaves."""
        moved = self._inputs(pole)
        target = self.later - pole**self.ahead * self.now
        x = moved - moved.mean(axis=1, keepdims=True)
        y = target - target.mean()
        power, shared = np.sum(x * x, axis=1), x @ y
        explained = np.divide(shared**2, power, out=np.zeros_like(power), where=power > 0)
        return (y @ y - explained) / len(y)

    def _inputs(self, pole: float) -> np.ndarray:
        """What the inputs of the periods add up to, for every dead time."""
        # What reaches over the start of a piece is in rows that are not asked for.
        summed = np.convolve(self.u, pole ** np.arange(self.ahead))[: len(self.u)]
        return summed[self.rows[None] - np.arange(self.longest + 1)[:, None]]


def _golden(function, low: float, high: float) -> float:
    """Where a function of one number is least in an interval."""
    ratio = (np.sqrt(5) - 1) / 2
    inner, outer = high - ratio * (high - low), low + ratio * (high - low)
    at_inner, at_outer = function(inner), function(outer)
    for _ in range(REFINEMENTS):
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - ratio * (high - low)
            at_inner = function(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + ratio * (high - low)
            at_outer = function(outer)
    return float((low + high) / 2)
