"""Linear model-predictive control: one quadratic program per step, in one compiled program."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.controllers._linear_quadratic import (
    Estimator,
    EstimatorCarry,
    SteadyTarget,
    limit_action,
    times,
)

# Convex quadratic programs of one form, solved in a fixed number of steps.


TO_BOUNDARY = 0.995
"""Fraction of the distance to the nearest limit that a step covers."""


class Solution(NamedTuple):
    """A solution of a quadratic program.

    Attributes:
        x: Shape ``(n,)``; NaN if the program is not finite.
        multipliers: Multipliers of the limits, not negative, shape ``(limit,)``.
        error: The largest of the gradient of the Lagrangian and the violation, each relative to the
            size of its terms, and the mean product of multiplier and slack; NaN if not finite.
    """

    x: Float[Array, " n"]
    multipliers: Float[Array, " limit"]
    error: Float[Array, ""]


class QuadraticProgram(eqx.Module):
    """The fixed part of ``min 1/2 x^T H x + g^T x + sum_i v_i^2 / (2 c_i)``, ``G x <= h + v``.

    A limit with softness ``c = 0`` is hard; a soft one may be exceeded by ``v`` at the cost above.
    The solver is a primal-dual interior point method with a predictor and a corrector; every step
    factorises ``H + G^T diag(1 / (s / z + c)) G`` once. The number of steps is fixed, and the best
    point of all steps is returned, so rounding errors in the last steps do no harm.

    The program is solved in float64 whatever its dtype. Near the optimum the gradient is a small
    difference of large multipliers: in float32 the result was off by up to a hundredth, by an
    amount that depended on the processor and on the compiler's fusion.

    Attributes:
        h: ``H``, symmetric positive definite, shape ``(n, n)``.
        rows: ``G``, shape ``(limit, n)``.
        softness: ``c``, not negative, shape ``(limit,)``.
        steps: Number of steps; static.

    Source: Mehrotra, On the implementation of a primal-dual interior point method, 1992; Nocedal
    and Wright, Numerical optimization, 2006, algorithm 16.4.
    """

    h: Float[Array, "n n"]
    rows: Float[Array, "limit n"]
    softness: Float[Array, " limit"]
    steps: int = eqx.field(static=True)

    def solve(self, g: Float[Array, " n"], limits: Float[Array, " limit"]) -> Solution:
        """The solution for one linear term and one set of limits, in the dtype of ``g``."""
        with jax.enable_x64(True):
            program, *data = _in_dtype(jnp.float64, (self, g, limits))
            return _in_dtype(g.dtype, program._solve(*data))

    def _solve(self, g: Array, limits: Array) -> Solution:
        free = -jnp.linalg.solve(self.h, g)
        if not len(limits):
            return Solution(free, limits, jnp.max(jnp.abs(_times(self.h, free) + g)))
        slack = limits - _times(self.rows, free)
        shift = jnp.maximum(1, -jnp.min(slack))
        start = _Point(free, jnp.maximum(slack, shift), jnp.full_like(limits, 1) * shift)
        first = (start, start, self._error(start, g, limits))

        def step(state: tuple, _: None) -> tuple[tuple, None]:
            point, best, least = state
            point = self._step(point, g, limits)
            error = self._error(point, g, limits)
            improved = error < least
            best = jax.tree.map(lambda a, b: jnp.where(improved, a, b), point, best)
            return (point, best, jnp.where(improved, error, least)), None

        (_, best, error), _ = jax.lax.scan(step, first, None, length=self.steps)
        return Solution(best.x, best.z, error)

    def _error(self, point: "_Point", g: Array, limits: Array) -> Array:
        x, s, z = point
        hessian_term, constraint_term = _times(self.h, x), _times(self.rows.T, z)
        size = 1 + jnp.max(jnp.abs(g)) + jnp.max(jnp.abs(hessian_term))
        dual_residual = jnp.max(jnp.abs(hessian_term + g + constraint_term)) / size
        value = _times(self.rows, x)
        size = 1 + jnp.max(jnp.abs(value)) + jnp.max(jnp.abs(self.softness * z))
        primal_residual = jnp.max(jnp.abs(value + s - self.softness * z - limits)) / size
        return jnp.maximum(jnp.maximum(dual_residual, primal_residual), jnp.mean(s * z))

    def _step(self, point: "_Point", g: Array, limits: Array) -> "_Point":
        x, s, z = point
        dual_residual = _times(self.h, x) + g + _times(self.rows.T, z)
        primal_residual = _times(self.rows, x) + s - self.softness * z - limits
        weight = 1 / (s / z + self.softness)
        system = self.h + _times(self.rows.T, weight[:, None] * self.rows)
        factor = jax.scipy.linalg.cho_factor((system + system.T) / 2, lower=True)

        def direction(product: Array) -> _Point:
            residual = primal_residual - product / z
            rhs = -dual_residual - _times(self.rows.T, weight * residual)
            dx = jax.scipy.linalg.cho_solve(factor, rhs)
            dz = weight * (_times(self.rows, dx) + residual)
            return _Point(dx, (-product - s * dz) / z, dz)

        mean = jnp.mean(s * z)
        affine = direction(s * z)
        step_lengths = _longest(s, affine.s, 1.0), _longest(z, affine.z, 1.0)
        mean_after = jnp.mean((s + step_lengths[0] * affine.s) * (z + step_lengths[1] * affine.z))
        centre = (mean_after / mean) ** 3 * mean
        move = direction(s * z + affine.s * affine.z - centre)
        length = jnp.minimum(_longest(s, move.s, TO_BOUNDARY), _longest(z, move.z, TO_BOUNDARY))
        return _Point(x + length * move.x, s + length * move.s, z + length * move.z)


class _Point(NamedTuple):
    """Variables, slacks and multipliers; slacks and multipliers are positive."""

    x: Array
    s: Array
    z: Array


def _times(matrix: Array, other: Array) -> Array:
    """A product whose dtype is that of its factors, even under a ``vmap`` from outside.

    ``vmap`` of a ``scan`` batches the body after :func:`jax.enable_x64` has been left. A product
    that requests float64 for its result, as ``jnp.matmul`` does, then becomes float32.
    """
    inner = (((1,), (0,)), ((), ()))
    return jax.lax.dot_general(matrix, other, inner, precision="highest")


def _in_dtype(dtype: Any, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, dtype), tree)


def _longest(value: Array, move: Array, step_lengths: float) -> Array:
    """The largest fraction of a move, at most 1, after which the value stays positive."""
    part = jnp.where(move < 0, -value / jnp.where(move < 0, move, -1), jnp.inf)
    return jnp.minimum(step_lengths * jnp.min(part), 1)


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
