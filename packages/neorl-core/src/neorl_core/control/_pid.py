"""A bank of PID loops with overrides, as one pure policy."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import (
    floats,
    is_concrete,
    require_each,
    require_order,
    require_positive,
    require_rank,
    require_scalar,
    require_whole,
)

LOOP_FIELDS = ("kp", "ki", "kd", "tau", "setpoint", "bias", "low", "high")


class PIDCarry(NamedTuple):
    """What a bank of PID loops remembers between steps.

    Attributes:
        integral: Integral part of every loop, in units of its output, shape ``(loop,)``.
        derivative: Filtered derivative of every measurement, per second, shape ``(loop,)``.
        measurement: Last finite measurement, shape ``(loop,)``; NaN before the first.
        age: Seconds since that measurement, as of the last step, shape ``(loop,)``.
        held: The integral that the last step would keep if its output were sent unchanged, less
            that output: ``sent`` adds the action really sent and so back-calculates the integral.
        output: Last proposed output, shape ``(loop,)``. Before the first measurement: the action
            that the plant received, NaN where unknown.
    """

    integral: Float[Array, " loop"]
    derivative: Float[Array, " loop"]
    measurement: Float[Array, " loop"]
    age: Float[Array, " loop"]
    held: Float[Array, " loop"]
    output: Float[Array, " loop"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PID:
    """One PID loop per action channel, in parallel form, with back-calculation.

    Loop ``i`` reads ``y = obs[measured[i]]`` and computes, with the error ``e = setpoint[i] - y``,

    ``u = bias + kp e + I - kd dy/dt``, ``I += ki e dt``, clipped to ``[low, high]``.

    The derivative acts on the measurement, so a set-point step gives no kick. Where a larger
    output lowers the measurement, the gains are negative. When the plant receives another action
    than the proposed one (saturation, a filter, another controller in charge), :meth:`sent` moves
    the integral so that the loop would have proposed just that action: no windup, no bump at
    hand-over. Reported before the first step, it is where the loop starts from. Loops with
    ``ki = 0`` have no integral and do not track.

    While a measurement is not finite its loop proposes NaN, which a guard catches, and remembers:
    the integral stands still (and tracks what is sent), and the derivative goes on from the last
    finite measurement over the time that has passed since.

    An override ``j`` caps output ``override_output[j]`` at ``override_cap[j]`` while
    ``obs[override_measured[j]] < override_below[j]``: the low-select interlock of batch recipes.

    Shapes and indices are checked when the bank is called; of the numbers, those that are known
    then. What is being traced is used as it comes: the loops run inside a simulator.

    Attributes:
        kp: Proportional gains, output units per measured unit, shape ``(loop,)``.
        ki: Integral gains, per second, shape ``(loop,)``.
        kd: Derivative gains, seconds, shape ``(loop,)``.
        tau: Time constants of the derivative filters in seconds, not negative, shape ``(loop,)``.
        setpoint: Shape ``(loop,)``.
        bias: Output at zero error, shape ``(loop,)``.
        low: Lower limits of the outputs, shape ``(loop,)``.
        high: Upper limits of the outputs, not below ``low``, shape ``(loop,)``.
        dt: Control period in seconds, positive, scalar.
        override_below: Thresholds, shape ``(override,)``; may be empty.
        override_cap: Caps, not below ``low`` of their output, shape ``(override,)``.
        measured: Index of the observation that each loop controls.
        override_output: Index of the output that each override caps.
        override_measured: Index of the observation that each override reads.
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

    def initial_carry(self) -> PIDCarry:
        """No integral, no history."""
        zero = jnp.zeros_like(floats(self.kp))
        unknown = jnp.full_like(zero, jnp.nan)
        return PIDCarry(zero, zero, unknown, zero, zero, unknown)

    def __call__(
        self, carry: PIDCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[PIDCarry, Float[Array, " act"]]:
        """One step of every loop.

        Args:
            carry: From :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The new carry and the outputs in physical units, inside ``[low, high]``. A measurement
            that is not finite gives a NaN output; a guard catches it.

        Raises:
            ValueError: If ``obs`` is not of rank one, a field or the carry has another shape than
                stated, an index names no observation or output, or known numbers are out of
                range: ``low`` above ``high``, a cap below ``low``, a negative ``tau``, a ``dt``
                that is not positive.
        """
        require_rank("obs", obs, 1, "obs")
        self._require_form(carry, obs.shape[0])
        self._require_range()
        reading = obs[jnp.asarray(self.measured)]
        finite, seen = jnp.isfinite(reading), jnp.isfinite(carry.measurement)
        measurement = jnp.where(finite, reading, carry.measurement)
        error = jnp.where(finite | seen, self.setpoint - measurement, 0)
        derivative, age = self._slope(carry, measurement, finite, seen)
        fast = self.bias + self.kp * error - self.kd * derivative
        # A loop that starts while another action is in force starts from that action.
        starts = finite & ~seen & (self.ki != 0) & jnp.isfinite(carry.output)
        integral = jnp.where(starts, carry.output - fast, carry.integral)
        integral = integral + jnp.where(finite, self.ki * error * self.dt, 0)
        unclipped = fast + integral
        output = jnp.clip(unclipped, self.low, self._caps(obs))
        output = jnp.where(finite, output, jnp.nan)
        new = PIDCarry(integral, derivative, measurement, age, integral - unclipped, output)
        return self.sent(new, output), output

    def sent(self, carry: PIDCarry, action: Float[Array, " act"]) -> PIDCarry:
        """Back-calculates the integral from the action that the plant received, NaN if unknown.

        Raises:
            ValueError: If ``action`` has not one number for each loop.
        """
        require_each("action", action, len(self.measured), "loops")
        told, seen = jnp.isfinite(action), jnp.isfinite(carry.measurement)
        tracks = told & seen & (self.ki != 0)
        return carry._replace(
            integral=jnp.where(tracks, carry.held + action, carry.integral),
            output=jnp.where(told & ~seen, action, carry.output),
        )

    def _require_form(self, carry: PIDCarry, observations: int) -> None:
        """Refuses shapes and indices that do not fit together; they are known while tracing."""
        loops, overrides = len(self.measured), len(self.override_output)
        for name in LOOP_FIELDS:
            require_each(name, getattr(self, name), loops, "loops in measured")
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
        """Refuses known numbers out of range; what is traced passes, and no operation is added."""
        require_order(self.low, self.high)
        for name, number, or_zero in (("tau", self.tau, True), ("dt", self.dt, False)):
            if is_concrete(number):
                require_positive(name, number, or_zero=or_zero, many=True)
        if is_concrete((self.low, self.override_cap)) and self.override_output:
            least = np.asarray(self.low)[list(self.override_output)]
            if not np.all(np.asarray(self.override_cap) >= least):
                raise ValueError(
                    f"override_cap must not be below low of its output, got {self.override_cap} "
                    f"and {least}; raise the cap, jnp.inf for none"
                )

    def _slope(self, carry: PIDCarry, measurement: Array, finite: Array, seen: Array) -> tuple:
        """The filtered derivative, and the age of the measurement that it rests on."""
        elapsed = carry.age + self.dt
        last = jnp.where(seen, carry.measurement, measurement)
        slope = (measurement - last) / elapsed
        weight = elapsed / (self.tau + elapsed)
        moved = carry.derivative + weight * (slope - carry.derivative)
        return jnp.where(finite, moved, carry.derivative), jnp.where(finite, 0, elapsed)

    def _caps(self, obs: Float[Array, " obs"]) -> Float[Array, " loop"]:
        if not self.override_output:
            return self.high
        active = obs[jnp.asarray(self.override_measured)] < self.override_below
        caps = jnp.where(active, self.override_cap, jnp.inf)
        return self.high.at[jnp.asarray(self.override_output)].min(caps)


def _require_indices(name: str, indices: tuple[int, ...], count: int, things: str) -> None:
    for index in indices:
        if not 0 <= require_whole(f"an index of {name}", index) < count:
            raise ValueError(
                f"{name} must be indices from 0 to {count - 1}, got {indices}; "
                f"number the {count} {things} from 0"
            )
