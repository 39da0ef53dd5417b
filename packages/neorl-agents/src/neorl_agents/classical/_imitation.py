"""PID gains that explain the logged actions."""

from typing import NamedTuple

import numpy as np

from neorl_agents.classical._log import Log
from neorl_agents.classical._tuning import PIDGains
from neorl_core import InputError

LEAST_ROWS = 16
STANDING_ROWS = 30
"""An action that stands still for more rows than these was not a loop's."""


class ImitatedLoop(NamedTuple):
    """One loop as the log shows it.

    Attributes:
        gains: Gains of least squares.
        bias: Mean action at zero error with an empty integral, in units of the action.
        share: Part of the variance of the action that they explain (R2), episode means aside.
        rows: Rows that entered: away from the ends of the action's range, and not held.
    """

    gains: PIDGains
    bias: float
    share: float
    rows: int


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
    """Fits ``u = bias + kp e + ki integral(e) - kd dy/dt`` to what was done.

    Least squares with one bias an episode, since the integral that a loop begins with is not in
    the log. Rows at an end of the range are left out: there the actuator acted, not the loop; and
    so are stretches of more than 30 rows in which the action stands still, as in manual or at a
    stop of the valve, behind which a bias of its own begins. In shorter ones the integral goes on,
    as that of a loop without saturation would, so a log that is often saturated tells little of
    ``ki``; ``share`` then says so.

    Args:
        log: The log, for its pieces.
        measurement: Controlled variable of every row.
        setpoint: Set-point of every row.
        action: Manipulated variable of every row.
        limits: Ends of the action's range.
        dt: Period in seconds.
        derivative: Whether to fit a derivative part.

    Raises:
        InputError: If too few rows are away from the limits, or nothing moved in them.

    Source: Ljung, System identification: theory for the user, 1999, chapter 7; one intercept a
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
    standing = _standing(action, log, 1e-6 * (high - low))
    keep = (action > low + slack) & (action < high - slack) & ~standing
    if keep.sum() < LEAST_ROWS:
        raise InputError(
            f"only {int(keep.sum())} rows of the log have an action inside its range that moves; a "
            "PID cannot be imitated from saturated or held actions, tune it from a model instead"
        )
    # Behind a stretch in which it did not act the loop goes on from an integral of its own.
    again = np.append(False, standing[:-1] & ~standing[1:])
    piece = np.cumsum((log.age == 0) | again)[keep] - 1
    design, target = np.stack(columns, axis=1)[keep], action[keep]
    within, u = _without_means(design, piece), _without_means(target[:, None], piece)[:, 0]
    size = np.sqrt(np.mean(within**2, axis=0))
    if not (np.all(size > 0) and np.any(u)):
        raise InputError("action or error never moved within an episode; nothing can be imitated")
    solution, _, rank, _ = np.linalg.lstsq(within / size, u, rcond=1e-10)
    if rank < design.shape[1]:
        raise InputError(
            "the log does not tell proportional, integral and derivative part apart; leave out the "
            "derivative, or record more set-points"
        )
    weights = solution / size
    residual = u - within @ weights
    kp, ki, *kd = (float(weight) for weight in weights)
    gains = PIDGains(kp, ki, kd[0] if kd else 0.0, 0.0)
    bias = float(np.mean(target - design @ weights))
    return ImitatedLoop(gains, bias, float(1 - residual @ residual / (u @ u)), int(keep.sum()))


def _standing(action: np.ndarray, log: Log, slack: float) -> np.ndarray:
    """Whether the action of every row is one of a long run that are all the same."""
    moved = np.abs(np.diff(action, prepend=action[0])) > slack
    run = np.cumsum(moved | (log.age == 0))
    return np.bincount(run)[run] > STANDING_ROWS


def _sums_in_pieces(values: np.ndarray, log: Log) -> np.ndarray:
    """Running sums that begin anew with every piece, this row included."""
    total = np.cumsum(values)
    return total - (total[log.start] - values[log.start])


def _without_means(columns: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Columns less the mean of their group."""
    count = np.bincount(group, minlength=group.max() + 1)
    count = np.maximum(count, 1)
    means = [np.bincount(group, column, minlength=len(count)) / count for column in columns.T]
    return columns - np.stack(means, axis=1)[group]
