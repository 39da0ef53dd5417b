"""The PI controller that wrote a loop's output, read from its rows."""

from typing import NamedTuple

import numpy as np

from neorl_agents.loops._record import LoopRecord

LEAST_ROWS = 50
FOLLOWS = 0.9
"""Share of the moves that a PI must explain before its gains are believed."""
FURTHER = 16
"""Rows of the longer moves from which the gains are read once more."""


class LoggedController(NamedTuple):
    """``u_t - u_{t-1} = kp (e_t - e_{t-1}) + ki dt e_t`` with ``e`` setpoint minus measurement.

    Attributes:
        kp: Output units per measured unit; NaN if it cannot be read.
        ki: Output units per measured unit and second.
        share: Share of the variance of the moves that this explains.
        changes: Halves of the rows whose gains differ by more than a fifth, so 0 or 1.
        kp_span: Ends of the values of ``kp`` that the rows allow. A controller may act between the
            rows, and the moves over 16 rows may say another one than those over one.
        ki_span: The same of ``ki``.
    """

    kp: float
    ki: float
    share: float
    changes: int
    kp_span: tuple[float, float] = (np.nan, np.nan)
    ki_span: tuple[float, float] = (np.nan, np.nan)

    @property
    def known(self) -> bool:
        """Whether the gains may be believed."""
        return self.share >= FOLLOWS and self.kp * self.ki > 0

    @property
    def integral_time(self) -> float:
        """Seconds."""
        return self.kp / self.ki


def logged_controller(record: LoopRecord) -> LoggedController:
    """Fits a PI to the moves of the output in automatic and between its limits.

    Args:
        record: The rows; a record without a setpoint takes it for constant.
    """
    low, high = record.output_range
    slack = 1e-3 * (high - low)
    setpoint = record.setpoint if record.has_setpoint else np.nanmean(record.measurement)
    error, output = setpoint - record.measurement, record.output
    free = record.valid & record.automatic & (output > low + slack) & (output < high - slack)
    pairs = free[1:] & free[:-1] & (np.diff(record.segment) == 0)
    moves = np.diff(output)[pairs]
    columns = np.stack([np.diff(error)[pairs], error[1:][pairs]], axis=1)
    if len(moves) < LEAST_ROWS or not np.std(moves) > 0:
        return LoggedController(np.nan, np.nan, 0.0, 0)
    gains = np.linalg.lstsq(columns, moves, rcond=None)[0]
    share = 1 - float(np.var(moves - columns @ gains) / np.var(moves))
    middle = len(moves) // 2
    halves = [
        np.linalg.lstsq(columns[part], moves[part], rcond=None)[0]
        for part in (slice(middle), slice(middle, None))
    ]
    differ = np.any(np.abs(halves[0] - halves[1]) > 0.2 * np.abs(gains))
    changes = int(differ) if share >= FOLLOWS else 0
    read = np.stack([gains, _further(error, output, free, record.segment, gains)])
    # Between rows a controller integrates the mean of both errors, not the later one.
    kp = [*read[:, 0], *(read[:, 0] + read[:, 1] / 2)]
    ki = read[:, 1] / record.period
    return LoggedController(
        float(gains[0]),
        float(gains[1]) / record.period,
        share,
        changes,
        (float(min(kp)), float(max(kp))),
        (float(min(ki)), float(max(ki))),
    )


def _further(
    error: np.ndarray,
    output: np.ndarray,
    free: np.ndarray,
    segment: np.ndarray,
    otherwise: np.ndarray,
) -> np.ndarray:
    """The gains that explain the moves over several rows, in which noise of single rows cancels."""
    held, summed = np.cumsum(~free), np.cumsum(np.where(free, error, 0.0))
    whole = free[:-FURTHER] & (held[FURTHER:] == held[:-FURTHER])
    whole &= segment[FURTHER:] == segment[:-FURTHER]
    if whole.sum() < LEAST_ROWS:
        return otherwise
    moves, changed, integral = (
        (column[FURTHER:] - column[:-FURTHER])[whole] for column in (output, error, summed)
    )
    return np.linalg.lstsq(np.stack([changed, integral], axis=1), moves, rcond=None)[0]
