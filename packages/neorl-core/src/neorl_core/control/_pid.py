"""A bank of PID loops with overrides as one policy, and its parameters as on a faceplate."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_integer,
    checked_positive,
    is_concrete,
    like,
    require_choice,
    require_each,
    require_order,
    require_rank,
    require_scalar,
)
from neorl_core._internal.precision import widen
from neorl_core._vocabulary.channels import Channel, Spec
from neorl_core.control._tunables import Entry, Tunable

# A bank of PID loops with overrides, as one pure policy.


LOOP_FIELDS = ("kp", "ki", "kd", "tau", "setpoint", "bias", "low", "high")
AntiWindup = Literal["tracking", "conditional"]


class PIDCarry(NamedTuple):
    """The carry of a bank of PID loops.

    Attributes:
        integral: Integral part of every loop, in units of its output, shape ``(loop,)``.
        derivative: Filtered derivative of every measurement, in its unit per second, shape
            ``(loop,)``.
        measurement: Last finite measurement, shape ``(loop,)``; NaN before the first.
        age: Time since that measurement, in seconds, as of the last step, shape ``(loop,)``.
        fast: The unclipped output of the last step without its integral part, shape ``(loop,)``.
        summed: The integral part of that unclipped output, shape ``(loop,)``.
        increment: Amount that the last step added to the integral, shape ``(loop,)``.
        output: Last proposed output, shape ``(loop,)``. Before the first measurement it is the
            action that the plant received, or NaN if that is unknown.
    """

    integral: Float[Array, " loop"]
    derivative: Float[Array, " loop"]
    measurement: Float[Array, " loop"]
    age: Float[Array, " loop"]
    fast: Float[Array, " loop"]
    summed: Float[Array, " loop"]
    increment: Float[Array, " loop"]
    output: Float[Array, " loop"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PID:
    """One PID loop per action channel, in parallel form, with anti-windup and bumpless hand-over.

    Loop ``i`` reads ``y = obs[measured[i]]``, forms the error ``e = setpoint[i] - y`` and computes

    ``v = bias + kp e + I - kd dy/dt``, ``I += ki e dt``, ``u = clip(v, low, high)``.

    The derivative acts on the measurement, so a setpoint step gives no kick. If a larger output
    lowers the measurement, the gains are negative.

    *Saturation.* The integral does not wind up when the plant receives less or more than ``v``,
    whether because of the loop's own limits or because of a filter or an actuator after it, as
    :meth:`sent` reports. With ``anti_windup="tracking"`` it moves by ``(u - v) dt /
    tracking_time``, but by no more than ``u - v``. With ``"conditional"`` it is held while the
    error would drive it further into the limit. If the tracking time is short compared with ``kp /
    ki``, noise that touches a limit pushes the integral away from it step by step.

    *Hand-over.* While another controller acts, :meth:`follow` moves the integral so that the loop
    would have proposed the other controller's action, and there is no bump when the loop takes
    over. If an action is reported through either function before the first step, the loop starts
    from it. Loops with ``ki = 0`` have no integral and do neither.

    While a measurement is not finite, its loop proposes NaN, which a guard catches, and keeps its
    state: the integral follows the action that is sent, or is held if that is unknown. The
    derivative continues from the last finite measurement, over the time that has passed since.

    An override ``j`` caps output ``override_output[j]`` at ``override_cap[j]`` while
    ``obs[override_measured[j]] < override_below[j]``, which is the low-select interlock of batch
    recipes. A lost measurement counts as below the threshold, so the cap stays until the
    measurement is back.

    Shapes and indices are checked when the bank is called, and so are concrete numbers. Traced
    numbers are not checked, because the loops run inside a simulator. A bank computes in the dtype
    of ``kp``, but at least in float32, whatever the dtypes of its other numbers and of the
    observations.

    Attributes:
        kp: Proportional gains, output units per measured unit, shape ``(loop,)``.
        ki: Integral gains, per second, shape ``(loop,)``.
        kd: Derivative gains, seconds, shape ``(loop,)``.
        tau: Time constants of the derivative filters in seconds, not negative, shape ``(loop,)``.
        setpoint: Setpoints in measured units, shape ``(loop,)``.
        bias: Output at zero error, shape ``(loop,)``.
        low: Lower limits of the outputs, shape ``(loop,)``.
        high: Upper limits of the outputs, not below ``low``, shape ``(loop,)``.
        dt: Control period in seconds, positive, scalar.
        override_below: Thresholds, shape ``(override,)``; may be empty.
        override_cap: Caps, not below ``low`` of their output, shape ``(override,)``.
        measured: Index of the observation that each loop controls.
        override_output: Index of the output that each override caps.
        override_measured: Index of the observation that each override reads.
        tracking_time: Time in seconds over which the integral yields to saturation, not negative,
            shape ``(loop,)``. ``None`` means the integral time ``kp / ki``: the output then leaves
            its limit about when the error changes sign.
        anti_windup: ``"tracking"`` or ``"conditional"``.

    Source: Astrom and Hagglund, PID controllers: theory, design, and tuning, 1995, section 3.5.
    """

    kp: Float[Array, " loop"]
    ki: Float[Array, " loop"]
    kd: Float[Array, " loop"]
    tau: Float[Array, " loop"]
    setpoint: Float[Array, " loop"]
    bias: Float[Array, " loop"]
    low: Float[Array, " loop"]
    high: Float[Array, " loop"]
    dt: Float[Array, ""]
    override_below: Float[Array, " override"]
    override_cap: Float[Array, " override"]
    measured: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    override_output: tuple[int, ...] = dataclasses.field(metadata={"static": True}, default=())
    override_measured: tuple[int, ...] = dataclasses.field(metadata={"static": True}, default=())
    tracking_time: Float[Array, " loop"] | None = None
    anti_windup: AntiWindup = dataclasses.field(metadata={"static": True}, default="tracking")

    def initial_carry(self) -> PIDCarry:
        """A carry without integral and history."""
        zero = jnp.zeros_like(widen(self.kp))
        unknown = jnp.full_like(zero, jnp.nan)
        return PIDCarry(zero, zero, unknown, zero, zero, zero, zero, unknown)

    def __call__(
        self, carry: PIDCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[PIDCarry, Float[Array, " act"]]:
        """One step of every loop.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step, :meth:`sent` or :meth:`follow`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The new carry and the outputs in physical units, inside ``[low, high]``. If a
            measurement is not finite, the output of its loop is NaN, which a guard catches.

        Raises:
            ValueError: If ``obs`` is not one-dimensional, a field or the carry does not have the
                stated shape, an index names no observation or output, ``anti_windup`` is unknown,
                or a concrete number is out of range: ``low`` above ``high``, a cap below ``low``, a
                negative ``tau`` or ``tracking_time``, a ``dt`` that is not positive.
        """
        require_rank("obs", obs, 1, "obs")
        self._require_form(carry, np.shape(obs)[0])
        self._require_range()
        bank, obs = self._of_one_dtype(), like(obs, widen(self.kp))
        reading = obs[jnp.asarray(bank.measured)]
        finite, known = jnp.isfinite(reading), jnp.isfinite(carry.measurement)
        measurement = jnp.where(finite, reading, carry.measurement)
        error = jnp.where(finite | known, bank.setpoint - measurement, 0)
        derivative, age = bank._slope(carry, measurement, finite, known)
        fast = bank.bias + bank.kp * error - bank.kd * derivative
        # A loop that starts while another action is in force continues from that action.
        starts = finite & ~known & (bank.ki != 0) & jnp.isfinite(carry.output)
        integral = jnp.where(starts, carry.output - fast, carry.integral)
        increment = jnp.where(finite, bank.ki * error * bank.dt, 0)
        summed = integral + increment
        output = jnp.clip(fast + summed, bank.low, bank._caps(obs))
        output = jnp.where(finite, output, jnp.nan)
        new = PIDCarry(summed, derivative, measurement, age, fast, summed, increment, output)
        return bank.sent(new, output), output

    def sent(self, carry: PIDCarry, action: Float[Array, " act"]) -> PIDCarry:
        """Prevents windup after the plant received the loops' own proposal, possibly limited.

        If the action differs from the proposal, limits caused the difference. A loop whose
        measurement is lost has proposed nothing, so its integral follows the action.

        Args:
            carry: Carry from the last step.
            action: Action that the plant received; NaN if unknown.

        Returns:
            The carry for the next step.

        Raises:
            ValueError: If ``action`` does not have one number for each loop.
        """
        require_each("action", action, len(self.measured), "loops")
        action = like(action, carry.integral)
        short = action - (carry.fast + carry.summed)
        if self.anti_windup == "conditional":
            # Ignore differences that only come from rounding when units are converted and converted
            # back.
            slack = 16 * jnp.finfo(action.dtype).eps * (jnp.abs(carry.fast) + jnp.abs(action))
            limited = jnp.abs(short) > slack
            winding_up = limited & (short * carry.increment < 0)
            integral = jnp.where(winding_up, carry.summed - carry.increment, carry.summed)
        else:
            integral = carry.summed + self._of_one_dtype()._tracking_share() * short
        return self._with_integral(
            carry, action, jnp.where(carry.age > 0, action - carry.fast, integral)
        )

    def follow(self, carry: PIDCarry, action: Float[Array, " act"]) -> PIDCarry:
        """Sets the integral so that the last step would have proposed the other's action.

        Args:
            carry: Carry from the last step.
            action: Action that the plant received from another controller; NaN if it is unknown or
                if the loop itself acted.

        Returns:
            The carry for the next step, which continues from that action without a bump.

        Raises:
            ValueError: If ``action`` does not have one number for each loop.
        """
        require_each("action", action, len(self.measured), "loops")
        action = like(action, carry.integral)
        return self._with_integral(carry, action, action - carry.fast)

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """Gain, times and setpoint of every loop that has a nonzero gain.

        A gain scales all three parts, so the times stay the same. Loops with equal gains and times
        are tuned together, except for their setpoints. A loop without an integral also lists its
        bias. A setpoint of zero is not tuned, since it belongs to a deviation variable.

        Args:
            spec: Channels, which provide the names.
        """
        numbers = [*self.loop_tunables(spec)]
        acts = [i for i in range(len(self.measured)) if self.kp[i] or self.ki[i] or self.kd[i]]
        for i in acts:
            channel, action = spec.obs[self.measured[i]], spec.action[i]
            if float(self.setpoint[i]):
                name = f"setpoint of {channel.name} for {action.name}"
                entries = (Entry("setpoint", (i,)),)
                numbers.append(
                    Tunable(name, channel.unit, entries, entries, "shift", 0.25, self.measured[i])
                )
            if not float(self.ki[i]) and float(self.bias[i]):
                name, entries = f"bias of {action.name}", (Entry("bias", (i,)),)
                step = 0.05 * (action.high - action.low)
                numbers.append(Tunable(name, action.unit, entries, entries, "shift", step))
        return tuple(numbers)

    def loop_tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """The gains and times of :meth:`tunables`, without setpoints and biases.

        Args:
            spec: Channels, which provide the names.
        """
        kp, ki, kd = (np.asarray(leaf, np.float64) for leaf in (self.kp, self.ki, self.kd))
        groups: dict[tuple[float, ...], tuple[int, ...]] = {}
        for i in range(len(self.measured)):
            parameters = (kp[i], ki[i], kd[i])
            if any(parameters):
                groups[parameters] = (*groups.get(parameters, ()), i)
        return tuple(
            number
            for parameters, loops in groups.items()
            for number in _loop_tunables(
                parameters, loops, _names(spec.action, loops), self._gain_unit(spec, loops)
            )
        )

    def _gain_unit(self, spec: Spec, loops: tuple[int, ...]) -> str:
        """Unit of a proportional gain; empty if loops with different units share it."""
        units = {(spec.action[i].unit, spec.obs[self.measured[i]].unit) for i in loops}
        action, measured = units.pop()
        known = not units and self.kp[loops[0]] and "" not in (action, measured)
        return f"{action} per {measured}" if known else ""

    def _with_integral(self, carry: PIDCarry, action: Array, integral: Array) -> PIDCarry:
        """The carry with the new integral for loops with an integral and a known action."""
        action_known, known = jnp.isfinite(action), jnp.isfinite(carry.measurement)
        return carry._replace(
            integral=jnp.where(action_known & known & (self.ki != 0), integral, carry.integral),
            output=jnp.where(action_known & ~known, action, carry.output),
        )

    def _tracking_share(self) -> Float[Array, " loop"]:
        """The fraction of a difference that the integral takes up in one period."""
        seconds = self.tracking_time
        if seconds is None:
            integrates = self.ki != 0
            seconds = jnp.abs(jnp.where(integrates, self.kp / jnp.where(integrates, self.ki, 1), 0))
        return self.dt / jnp.maximum(seconds, self.dt)

    def _of_one_dtype(self) -> "PID":
        """The bank with all its numbers in the dtype of the computation."""
        one = widen(self.kp)
        return jax.tree.map(lambda leaf: like(leaf, one), self)

    def _require_form(self, carry: PIDCarry, observations: int) -> None:
        """Raises an error for mismatched shapes and indices, which are known while tracing."""
        loops, overrides = len(self.measured), len(self.override_output)
        for name in LOOP_FIELDS:
            require_each(name, getattr(self, name), loops, "loops in measured")
        if self.tracking_time is not None:
            require_each("tracking_time", self.tracking_time, loops, "loops in measured")
        require_choice("anti_windup", self.anti_windup, get_args(AntiWindup))
        require_scalar("dt", self.dt)
        for name in ("override_below", "override_cap"):
            require_each(name, getattr(self, name), overrides, "overrides in override_output")
        require_each("override_measured", self.override_measured, overrides, "overrides")
        for name, leaf in zip(carry._fields, carry, strict=True):
            require_each(f"carry.{name}", leaf, loops, "loops")
        _require_indices("measured", self.measured, observations, "observations")
        _require_indices("override_measured", self.override_measured, observations, "observations")
        _require_indices("override_output", self.override_output, loops, "loops")

    def _require_range(self) -> None:
        """Raises an error for concrete numbers out of range; traced ones are not checked."""
        require_order(self.low, self.high)
        for name in ("tau", "tracking_time", "dt"):
            number = getattr(self, name)
            if number is not None and is_concrete(number):
                checked_positive(name, number, or_zero=name != "dt", many=True)
        if is_concrete((self.low, self.override_cap)) and self.override_output:
            lowest = np.asarray(self.low)[list(self.override_output)]
            if not np.all(np.asarray(self.override_cap) >= lowest):
                raise ValueError(
                    f"override_cap must not be below low of its output, got {self.override_cap} "
                    f"and {lowest}; raise the cap, jnp.inf for none"
                )

    def _slope(self, carry: PIDCarry, measurement: Array, finite: Array, known: Array) -> tuple:
        """The filtered derivative, and the age of the measurement on which it is based."""
        elapsed = carry.age + self.dt
        last = jnp.where(known, carry.measurement, measurement)
        slope = (measurement - last) / elapsed
        weight = elapsed / (self.tau + elapsed)
        filtered = carry.derivative + weight * (slope - carry.derivative)
        return jnp.where(finite, filtered, carry.derivative), jnp.where(finite, 0, elapsed)

    def _caps(self, obs: Float[Array, " obs"]) -> Float[Array, " loop"]:
        if not self.override_output:
            return self.high
        reading = obs[jnp.asarray(self.override_measured)]
        # A comparison with NaN is false, but a lost measurement must not release the interlock.
        active = (reading < self.override_below) | ~jnp.isfinite(reading)
        caps = jnp.where(active, self.override_cap, jnp.inf)
        return self.high.at[jnp.asarray(self.override_output)].min(caps)


def _names(channels: tuple[Channel, ...], indices: tuple[int, ...]) -> str:
    return ", ".join(channels[i].name for i in indices)


def _loop_tunables(
    parameters: tuple[float, ...], loops: tuple[int, ...], names: str, unit: str
) -> Iterator[Tunable]:
    kp, ki, kd = parameters
    every = tuple(Entry(leaf, loops) for leaf in ("kp", "ki", "kd"))
    lead = every[0] if kp else every[1]
    yield Tunable(f"gain of {names}", unit, every, (lead,), "factor", 0.5)
    if kp and ki:
        slower = (every[1]._replace(power=-1.0),)
        value = (every[0], *slower)
        yield Tunable(f"integral time of {names}", "s", slower, value, "factor", 0.5)
    if kp and kd:
        value = (every[2], every[0]._replace(power=-1.0))
        yield Tunable(f"derivative time of {names}", "s", every[2:], value, "factor", 0.5)


def _require_indices(name: str, indices: tuple[int, ...], count: int, counted: str) -> None:
    for index in indices:
        if not 0 <= checked_integer(f"an index of {name}", index) < count:
            raise ValueError(
                f"{name} must be indices from 0 to {count - 1}, got {indices}; "
                f"number the {count} {counted} from 0"
            )


# PID loops from the parameters shown on a controller's faceplate.


Numbers = float | Sequence[float]
OF_ANY_FORM = ("setpoint", "bias", "low", "high", "tracking_time")
"""Numbers of a loop that mean the same in every form."""


def standard_pid(
    *,
    gain: Numbers,
    integral_time: Numbers = float("inf"),
    derivative_time: Numbers = 0.0,
    setpoint: Numbers,
    bias: Numbers = 0.0,
    low: Numbers,
    high: Numbers,
    dt: float,
    measured: int | Sequence[int] = 0,
    derivative_filter: Numbers = 10.0,
    tracking_time: Numbers | None = None,
) -> PID:
    """PID loops in standard form, from plain numbers, in float32.

    ``u = bias + Kc (e + 1/Ti integral(e) dt - Td dy/dt)`` with the error ``e = setpoint - y``. In
    the parallel form of :class:`PID` this is ``kp = Kc``, ``ki = Kc / Ti`` and ``kd = Kc Td``; the
    derivative is filtered with the time constant ``Td / derivative_filter``.

    A single number applies to every loop; a sequence has one number for each loop. The longest
    sequence, or ``measured``, gives the number of loops. Times are in seconds. Many control systems
    show minutes, and some show resets per minute, which are ``60 / integral_time``.

    Args:
        gain: ``Kc`` in output units per measured unit; negative if a larger output lowers the
            measurement. To convert a gain in percent per percent, multiply it by the output range
            and divide it by the measurement range.
        integral_time: ``Ti`` in seconds, positive; infinite for a loop without an integral.
        derivative_time: ``Td`` in seconds, not negative.
        setpoint: Setpoint in the unit of the measurement.
        bias: Output at zero error and zero integral.
        low: Lower limits of the outputs.
        high: Upper limits of the outputs, not below ``low``.
        dt: Control period in seconds, positive.
        measured: Index of the observation that each loop controls.
        derivative_filter: ``N``, positive; usually from 5 to 20.
        tracking_time: Time in seconds over which the integral yields to saturation, as in
            :class:`PID`.

    Returns:
        The loops as a policy.

    Raises:
        ValueError: If two sequences differ in length, a number is not finite (``integral_time`` may
            be infinite) or is outside its stated range, or ``low`` is above ``high``.

    Example:
        >>> pid = standard_pid(gain=2.0, integral_time=50.0, setpoint=70.0, low=0, high=100, dt=1.0)
        >>> carry, action = pid(pid.initial_carry(), jnp.array([65.0]))
        >>> [round(float(u), 2) for u in action]  # 2 * 5, and 2 / 50 * 5 of the integral
        [10.2]

    Source: Astrom and Hagglund, PID controllers: theory, design, and tuning, 1995, section 3.4.
    """
    numbers: dict[str, object] = {
        "gain": gain,
        "integral_time": integral_time,
        "derivative_time": derivative_time,
        "setpoint": setpoint,
        "bias": bias,
        "low": low,
        "high": high,
        "measured": measured,
        "derivative_filter": derivative_filter,
    }
    if tracking_time is not None:
        numbers["tracking_time"] = tracking_time
    columns = _columns(numbers)
    ti, td = columns["integral_time"], columns["derivative_time"]
    for name, column in columns.items():
        if not np.all(np.isfinite(column) | ((name == "integral_time") & (column == np.inf))):
            raise ValueError(
                f"{name} must be finite, got {column.tolist()}; check how it was copied"
            )
    if np.any(ti <= 0):
        raise ValueError(
            f"integral_time must be positive, got {ti.tolist()}; leave it out for a loop without "
            "an integral"
        )
    if np.any(td < 0):
        raise ValueError(
            f"derivative_time must not be negative, got {td.tolist()}; where a larger output "
            "lowers the measurement, make the gain negative"
        )
    if np.any(columns["low"] > columns["high"]):
        raise ValueError(
            f"low must not be above high, got {columns['low'].tolist()} and "
            f"{columns['high'].tolist()}; swap them"
        )
    checked_positive("dt", dt)
    checked_positive("derivative_filter", columns["derivative_filter"], many=True)
    leaves = {
        "kp": columns["gain"],
        "ki": columns["gain"] / ti,
        "kd": columns["gain"] * td,
        "tau": td / columns["derivative_filter"],
        **{name: columns[name] for name in columns if name in OF_ANY_FORM},
        "dt": np.asarray(dt),
        "override_below": np.zeros(0),
        "override_cap": np.zeros(0),
    }
    fields: dict[str, Any] = {k: jnp.asarray(v, jnp.float32) for k, v in leaves.items()}
    return PID(**fields, measured=tuple(int(index) for index in columns["measured"]))


def _columns(numbers: Mapping[str, object]) -> dict[str, np.ndarray]:
    """One number for each loop; single numbers are repeated."""
    arrays = {name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in numbers.items()}
    loops = max(len(array) for array in arrays.values())
    for name, array in arrays.items():
        if array.shape not in ((1,), (loops,)):
            raise ValueError(
                f"{name} must be one number or one for each of the {loops} loops, got "
                f"{array.tolist()}; give as many numbers as there are loops"
            )
    return {name: np.broadcast_to(array, (loops,)) for name, array in arrays.items()}
