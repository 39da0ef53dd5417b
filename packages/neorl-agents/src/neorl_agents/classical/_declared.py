"""PID loops declared with the numbers that their faceplates show, instead of identified ones."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from neorl_agents.classical._task import Log, Loop, Task, action_order, checked_log, resolve
from neorl_agents.controllers._pid_loops import TrackingPID, pid_policy
from neorl_core import Channel, InputError, Spec, Transition
from neorl_core.control import PID, standard_pid

Direction = Literal["reverse", "direct"]


@dataclasses.dataclass(frozen=True)
class DeclaredLoop:
    """One PID loop in standard form, with the numbers of its faceplate.

    ``u = bias + Kc (e + 1/Ti integral(e) dt - Td dy/dt)`` with the error ``e = setpoint - y``. The
    faceplate shows the size of ``Kc`` and the direction of the controller, which gives its sign.

    Attributes:
        controlled: Name of the observation channel that the loop controls.
        manipulated: Name of the action channel that it moves.
        gain: Size of ``Kc`` in units of the action per unit of the measurement, positive. To
            convert a gain in percent per percent, multiply it by the range of the output and
            divide it by the range of the measurement.
        direction: ``"reverse"`` if the output falls when the measurement rises (``Kc`` is
            positive), ``"direct"`` if it rises (``Kc`` is negative).
        setpoint: Setpoint in the unit of the measurement; ``None`` if an observation carries it.
        setpoint_channel: Name of the observation channel that carries the setpoint, or empty.
        integral_time: ``Ti`` in seconds, positive; infinite for a loop without an integral.
        derivative_time: ``Td`` in seconds, not negative.
        derivative_filter: ``N``, positive: the derivative is filtered with ``Td / N``.
        bias: Output at zero error with an empty integral, in the unit of the action. ``None`` takes
            it from the first rows of the log's episodes, and is only possible with an integral.
        low: Lower limit of the output, in its unit; ``None`` for the low end of the channel.
        high: Upper limit of the output; ``None`` for the high end of the channel.

    Raises:
        InputError: If a number is not finite or has the wrong sign, the direction is unknown, the
            setpoint is missing or given twice, or a loop without an integral has no bias.
    """

    controlled: str
    manipulated: str
    gain: float
    direction: Direction
    setpoint: float | None = None
    setpoint_channel: str = ""
    integral_time: float = math.inf
    derivative_time: float = 0.0
    derivative_filter: float = 10.0
    bias: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def name(self) -> str:
        """The loop in messages, such as ``"the loop of T by steam"``."""
        return f"the loop of {self.controlled} by {self.manipulated}"

    @property
    def signed_gain(self) -> float:
        """``Kc``: positive for a reverse-acting loop, negative for a direct-acting one."""
        return self.gain if self.direction == "reverse" else -self.gain

    def __post_init__(self) -> None:
        """Refuses numbers that no faceplate shows; names and ranges need the channels."""
        if self.direction not in get_args(Direction):
            raise InputError(
                f"the direction of {self.name} must be 'reverse' (the output falls when the "
                f"measurement rises) or 'direct' (it rises), got {self.direction!r}"
            )
        if not (math.isfinite(self.gain) and self.gain > 0):
            raise InputError(
                f"the gain of {self.name} must be a positive number, got {self.gain:g}; its sign "
                "is stated by direction: 'reverse' if the output falls when the measurement rises, "
                "'direct' if it rises"
            )
        if not self.integral_time > 0:
            raise InputError(
                f"integral_time of {self.name} must be a positive number of seconds, got "
                f"{self.integral_time:g}; leave it out for a loop without an integral"
            )
        if not 0 <= self.derivative_time < math.inf:
            raise InputError(
                f"derivative_time of {self.name} must be a number of seconds that is not negative, "
                f"got {self.derivative_time:g}"
            )
        if not 0 < self.derivative_filter < math.inf:
            raise InputError(
                f"derivative_filter of {self.name} must be a positive number, got "
                f"{self.derivative_filter:g}; 5 to 20 are usual"
            )
        if (self.setpoint is None) == (not self.setpoint_channel):
            raise InputError(
                f"{self.name} needs one setpoint: give it as setpoint, a number in the unit of "
                f"{self.controlled}, or name the observation that carries it as setpoint_channel"
            )
        for name in ("setpoint", "bias", "low", "high"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise InputError(f"{name} of {self.name} must be finite, got {value:g}")
        if self.bias is None and math.isinf(self.integral_time):
            raise InputError(
                f"{self.name} has no integral_time, and without an integral its output at zero "
                f"error is its bias; give bias in the unit of {self.manipulated}"
            )

    def limits(self, channel: Channel) -> tuple[float, float]:
        """The limits of the output: those of the loop where it states them, else the channel's.

        Args:
            channel: The action channel.

        Raises:
            InputError: If a limit or the bias lies outside its range.
        """
        low = channel.low if self.low is None else self.low
        high = channel.high if self.high is None else self.high
        if not channel.low <= low < high <= channel.high:
            raise InputError(
                f"the output of {self.name} has the limits {low:g} to {high:g} {channel.unit}; "
                f"low must be below high, and both must be in the range of {channel.name}, "
                f"{channel.low:g} to {channel.high:g} {channel.unit}"
            )
        if self.bias is not None and not low <= self.bias <= high:
            raise InputError(
                f"bias of {self.name} is {self.bias:g} {channel.unit}, outside the limits of its "
                f"output, {low:g} to {high:g} {channel.unit}; check the unit"
            )
        return low, high


def declared_bank(
    loops: Sequence[DeclaredLoop], spec: Spec, log: Transition | None = None
) -> PID | TrackingPID:
    """The declared loops as a policy.

    A loop without a bias gets the mean over the logged episodes of ``u - Kc e - Kc / Ti e dt`` in
    their first rows, without those in which the action is at a limit: what its integral was there.

    Args:
        loops: One loop for every action channel, in any order.
        spec: Channels, with their units and ranges, and the control period.
        log: Rows of a log, for loops without a bias; without it these start from the middle of
            their limits.

    Returns:
        The bank in the order of the action channels. It can be retuned, and stored as an artefact.

    Raises:
        InputError: If a name is not a channel (the closest one is suggested), an action channel
            has no loop or two, a setpoint, a limit or a bias lies outside its range, or the log
            has other channels.

    Example:
        >>> from neorl_core import Channel
        >>> tank = Spec((Channel("T", "°C", 0, 200),), (Channel("steam", "%", 0, 100),), (), 1.0, 9)
        >>> loop = DeclaredLoop("T", "steam", gain=2.1, direction="reverse", setpoint=120.0,
        ...                     integral_time=90.0)
        >>> bank = declared_bank([loop], tank)
        >>> [(one.name, one.unit) for one in bank.tunables(tank)][0]
        ('gain of steam', '% per °C')
    """
    task = Task(
        tuple(
            Loop(
                loop.controlled,
                loop.manipulated,
                loop.setpoint_channel if loop.setpoint is None else loop.setpoint,
            )
            for loop in loops
        )
    )
    resolved = resolve(task, spec)
    order = action_order(resolved, spec, "a bank of declared PID loops")
    sorted_loops = [loops[i] for i in order]
    limits = [loop.limits(channel) for loop, channel in zip(sorted_loops, spec.action, strict=True)]
    unknown = any(loop.bias is None for loop in loops)
    rows = checked_log(log, spec) if log is not None and unknown else None
    bias = [
        _bias(
            loop,
            limits[i],
            rows,
            i,
            resolved.controlled[order[i]],
            resolved.source[order[i]],
            spec.dt,
        )
        for i, loop in enumerate(sorted_loops)
    ]
    bank = standard_pid(
        gain=[loop.signed_gain for loop in sorted_loops],
        integral_time=[loop.integral_time for loop in sorted_loops],
        derivative_time=[loop.derivative_time for loop in sorted_loops],
        setpoint=[0.0 if loop.setpoint is None else loop.setpoint for loop in sorted_loops],
        bias=bias,
        low=[low for low, _ in limits],
        high=[high for _, high in limits],
        dt=spec.dt,
        measured=[resolved.controlled[i] for i in order],
        derivative_filter=[loop.derivative_filter for loop in sorted_loops],
    )
    return pid_policy(bank, tuple(resolved.source[i] for i in order))


def _bias(
    loop: DeclaredLoop,
    limits: tuple[float, float],
    rows: Log | None,
    action: int,
    controlled: int,
    source: int,
    dt: float,
) -> float:
    """The declared bias, else the one that explains the first actions of the logged episodes."""
    low, high = limits
    if loop.bias is not None or rows is None:
        return (low + high) / 2 if loop.bias is None else loop.bias
    first = rows.age == 0
    output = rows.action[first, action]
    setpoint = loop.setpoint if source < 0 else rows.obs[first, source]
    error = np.asarray(setpoint, np.float64) - rows.obs[first, controlled]
    bias = output - loop.signed_gain * (1 + dt / loop.integral_time) * error
    slack = 1e-4 * (high - low)
    free = (output > low + slack) & (output < high - slack)
    return float(np.clip(np.mean(bias[free] if free.any() else bias), low, high))
