"""What a log shows of the process of a loop, and whether that suffices to retune it."""

from typing import NamedTuple

from neorl_core.loops import SampledModel, TransferFunction


class Interval(NamedTuple):
    """A number with its interval.

    Attributes:
        value: The number, fitted on all rows.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


class LoopModel(NamedTuple):
    """A model of a loop's process from output to measurement, and how sure it is.

    Attributes:
        members: Models of the same form: the first is fitted on all rows, the others each without
            one block of the log, spread by as much as the log leaves open. Empty if no model could
            be fitted.
        gain: Measured units per output unit; of an integrating process the slope of the step
            response, measured units per output unit and second.
        dead_time: Seconds, without the hold of the output.
        time_constants: Seconds, the longest first; empty for a process that only integrates.
        integrating: Whether the process integrates.
        held_out: Share of the variance of the measurement's changes that the model predicts on rows
            that it was not fitted on, over ``horizon`` seconds; 1 at best, negative if it is worse
            than predicting no change.
        horizon: Time ahead of ``held_out`` in seconds.
        conditions: Sentences on what the identification rests on: moves of the setpoint, rows in
            manual, changes of the controller.
        usable: Whether the model may be used to retune the loop.
        why_not: If not, what is missing and what would bring it; empty if it is usable.
    """

    members: tuple[SampledModel | TransferFunction, ...]
    gain: Interval
    dead_time: Interval
    time_constants: tuple[Interval, ...]
    integrating: bool
    held_out: float
    horizon: float
    conditions: tuple[str, ...]
    usable: bool
    why_not: str
