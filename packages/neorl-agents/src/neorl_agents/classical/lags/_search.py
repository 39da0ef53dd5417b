"""The first-order lag and dead time that best explain an output, after a whitening filter."""

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

    ``A`` is the autoregression of a long ARX model, so that the residual is white whether it comes
    from measurement noise or from a drifting load. The effects of the state before a piece and of a
    constant load are removed from all rows.

    Attributes:
        output: Filtered output, shape ``(row,)``.
        input: Filtered input of all rows of the log, zero where a filter reaches past a start.
        age: Number of rows before each row of the log in its piece.
        lags: Row of the log by dead time and row of ``output``.
        since: Number of rows before each row of ``output`` in its piece.
        first: Rows of ``output`` with which a piece begins.
    """

    output: np.ndarray
    input: np.ndarray
    age: np.ndarray
    lags: np.ndarray
    since: np.ndarray
    first: np.ndarray

    def best(self) -> tuple[float, int, float, float]:
        """Pole, dead time in periods, gain, and the relative standard error of the gain.

        If a pole of 1 fits as well as the best pole, the pole is 1.
        """
        errors = np.array([self.errors(pole)[0] for pole in POLES])
        index, delay = np.unravel_index(int(np.argmin(errors)), errors.shape)
        bracket = POLES[max(index - 1, 0)], POLES[min(index + 1, len(POLES) - 1)]
        pole = _refine(lambda pole: self.errors(pole)[0][delay], *bracket)
        # By the likelihood ratio, a pole of 1 is as likely, with one fewer free parameter.
        if self.errors(1.0)[0][delay] <= (1 + 1 / len(self.output)) * self.errors(pole)[0][delay]:
            pole = 1.0
        free_response, gain, power = (float(one[delay]) for one in self.errors(pole))
        deviation = (
            np.sqrt(max(free_response, 0.0) / len(self.output) / power) if power > 0 else np.inf
        )
        return pole, int(delay), gain, float(deviation / abs(gain)) if gain else np.inf

    def error(self, pole: float, delay: int, gain: float) -> float:
        """Root mean square of a given model's residual, which is its one-step error."""
        free_response, best, power = (one[delay] for one in self.errors(pole))
        squares = free_response + (gain - best) ** 2 * power
        return float(np.sqrt(max(squares, 0.0) / len(self.output)))

    def errors(self, pole: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Residual sum of squares, best gain, and power of the input, for every dead time."""
        free_response, ramp = self._free_response_and_ramp(pole)
        output = _remove(self._project(self.output, free_response), ramp)
        response = _remove(
            self._project(self._filtered_input(pole)[self.lags], free_response), ramp
        )
        power, correlation = np.sum(response * response, axis=1), response @ output
        gain = np.divide(correlation, power, out=np.zeros_like(power), where=power > 0)
        return output @ output - gain * correlation, gain, power

    def _filtered_input(self, pole: float) -> np.ndarray:
        """``sum_k pole^k u_{t-k}`` within a piece, by doubling the number of terms."""
        response, terms, weight = self.input, 1, pole
        while terms <= self.age.max():
            earlier = np.append(np.zeros(terms), response[:-terms])
            response = response + np.where(self.age >= terms, weight * earlier, 0.0)
            terms, weight = 2 * terms, weight * weight
        return response

    def _free_response_and_ramp(self, pole: float) -> tuple[np.ndarray, np.ndarray]:
        """Effects of a state before each piece and of a constant load, as columns of length one."""
        free_response = pole**self.since
        free_response = free_response / np.repeat(
            np.sqrt(np.add.reduceat(free_response**2, self.first)), self._sizes()
        )
        ramp = self.since if pole >= 1 else (1 - pole**self.since) / (1 - pole)
        ramp = self._project(ramp, free_response)
        length = float(np.sqrt(ramp @ ramp))
        return free_response, ramp / length if length > 1e-9 * np.sqrt(len(ramp)) else 0 * ramp

    def _project(self, columns: np.ndarray, free_response: np.ndarray) -> np.ndarray:
        """Columns without their component along ``rest`` in each piece."""
        parts = np.add.reduceat(columns * free_response, self.first, axis=-1)
        return columns - free_response * np.repeat(parts, self._sizes(), axis=-1)

    def _sizes(self) -> np.ndarray:
        return np.diff(np.append(self.first, len(self.since)))


def whitening_filter(log: Log, output: int, act: int, *, order: int, longest: int) -> np.ndarray:
    """Coefficients of ``A``, the newest first: the autoregression of a long ARX model.

    Args:
        log: The log.
        output: Index of the controlled observation.
        act: Index of the manipulated action.
        order: Number of past outputs.
        longest: Longest dead time in periods; the model includes every input up to it.
    """
    past = regress_on_lags(log, output, act, outputs=order, inputs=longest + 1).a
    return np.append(1.0, -past)


def lag_search(
    log: Log, output: int, act: int, whitening: np.ndarray, *, longest: int
) -> LagSearch:
    """A loop's output and input after a whitening filter.

    Args:
        log: The log.
        output: Index of the controlled observation.
        act: Index of the manipulated action.
        whitening: Result of :func:`whitening_filter`.
        longest: Longest dead time in periods; rows at the start of a piece, within reach of it
            and of the filter, are not used.

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


def _remove(columns: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Columns without their component along a column of length one."""
    return columns - np.multiply.outer(columns @ along, along)


def _refine(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimiser of a scalar function in an interval."""
    from scipy.optimize import minimize_scalar  # Imported here: slow, and only needed for fits.

    minimum: Any = minimize_scalar(
        function, bounds=(low, high), method="bounded", options={"xatol": POLE_TOLERANCE}
    )
    return float(minimum.x)
