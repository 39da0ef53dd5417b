"""Multipliers for on-policy learners: the cost of a rollout, and the priced advantage."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.algorithms.constrained._lagrangian import MultiplierSettings, controlled
from neorl_agents.algorithms.online._on_policy import Estimates, ScaledValue
from neorl_agents.learning import LearnerState, Metrics, UnitRows, counted_costs, step_limits

GAINS = MultiplierSettings(kp=0.5, ki=0.02, kd=0.1)
"""Gains per rollout instead of per gradient step."""


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
    units = jnp.full_like(allowed, 1 / preparation.horizon)
    state, metrics = controlled(settings, state, mean_cost, allowed, units)
    multipliers = state.parameters["multipliers"].value
    scaled_advantages = estimates.advantages / value.scale[None]
    advantage = scaled_advantages[:, 0] - scaled_advantages[:, 1:] @ multipliers
    return state, advantage, metrics
