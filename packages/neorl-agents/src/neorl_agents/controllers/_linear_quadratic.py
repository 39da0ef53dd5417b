"""Linear-quadratic control with an observer, integral action and a steady-state target."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Affine
from neorl_core.projections import limit_rate, project_box

# The observer of a linear plant at run time, and the steady state for a setpoint.


class EstimatorCarry(NamedTuple):
    """Carry of an observer.

    Attributes:
        state: States, inputs in transit and disturbances after the last measurement, scaled.
        previous: The action that the plant received last, physical units, shape ``(act,)``.
        started: Whether a complete measurement has arrived.
    """

    state: Float[Array, " state"]
    previous: Float[Array, " act"]
    started: Bool[Array, ""]


class Estimator(eqx.Module):
    """A stationary Kalman filter of a plant with dead times and integrating disturbances.

    ``s <- A s + B u + drift`` with the input that the plant received, then ``s <- s + gain (y - C s
    - bias)``. The disturbances at the end of ``s`` absorb what the model does not explain, which
    removes offsets. This is integral action that cannot wind up, because the observer uses the
    input that was sent. A measurement that is not finite corrects nothing.

    Attributes:
        obs: Units of the measured channels.
        action: Units of all action channels.
        transition: ``A``, shape ``(state, state)``.
        input: ``B``, shape ``(state, act)``.
        drift: Shape ``(state,)``.
        output: ``C``, shape ``(output, state)``.
        bias: Shape ``(output,)``.
        gain: Shape ``(state, output)``.
        start_output: Map from the first measurement of an episode to its initial state, shape
            ``(state, output)``.
        start_input: The same from the action before it, shape ``(state, act)``.
        start: Constant part of the initial state, shape ``(state,)``.
        nominal: The action before an episode unless another is reported, physical units.
        measured: Indices of the measured observations; static.
    """

    obs: Affine
    action: Affine
    transition: Float[Array, "state state"]
    input: Float[Array, "state act"]
    drift: Float[Array, " state"]
    output: Float[Array, "output state"]
    bias: Float[Array, " output"]
    gain: Float[Array, "state output"]
    start_output: Float[Array, "state output"]
    start_input: Float[Array, "state act"]
    start: Float[Array, " state"]
    nominal: Float[Array, " act"]
    measured: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def initial_carry(self) -> EstimatorCarry:
        """The carry before the first measurement."""
        return EstimatorCarry(jnp.zeros_like(self.drift), self.nominal, jnp.zeros((), jnp.bool_))

    def update(self, carry: EstimatorCarry, obs: Array) -> tuple[EstimatorCarry, Bool[Array, ""]]:
        """The carry after a measurement, and whether it was complete."""
        measurement = obs[jnp.asarray(self.measured)].astype(self.drift.dtype)
        finite = jnp.isfinite(measurement)
        y = self.obs.to_scaled(jnp.where(finite, measurement, self.obs.offset))
        u = self.action.to_scaled(carry.previous)
        prior = times(self.transition, carry.state) + times(self.input, u) + self.drift
        innovation = jnp.where(finite, y - times(self.output, prior) - self.bias, 0)
        updated = prior + times(self.gain, innovation)
        initial = times(self.start_output, y) + times(self.start_input, u) + self.start
        complete = jnp.all(finite)
        state = jnp.where(carry.started, updated, jnp.where(complete, initial, carry.state))
        return carry._replace(state=state, started=carry.started | complete), complete

    def sent(self, carry: EstimatorCarry, action: Array) -> EstimatorCarry:
        """The carry after the plant received an action; NaN keeps the proposed one."""
        action = action.astype(carry.previous.dtype)
        return carry._replace(previous=jnp.where(jnp.isfinite(action), action, carry.previous))


class SteadyTarget(eqx.Module):
    """The state and the input at which the outputs rest at their setpoints.

    Linear maps of setpoint and disturbances, solved once. If the input would leave its range, the
    nearest setpoint that it can hold is used instead.

    Attributes:
        controlled: Units of the controlled channels.
        setpoint: Fixed setpoints, physical units, shape ``(loop,)``.
        state_setpoint: Shape ``(state, loop)``; the state without disturbances.
        state_disturbance: Shape ``(state, output)``.
        state: Shape ``(state,)``.
        input_setpoint: Shape ``(act, loop)``.
        input_disturbance: Shape ``(act, output)``.
        input: Shape ``(act,)``.
        reach: Change of the setpoints held per change of the input, shape ``(loop, act)``.
        low: Lower ends of the actions, scaled, shape ``(act,)``.
        high: Upper ends.
        source: Index of the observation that carries each setpoint, or -1; static.
    """

    controlled: Affine
    setpoint: Float[Array, " loop"]
    state_setpoint: Float[Array, "state loop"]
    state_disturbance: Float[Array, "state output"]
    state: Float[Array, " state"]
    input_setpoint: Float[Array, "act loop"]
    input_disturbance: Float[Array, "act output"]
    input: Float[Array, " act"]
    reach: Float[Array, "loop act"]
    low: Float[Array, " act"]
    high: Float[Array, " act"]
    source: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def __call__(self, obs: Array, disturbance: Array) -> tuple[Array, Array, Bool[Array, ""]]:
        """State, input, and whether every setpoint is known."""
        setpoints = [self.setpoint[i] if j < 0 else obs[j] for i, j in enumerate(self.source)]
        setpoint_values = jnp.stack([value.astype(self.state.dtype) for value in setpoints])
        known = jnp.isfinite(setpoint_values)
        setpoint = self.controlled.to_scaled(
            jnp.where(known, setpoint_values, self.controlled.offset)
        )
        offset = times(self.input_disturbance, disturbance) + self.input
        unconstrained = times(self.input_setpoint, setpoint) + offset
        shortfall = jnp.clip(unconstrained, self.low, self.high) - unconstrained
        setpoint = setpoint + times(self.reach, shortfall)
        action = times(self.input_setpoint, setpoint) + offset
        state = times(self.state_setpoint, setpoint) + self.state
        state = state + times(self.state_disturbance, disturbance)
        return state, jnp.clip(action, self.low, self.high), jnp.all(known)


def times(matrix: Array, vector: Array) -> Array:
    """A matrix-vector product in full precision on accelerators too."""
    return jnp.matmul(matrix, vector, precision="highest")


class LinearQuadraticPolicy(eqx.Module):
    """``u = u_s - gain (s - s_s)``, clipped, with estimated state and desired steady state.

    Attributes:
        estimator: The observer.
        target: The steady state of the setpoints under the estimated disturbances.
        gain: Gain on the state and the inputs in transit, scaled, shape ``(act, state)``.
        low: Lower ends of the actions, physical units, shape ``(act,)``.
        high: Upper ends.
        rate: Largest rates of change, units per second; may be infinite.
        dt: Period in seconds.

    Source: Pannocchia and Rawlings, Disturbance models for offset-free model-predictive control,
    2003, for observer and target.
    """

    estimator: Estimator
    target: SteadyTarget
    gain: Float[Array, "act state"]
    low: Float[Array, " act"]
    high: Float[Array, " act"]
    rate: Float[Array, " act"]
    dt: Float[Array, ""]

    def initial_carry(self) -> EstimatorCarry:
        """The carry before the first measurement."""
        return self.estimator.initial_carry()

    def __call__(
        self, carry: EstimatorCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[EstimatorCarry, Float[Array, " act"]]:
        """Takes one step.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The carry and the action, inside range and rate. The action is NaN if a measurement or a
            setpoint is not finite; the observer then continues from the action sent.
        """
        carry, complete = self.estimator.update(carry, obs)
        states = self.gain.shape[1]
        state, disturbance = carry.state[:states], carry.state[states:]
        steady_state, steady_action, known = self.target(obs, disturbance)
        scaled = steady_action - times(self.gain, state - steady_state)
        unlimited = self.estimator.action.to_physical(scaled)
        action = jnp.where(complete & known, limit_action(unlimited, carry.previous, self), jnp.nan)
        return self.estimator.sent(carry, action), action

    def sent(self, carry: EstimatorCarry, action: Float[Array, " act"]) -> EstimatorCarry:
        """Reports the applied action to the observer."""
        return self.estimator.sent(carry, action)


def limit_action(action: Array, previous: Array, limits: Any) -> Array:
    """The nearest action that the range allows, and the rate from the actuator's position.

    From outside the range the action returns as fast as the rate allows.
    """
    inside = project_box(action, limits.low, limits.high)
    return limit_rate(inside, previous, limits.rate, dt=limits.dt)
