"""Multipliers for on-policy learners: the cost of a rollout, and the priced advantage."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.algorithms.constrained._lagrangian import Multipliers, MultiplierSettings
from neorl_agents.algorithms.online._on_policy import Estimates, ScaledValue
from neorl_agents.learning import LearnerState, Metrics, UnitRows, counted_costs, step_limits
from neorl_core.costs import pid_multiplier_step

MOST_EXCESS = 1.0
"""Largest excess of a rollout over its limit, as a fraction of the limit, so that the integral
of a bad start unwinds as fast as it grew."""

GAINS = MultiplierSettings(kp=0.5, ki=0.02, kd=0.1)
"""Gains per rollout and per fraction of the limit, not per gradient step and unit of cost."""


def lagrangian_advantage(
    self: Any, state: LearnerState, rows: UnitRows, estimates: Estimates, value: ScaledValue
) -> tuple[LearnerState, Float[Array, " row"], Metrics]:
    """Takes one step of every multiplier; returns the advantage minus the weighted costs.

    It is the ``penalised_advantage`` of a learner with the field ``multiplier``, whose state has
    the parameter ``multipliers``.

    Let ``J_j`` be the cost of an episode, estimated as the rollout's mean per step times the
    horizon, and ``d_j`` its limit. The multiplier takes one step of its PID controller on
    ``min((J_j - d_j) / d_j, 1)``; for a limit of zero the excess is in units of the cost. The
    advantage is

    ``A / s - sum_j multiplier_j A_j / s_j``

    where ``s`` and ``s_j`` are the standard deviations of the returns of reward and cost so far, so
    that a multiplier has the same effect on every plant.

    The metrics are the largest multiplier, and the largest excess of a cost over its limit as a
    fraction of the limit.
    """
    settings, preparation = self.multiplier, state.preparation
    costs = counted_costs(preparation, rows.cost)
    mean_cost = jnp.mean(costs.reshape(-1, costs.shape[-1]), axis=0)
    allowed = step_limits(preparation, allowed_violations=settings.allowed_violations)
    unit = jnp.where(allowed > 0, allowed, 1 / preparation.horizon)
    excess = (mean_cost - allowed) / unit
    step = partial(
        pid_multiplier_step,
        kp=settings.kp,
        ki=settings.ki,
        kd=settings.kd,
        max_integral=settings.largest,
        max_multiplier=settings.largest,
    )
    control, multipliers = jax.vmap(step)(
        state.parameters["multipliers"].control,
        jnp.minimum(excess, MOST_EXCESS),
        jnp.zeros_like(excess),
    )
    state = state.with_parameters(multipliers=Multipliers(multipliers, control))
    scaled_advantages = estimates.advantages / value.scale[None]
    advantage = scaled_advantages[:, 0] - scaled_advantages[:, 1:] @ multipliers
    return state, advantage, {"multiplier": jnp.max(multipliers), "cost_excess": jnp.max(excess)}
