"""Linear-quadratic control with an observer, integral action and a steady-state target."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.controllers._estimator import Estimator, EstimatorCarry, SteadyTarget, times
from neorl_core.projections import limit_rate, project_box


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
