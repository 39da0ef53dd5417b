"""The rows of one control loop, as every analysis of it reads them."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from neorl_core import InputError

LEAST_ROWS = 200
"""Rows with a measurement and an output below which nothing is said of a loop."""
NEIGHBOURS = 9
"""Rows whose median a measurement is compared with."""
SPIKE = 12.0
"""Robust standard deviations from that median beyond which a row is a fault of the signal."""
BESIDE = 2
"""Rows beside a missing cell or a spike that are left out with it."""
FIELDS = ("measurement", "output", "setpoint")


@dataclasses.dataclass(frozen=True)
class LoopRecord:
    """Equidistant rows of a loop; the output of a row acts until the next row.

    Attributes:
        name: Tag of the loop, such as ``"TIC-201"``, for texts.
        measurement: Measured value, NaN where it is missing, shape ``(time,)``.
        output: Output of the controller, likewise.
        setpoint: Setpoint in measured units; NaN where it is missing or not logged at all.
        automatic: Whether the controller acted.
        segment: Number of the piece without a gap to which each row belongs, ascending.
        period: Time between rows of a piece in seconds.
        measurement_unit: Unit of measurement and setpoint.
        output_unit: Unit of the output.
        measurement_range: Range of the instrument, low and high, in measured units.
        output_range: Range of the output, likewise.
        tags: Names of the logged channels by role: ``"measurement"``, ``"output"``, ``"setpoint"``
            and ``"mode"``, those that there are.
        ranges_known: Whether both ranges were declared; otherwise they are those of the rows, and
            what is measured against them, such as saturation, is only a guess.
        mode_known: Whether the log says who acted; otherwise every row counts as automatic.
        left_out: What of the log is not in the rows and why, in sentences.
    """

    name: str
    measurement: Float[np.ndarray, " time"]
    output: Float[np.ndarray, " time"]
    setpoint: Float[np.ndarray, " time"]
    automatic: Bool[np.ndarray, " time"]
    segment: Int[np.ndarray, " time"]
    period: float
    measurement_unit: str
    output_unit: str
    measurement_range: tuple[float, float]
    output_range: tuple[float, float]
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    ranges_known: bool = True
    mode_known: bool = True
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = {name: getattr(self, name) for name in (*FIELDS, "automatic", "segment")}
        shapes = {name: np.shape(column) for name, column in columns.items()}
        if len(set(shapes.values())) > 1 or len(shapes["measurement"]) != 1:
            raise InputError(f"{self.name}: columns must have one length, got {shapes}")
        if not (np.isfinite(self.period) and self.period > 0):
            raise InputError(f"{self.name}: period must be positive, got {self.period} s")
        if np.any(np.diff(self.segment) < 0):
            raise InputError(f"{self.name}: segment must not descend")
        for name in ("measurement_range", "output_range"):
            low, high = getattr(self, name)
            if not low < high:
                raise InputError(f"{self.name}: {name} must ascend, got {low} to {high}")

    @property
    def valid(self) -> Bool[np.ndarray, " time"]:
        """Rows with a measurement and an output, and with a setpoint if one is logged."""
        valid = np.isfinite(self.measurement) & np.isfinite(self.output)
        return valid & np.isfinite(self.setpoint) if self.has_setpoint else valid

    @property
    def judgeable(self) -> bool:
        """Whether there are rows enough to say anything."""
        return int(without_spikes(self).valid.sum()) >= LEAST_ROWS

    @property
    def has_setpoint(self) -> bool:
        """Whether the log holds a setpoint."""
        return bool(np.any(np.isfinite(self.setpoint)))

    @property
    def days(self) -> float:
        """Length of the rows in days, without the gaps between the pieces."""
        return len(self.measurement) * self.period / 86_400

    def rows(self, which: Any) -> "LoopRecord":
        """The record of some rows, a slice or a mask; what they leave out becomes a gap."""
        kept = np.arange(len(self.measurement))[which]
        jumps = np.diff(kept) != 1
        segment = self.segment[kept] + np.append(0, np.cumsum(jumps)) if len(kept) else kept
        columns = {name: getattr(self, name)[kept] for name in (*FIELDS, "automatic")}
        return dataclasses.replace(self, **columns, segment=segment)


def without_spikes(record: LoopRecord) -> LoopRecord:
    """The record with spikes of the measurement, and the rows beside missing ones, left out.

    A transmitter that fails reads zero, or its last value, for some rows before and after its cells
    are empty. A few such rows weigh more in a least-squares fit than a week of others.
    """
    half = NEIGHBOURS // 2
    known = np.isfinite(record.measurement)
    if known.sum() < 2 * NEIGHBOURS:
        return record
    time = np.arange(len(known))
    filled = np.interp(time, time[known], record.measurement[known])
    padded = np.pad(filled, half + 1, "edge")
    ends = np.stack([padded[: len(filled)], padded[2 * half + 2 :]])
    # The answer to a move lies between the rows before and after it, and a spike does not.
    beyond = np.maximum(filled - ends.max(axis=0), ends.min(axis=0) - filled)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(filled, half, "edge"), NEIGHBOURS)
    apart = np.abs(filled - np.median(windows, axis=1))
    # Of a signal at rest most differences are zero, and the mean takes the place of the median; one
    # that is seldom moved is as fast as the fastest of its hundred rows.
    usual = max(1.4826 * float(np.median(apart)), float(np.mean(apart)))
    fast = 4 * float(np.quantile(np.abs(np.diff(filled)), 0.99))
    spikes = np.minimum(apart, beyond) > max(SPIKE * usual, fast)
    bad = ~known | (spikes if usual > 0 else False)
    near = np.convolve(bad, np.ones(2 * BESIDE + 1), "same") > 0
    return dataclasses.replace(record, measurement=np.where(near, np.nan, record.measurement))
