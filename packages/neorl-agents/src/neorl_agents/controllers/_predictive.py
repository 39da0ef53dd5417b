"""Linear model-predictive control: one quadratic program per step, in one compiled program."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.controllers._estimator import Estimator, EstimatorCarry, SteadyTarget, times
from neorl_agents.controllers._linear_quadratic import limit_action
from neorl_agents.controllers._quadratic_program import QuadraticProgram


class PredictiveCarry(NamedTuple):
    """Carry of a predictive controller.

    Attributes:
        estimator: Carry of the observer.
        error: Error of the last solution, as defined in :class:`Solution`.
        converged: Whether it was within tolerance. If not, the action is the first move of the best
            point found, still inside range and rate.
    """

    estimator: EstimatorCarry
    error: Float[Array, ""]
    converged: Bool[Array, ""]


class Plan(eqx.Module):
    """The quadratic program of one step, as linear maps of the quantities known then, scaled.

    Attributes:
        program: The fixed part; the variables are the inputs minus those of the target, in the
            order of the periods.
        gradient: Gradient with respect to the state minus the target state, shape ``(n, state)``.
        base: Limits if all of the following are zero, shape ``(limit,)``.
        error: Matrix that multiplies the state minus the target state and is subtracted from the
            limits, shape ``(limit, state)``.
        state: The same for the target state, shape ``(limit, state)``.
        disturbance: The same for the disturbances, shape ``(limit, output)``.
        action: The same for the target input, shape ``(limit, act)``.
        previous: Matrix that multiplies the last input and is added, shape ``(limit, act)``.
    """

    program: QuadraticProgram
    gradient: Float[Array, "n state"]
    base: Float[Array, " limit"]
    error: Float[Array, "limit state"]
    state: Float[Array, "limit state"]
    disturbance: Float[Array, "limit output"]
    action: Float[Array, "limit act"]
    previous: Float[Array, "limit act"]


class PredictivePolicy(eqx.Module):
    """The first move of the best plan over a horizon, within range, rate and soft output limits.

    Minimises the cost of :class:`LinearQuadraticPolicy` over the horizon plus its cost-to-go
    beyond, so if no limit is active, both act the same. Range and rate of the inputs hold exactly,
    by a final clip. Limits of outputs may be exceeded, at a cost, so that a plan always exists.

    Attributes:
        estimator: The observer.
        target: The steady state of the setpoints under the estimated disturbances.
        plan: The quadratic program.
        low: Lower ends of the actions, physical units, shape ``(act,)``.
        high: Upper ends.
        rate: Largest rates of change, units per second; may be infinite.
        dt: Period in seconds.
        tolerance: Largest error of a solution that is taken as converged.

    Source: Rawlings, Mayne and Diehl, Model predictive control: theory, computation, and design,
    2017, chapters 1 and 2; Scokaert and Rawlings, Feasibility issues in linear model predictive
    control, 1999, for soft limits.
    """

    estimator: Estimator
    target: SteadyTarget
    plan: Plan
    low: Float[Array, " act"]
    high: Float[Array, " act"]
    rate: Float[Array, " act"]
    dt: Float[Array, ""]
    tolerance: Float[Array, ""]

    def initial_carry(self) -> PredictiveCarry:
        """The carry before the first measurement."""
        zero = jnp.zeros_like(self.tolerance)
        return PredictiveCarry(self.estimator.initial_carry(), zero, jnp.ones((), jnp.bool_))

    def __call__(
        self, carry: PredictiveCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[PredictiveCarry, Float[Array, " act"]]:
        """Takes one step.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The carry, which records whether the program was solved, and the action, inside range
            and rate; NaN if a measurement or a setpoint is not finite.
        """
        estimate, complete = self.estimator.update(carry.estimator, obs)
        plan, states = self.plan, self.plan.gradient.shape[1]
        state, disturbance = estimate.state[:states], estimate.state[states:]
        steady_state, steady_action, target_known = self.target(obs, disturbance)
        deviation = state - steady_state
        position = jnp.clip(estimate.previous, self.low, self.high)
        previous = self.estimator.action.to_scaled(position)
        limits = plan.base - times(plan.error, deviation) - times(plan.state, steady_state)
        limits = limits - times(plan.disturbance, disturbance) - times(plan.action, steady_action)
        limits = limits + times(plan.previous, previous)
        solution = plan.program.solve(times(plan.gradient, deviation), limits)
        first = steady_action + solution.x[: len(steady_action)]
        action = limit_action(self.estimator.action.to_physical(first), estimate.previous, self)
        action = jnp.where(complete & target_known, action, jnp.nan)
        new = PredictiveCarry(
            self.estimator.sent(estimate, action), solution.error, solution.error <= self.tolerance
        )
        return new, action

    def sent(self, carry: PredictiveCarry, action: Float[Array, " act"]) -> PredictiveCarry:
        """Reports the applied action to the observer."""
        return carry._replace(estimator=self.estimator.sent(carry.estimator, action))
