"""The first-order lag and the dead time that explain an output best, behind a whitening filter."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from neorl_agents.classical._log import Log
from neorl_agents.classical.lags._regression import regress_on_lags

POLES = np.unique(np.concatenate([np.linspace(0.0, 0.9, 19), 1 - np.logspace(-1, -4, 37), [1.0]]))
POLE_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class LagSearch:
    """Errors of ``A(q) (y_t - gain sum_k pole^k u_{t-1-delay-k})`` for every pole and dead time.

    ``A`` is the autoregression of a long ARX model, so that what is left is white whether it comes
    from noise of the measurement or from a load that drifts. What the plant was at before a piece
    began, and a constant load, are taken out of all rows.

    Attributes:
        output: Filtered output, shape ``(row,)``.
        input: Filtered input of all rows of the log, zero where a filter reaches over a start.
        age: Rows of its piece before each row of the log.
        lags: Row of the log by dead time and row of ``output``.
        since: Rows of its piece before each row of ``output``.
        first: Rows of ``output`` with which a piece begins.
    """

    output: np.ndarray
    input: np.ndarray
    age: np.ndarray
    lags: np.ndarray
    since: np.ndarray
    first: np.ndarray

    def best(self) -> tuple[float, int, float, float]:
        """Pole, dead time in periods, gain, and the standard error of the gain as part of it.

        A pole that might as well be 1 is 1.
        """
        errors = np.array([self.errors(pole)[0] for pole in POLES])
        place, delay = np.unravel_index(int(np.argmin(errors)), errors.shape)
        around = POLES[max(place - 1, 0)], POLES[min(place + 1, len(POLES) - 1)]
        pole = _refined(lambda pole: self.errors(pole)[0][delay], *around)
        # As likely, by the ratio of likelihoods, with one number less.
        if self.errors(1.0)[0][delay] <= (1 + 1 / len(self.output)) * self.errors(pole)[0][delay]:
            pole = 1.0
        rest, gain, power = (float(one[delay]) for one in self.errors(pole))
        deviation = np.sqrt(max(rest, 0.0) / len(self.output) / power) if power > 0 else np.inf
        return pole, int(delay), gain, float(deviation / abs(gain)) if gain else np.inf

    def error(self, pole: float, delay: int, gain: float) -> float:
        """Root mean square of what a given model leaves: its error one period ahead."""
        rest, best, power = (one[delay] for one in self.errors(pole))
        squares = rest + (gain - best) ** 2 * power
        return float(np.sqrt(max(squares, 0.0) / len(self.output)))

    def errors(self, pole: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sum of squares, best gain, and power of the input, for every dead time."""
        rest, ramp = self._rest_and_ramp(pole)
        output = _without(self._within(self.output, rest), ramp)
        moved = _without(self._within(self._moved(pole)[self.lags], rest), ramp)
        power, shared = np.sum(moved * moved, axis=1), moved @ output
        gain = np.divide(shared, power, out=np.zeros_like(power), where=power > 0)
        return output @ output - gain * shared, gain, power

    def _moved(self, pole: float) -> np.ndarray:
        """``sum_k pole^k u_{t-k}`` within a piece, by doubling the number of terms."""
        moved, terms, weight = self.input, 1, pole
        while terms <= self.age.max():
            earlier = np.append(np.zeros(terms), moved[:-terms])
            moved = moved + np.where(self.age >= terms, weight * earlier, 0.0)
            terms, weight = 2 * terms, weight * weight
        return moved

    def _rest_and_ramp(self, pole: float) -> tuple[np.ndarray, np.ndarray]:
        """What a state before each piece and a constant load leave, as columns of length one."""
        rest = pole**self.since
        rest = rest / np.repeat(np.sqrt(np.add.reduceat(rest**2, self.first)), self._sizes())
        ramp = self.since if pole >= 1 else (1 - pole**self.since) / (1 - pole)
        ramp = self._within(ramp, rest)
        length = float(np.sqrt(ramp @ ramp))
        return rest, ramp / length if length > 1e-9 * np.sqrt(len(ramp)) else 0 * ramp

    def _within(self, columns: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """Columns without their part along ``rest`` in each piece."""
        parts = np.add.reduceat(columns * rest, self.first, axis=-1)
        return columns - rest * np.repeat(parts, self._sizes(), axis=-1)

    def _sizes(self) -> np.ndarray:
        return np.diff(np.append(self.first, len(self.since)))


def whitening_filter(log: Log, output: int, act: int, *, order: int, longest: int) -> np.ndarray:
    """Coefficients of ``A``, the newest first: the autoregression of a long ARX model.

    Args:
        log: The log.
        output: Index of the controlled observation.
        act: Index of the manipulated action.
        order: Number of past outputs.
        longest: Longest dead time in periods; the model has every input up to it.
    """
    past = regress_on_lags(log, output, act, outputs=order, inputs=longest + 1).a
    return np.append(1.0, -past)


def lag_search(
    log: Log, output: int, act: int, whitening: np.ndarray, *, longest: int
) -> LagSearch:
    """A loop's output and input behind a whitening filter.

    Args:
        log: The log.
        output: Index of the controlled observation.
        act: Index of the manipulated action.
        whitening: Result of :func:`whitening_filter`.
        longest: Longest dead time in periods; a piece counts from as many rows on as it and the
            filter reach back.

    Returns:
        The search over poles and dead times.
    """
    order = len(whitening) - 1
    y, u, age = log.next_obs[:, output], log.action[:, act], log.age
    rows = np.flatnonzero(age >= order + longest)
    filtered = np.convolve(u - u.mean(), whitening)[: len(u)]
    return LagSearch(
        output=np.convolve(y - y.mean(), whitening)[: len(y)][rows],
        input=np.where(age >= order, filtered, 0.0),
        age=age,
        lags=rows[None] - np.arange(longest + 1)[:, None],
        since=(age[rows] - (order + longest)).astype(float),
        first=np.flatnonzero(np.diff(log.start[rows], prepend=-1)),
    )


def _without(columns: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Columns without their part along one of length one."""
    return columns - np.multiply.outer(columns @ along, along)


def _refined(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one number is least in an interval."""
    from scipy.optimize import minimize_scalar  # slow, and of fitting alone

    minimum: Any = minimize_scalar(
        function, bounds=(low, high), method="bounded", options={"xatol": POLE_TOLERANCE}
    )
    return float(minimum.x)
