"""First-order-plus-dead-time models of single loops, from a log."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from neorl_agents.classical._task import Log
from neorl_core import InputError

# One-step prediction by least squares on lags: rough, but robust to feedback and loads.


class LagModel(NamedTuple):
    """``y_{t+1} = sum_i a_i y_{t-i} + sum_j b_j u_{t-j} + constant``.

    Attributes:
        a: Coefficients of the output, the latest first.
        b: Coefficients of the input, the latest first.
    """

    a: np.ndarray
    b: np.ndarray


def regress_on_lags(
    log: Log, output: int, act: int, *, outputs: int, inputs: int, roughness: float = np.inf
) -> LagModel:
    """Fits a :class:`LagModel`; if the solution is not unique, the scaled one of least norm.

    :func:`neorl_core.linear_systems.identify_arx` fits many outputs but lacks the prior, and the
    least norm that a log without noise needs with this many lags.

    Args:
        log: The log.
        output: Index of the observation.
        act: Index of the action.
        outputs: Number of lags of the output.
        inputs: Number of lags of the input.
        roughness: Expected standard deviation of the second differences of ``b``, in units of
            output per unit of input; infinite for no prior.

    Source: Kitagawa and Gersch, A smoothness priors-state space modeling of time series with trend
    and seasonality, JASA 79, 1984, for the prior.
    """
    rows = np.flatnonzero(log.age >= max(outputs, inputs) - 1)
    y, u = log.obs[:, output], log.action[:, act]
    columns = [y[rows - i] for i in range(outputs)] + [u[rows - j] for j in range(inputs)]
    design, target = np.stack(columns, axis=1), log.next_obs[rows, output]
    design, target = design - design.mean(axis=0), target - target.mean()
    size = np.maximum(np.sqrt(np.mean(design**2, axis=0)), np.finfo(float).tiny)
    coefficients = np.linalg.lstsq(design / size, target, rcond=1e-9)[0] / size
    if np.isfinite(roughness) and inputs > 2:
        noise = float(np.std(target - design @ coefficients))
        curvature = np.diff(np.eye(outputs + inputs)[outputs:], n=2, axis=0) * noise / roughness
        regularised = (
            np.concatenate([design, curvature]) / size,
            np.append(target, np.zeros(len(curvature))),
        )
        coefficients = np.linalg.lstsq(*regularised, rcond=1e-9)[0] / size
    return LagModel(coefficients[:outputs], coefficients[outputs:])


def states_of_lags(
    a: Float[np.ndarray, "lag obs obs"], b: Float[np.ndarray, "held obs act"]
) -> tuple[Float[np.ndarray, "state state"], Float[np.ndarray, "state act"]]:
    """``y_{t+1} = sum_i a_i y_{t-i} + sum_j b_j u_{t-j}`` as ``x_{t+1} = A x_t + B u_t``.

    The states are the past outputs, newest first, and then the past inputs.
    """
    (lags, outputs, _), (held, _, inputs) = a.shape, b.shape
    past, states = lags * outputs, lags * outputs + (held - 1) * inputs
    A, B = np.eye(states, k=-outputs), np.zeros((states, inputs))
    A[:outputs], A[past:] = np.concatenate([*a, *b[1:]], axis=1), 0
    A[past:, past:] = np.eye(states - past, k=-inputs)
    B[:outputs] = b[0]
    B[past : past + inputs] = np.eye(inputs)[: states - past]
    return A, B


# The first-order lag and dead time that best explain an output, after a whitening filter.


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
