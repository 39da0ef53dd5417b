"""PID loops that a fit gives: setpoints from observations, and compensation of a dead time."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Spec
from neorl_core.control import PID, PIDCarry, Tunable, follow, inside, tunables

# Dead-time compensation: a controller acts on what the plant will measure one dead time later.


class SmithCarry(NamedTuple):
    """Carry of a Smith predictor.

    Attributes:
        inner: Carry of the controller.
        model_outputs: Outputs of the model without dead time, now and in the past, oldest first, in
            units of the plant's outputs, shape ``(longest delay + 1, loop)``.
        action: The action of the last step, shape ``(loop,)``.
        started: Whether a step has been taken.
    """

    inner: Any
    model_outputs: Float[Array, "past loop"]
    action: Float[Array, " loop"]
    started: Bool[Array, ""]


class SmithPredictor(eqx.Module):
    """A controller that acts on the plant as if it had no dead time.

    The controller is given ``y + (m_t - m_{t-delay})`` in place of the measurement ``y``, where
    ``m_{t+1} = pole m_t + gain (u_t - rest)`` is a first-order model without dead time. This adds
    the effect of inputs that were sent but have not arrived yet. At rest the two model values
    agree, so a stable plant is controlled without offset whatever the model. On an integrating
    plant (pole 1) a constant load leaves an offset of ``delay * gain`` times the input that
    balances it, minus the part already in ``rest``; the linear-quadratic controllers have no such
    offset.

    Attributes:
        controller: The loops, tuned for the plant without dead time.
        pole: Poles of the models, shape ``(loop,)``.
        gain: Output change per unit of input in one period, shape ``(loop,)``.
        rest: Inputs that hold the outputs; the models are linear about them, shape ``(loop,)``.
        delay: Dead time of each loop in periods; static.
        measured: Index of the observation that each loop controls; static.

    Source: Smith, Closer control of loops with dead time, 1957.
    """

    controller: Any
    pole: Float[Array, " loop"]
    gain: Float[Array, " loop"]
    rest: Float[Array, " loop"]
    delay: tuple[int, ...] = eqx.field(static=True, converter=tuple)
    measured: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """Tunable parameters of the inner controller.

        Args:
            spec: Channels, for the names.
        """
        return inside(tunables(self.controller, spec), "controller")

    def initial_carry(self) -> SmithCarry:
        """The plant at rest, with no input in transit."""
        model_outputs = jnp.zeros(
            (max(self.delay, default=0) + 1, len(self.delay)), self.gain.dtype
        )
        return SmithCarry(
            self.controller.initial_carry(), model_outputs, self.rest, jnp.zeros((), jnp.bool_)
        )

    def __call__(
        self, carry: SmithCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[SmithCarry, Float[Array, " act"]]:
        """Takes one step of the model and of the controller.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The carry and the action; NaN where the controller's action is NaN.
        """
        model_output = self.pole * carry.model_outputs[-1] + self.gain * (carry.action - self.rest)
        model_outputs = jnp.concatenate([carry.model_outputs[1:], model_output[None]])
        # Only differences matter, so an integrating model is kept near zero.
        model_outputs = model_outputs - jnp.where(self.pole >= 1, model_outputs[0], 0)[None]
        model_outputs = jnp.where(carry.started, model_outputs, carry.model_outputs)
        delayed_index = jnp.asarray([len(model_outputs) - 1 - delay for delay in self.delay])
        delayed_effect = (
            model_outputs[-1] - model_outputs[delayed_index, jnp.arange(len(self.delay))]
        )
        predicted_obs = (
            jnp.asarray(obs)
            .at[jnp.asarray(self.measured)]
            .add(delayed_effect.astype(jnp.asarray(obs).dtype))
        )
        inner, action = self.controller(carry.inner, predicted_obs, None)
        last_action = jnp.where(jnp.isfinite(action), action, carry.action)
        return SmithCarry(inner, model_outputs, last_action, jnp.ones((), jnp.bool_)), action

    def sent(self, carry: SmithCarry, action: Float[Array, " act"]) -> SmithCarry:
        """Takes what the plant received into the model, and reports it to the controller."""
        return self._with_action(carry, action, self.controller.sent(carry.inner, action))

    def follow(self, carry: SmithCarry, action: Float[Array, " act"]) -> SmithCarry:
        """The same while another controller acts; this one continues from its action."""
        return self._with_action(carry, action, follow(self.controller, carry.inner, action))

    def _with_action(self, carry: SmithCarry, action: Array, inner: Any) -> SmithCarry:
        action = action.astype(carry.action.dtype)
        last_action = jnp.where(jnp.isfinite(action), action, carry.action)
        return carry._replace(inner=inner, action=last_action)


class TrackingPID(eqx.Module):
    """A bank of PID loops that reads its setpoints from the observation.

    Attributes:
        loops: The loops; their own setpoints hold where ``source`` is -1.
        source: Index of the observation that carries the setpoint of each loop, or -1; static.
    """

    loops: PID
    source: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def initial_carry(self) -> PIDCarry:
        """The carry before the first measurement."""
        return self.loops.initial_carry()

    def __call__(
        self, carry: PIDCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[PIDCarry, Float[Array, " act"]]:
        """Takes one step of every loop; NaN where its measurement or setpoint is not finite."""
        constant_setpoint = jnp.asarray(self.loops.setpoint)
        values = [constant_setpoint[i] if j < 0 else obs[j] for i, j in enumerate(self.source)]
        setpoint = jnp.stack(values).astype(constant_setpoint.dtype)
        known = jnp.isfinite(setpoint)
        # A lost setpoint leaves the integral unchanged, because there is no error to integrate.
        measurement = obs[jnp.asarray(self.loops.measured)].astype(constant_setpoint.dtype)
        safe_setpoint = jnp.where(
            known, setpoint, jnp.where(jnp.isfinite(measurement), measurement, 0)
        )
        loops = dataclasses.replace(self.loops, setpoint=safe_setpoint)
        carry, action = loops(carry, obs, None)
        return carry, jnp.where(known, action, jnp.nan)

    def sent(self, carry: PIDCarry, action: Float[Array, " act"]) -> PIDCarry:
        """See :meth:`neorl_core.control.PID.sent`."""
        return self.loops.sent(carry, action)

    def follow(self, carry: PIDCarry, action: Float[Array, " act"]) -> PIDCarry:
        """See :meth:`neorl_core.control.PID.follow`."""
        return self.loops.follow(carry, action)

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """Tunable parameters of the loops, except setpoints that are observations.

        Args:
            spec: Channels, for the names.
        """
        from_obs = {f"setpoint {i}" for i, source in enumerate(self.source) if source >= 0}
        declared = [
            number
            for number in self.loops.tunables(spec)
            if f"{number.moves[0].leaf} {number.moves[0].entries[0]}" not in from_obs
        ]
        return inside(declared, "loops")


def pid_policy(loops: PID, source: tuple[int, ...]) -> PID | TrackingPID:
    """The loops themselves if every setpoint is fixed, else a :class:`TrackingPID`."""
    return TrackingPID(loops, source) if any(index >= 0 for index in source) else loops
