"""PID gains that explain the logged actions."""

from typing import NamedTuple

import numpy as np

from neorl_agents.classical._log import Log
from neorl_agents.classical._tuning import PIDGains
from neorl_core import InputError

LEAST_ROWS = 16
LONGEST_HOLD = 30
"""An action that is constant for more rows than this was not set by a loop."""
NEGLIGIBLE = 1e-5
"""A part that moves the action by less than this fraction of its movement is zero: float32 logs
show nothing finer."""


class ImitatedLoop(NamedTuple):
    """One loop as estimated from the log.

    Attributes:
        gains: Gains from least squares.
        bias: Mean action at zero error with an empty integral, in units of the action.
        share: Fraction of the variance of the action within episodes that they explain (R2).
        rows: Number of rows used: inside the action's range, and not held.
        contradiction: Gains of the fit without a constraint on signs if these differ; ``None`` if
            they agree.
    """

    gains: PIDGains
    bias: float
    share: float
    rows: int
    contradiction: PIDGains | None = None


def imitate_loop(
    log: Log,
    measurement: np.ndarray,
    setpoint: np.ndarray,
    action: np.ndarray,
    *,
    limits: tuple[float, float],
    dt: float,
    derivative: bool,
) -> ImitatedLoop:
    """Fits ``u = bias + kp e + ki integral(e) - kd dy/dt`` to the logged actions.

    Least squares with one bias per episode, since the log does not contain the initial integral of
    a loop. Rows at an end of the range are left out, because there the actuator's limit determined
    the action, not the loop. Stretches of more than 30 rows with a constant action are left out
    too, as in manual mode or at a valve stop, and a new bias starts after them. In shorter
    stretches the integral continues like that of a loop without saturation, so a log that is often
    saturated contains little information about ``ki``; ``share`` is then low.

    All gains have the same sign, as in any PID controller: with opposite signs the integral or
    derivative time would be negative. Where least squares gives opposite signs, the parts that
    explain less are left out. A part that contributes less than rounding is zero.

    ``dt`` is in seconds. Raises an ``InputError`` if too few rows are away from the limits, or
    nothing moved in those.

    Source: Ljung, System identification: theory for the user, 1999, chapter 7; one intercept per
    group as in Wooldridge, Econometric analysis of cross section and panel data, 2002, section
    10.5.
    """
    error = setpoint - measurement
    columns = [error, dt * _sums_in_pieces(error, log)]
    if derivative:
        before = np.where(log.age > 0, np.roll(measurement, 1), measurement)
        columns.append(-(measurement - before) / dt)
    low, high = limits
    slack = 1e-4 * (high - low)
    is_held = _is_held(action, log, 1e-6 * (high - low))
    keep = (action > low + slack) & (action < high - slack) & ~is_held
    if keep.sum() < LEAST_ROWS:
        raise InputError(
            f"the action moves inside its range in {int(keep.sum())} rows of the log, but at least "
            f"{LEAST_ROWS} are needed to imitate a PID: saturated or held actions do not show its "
            "gains; tune it from a model instead"
        )
    # After a stretch in which it did not act, the loop continues from an unknown integral.
    resumes = np.append(False, is_held[:-1] & ~is_held[1:])
    piece = np.cumsum((log.age == 0) | resumes)[keep] - 1
    design, target = np.stack(columns, axis=1)[keep], action[keep]
    centred, u = _without_means(design, piece), _without_means(target[:, None], piece)[:, 0]
    scales = np.sqrt(np.mean(centred**2, axis=0))
    if not (np.all(scales > 0) and np.any(u)):
        raise InputError(
            "the action or the control error is constant within every episode, so there is no loop "
            "to imitate; check the setpoint and the pairing of the loop"
        )
    solution, _, rank, _ = np.linalg.lstsq(centred / scales, u, rcond=1e-10)
    if rank < design.shape[1]:
        raise InputError(
            "the proportional, integral and derivative parts cannot be distinguished in the log; "
            "leave out the derivative, or record more changes of the setpoint"
        )
    least = NEGLIGIBLE * float(np.sqrt(np.mean(u**2)))
    free = np.where(np.abs(solution) > least, solution, 0.0)
    weights = _fit_of_one_sign(centred / scales, u, least) / scales
    residual = u - centred @ weights
    bias = float(np.mean(target - design @ weights))
    return ImitatedLoop(
        gains=_gains(weights),
        bias=bias if abs(bias) > 1e-9 * (high - low) else 0.0,
        share=max(0.0, float(1 - residual @ residual / (u @ u))),
        rows=int(keep.sum()),
        contradiction=_gains(free / scales) if free.min() < 0 < free.max() else None,
    )


def _gains(weights: np.ndarray) -> PIDGains:
    kp, ki, *kd = (float(weight) for weight in weights)
    return PIDGains(kp, ki, kd[0] if kd else 0.0, 0.0)


def _fit_of_one_sign(columns: np.ndarray, u: np.ndarray, least: float) -> np.ndarray:
    """Least squares with weights that all have one sign; those below ``least`` are zero."""
    from scipy.optimize import nnls  # Imported here: slow, and only needed for fits.

    signed = [sign * nnls(sign * columns, u)[0] for sign in (1.0, -1.0)]
    best = min(signed, key=lambda weights: float(np.sum((u - columns @ weights) ** 2)))
    return np.where(np.abs(best) > least, best, 0.0)


def _is_held(action: np.ndarray, log: Log, slack: float) -> np.ndarray:
    """Whether the action of every row belongs to a long run of equal actions."""
    moved = np.abs(np.diff(action, prepend=action[0])) > slack
    run = np.cumsum(moved | (log.age == 0))
    return np.bincount(run)[run] > LONGEST_HOLD


def _sums_in_pieces(values: np.ndarray, log: Log) -> np.ndarray:
    """Running sums that start again with every piece, including the current row."""
    total = np.cumsum(values)
    return total - (total[log.start] - values[log.start])


def _without_means(columns: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Columns minus the mean of their group."""
    count = np.bincount(group, minlength=group.max() + 1)
    count = np.maximum(count, 1)
    means = [np.bincount(group, column, minlength=len(count)) / count for column in columns.T]
    return columns - np.stack(means, axis=1)[group]
