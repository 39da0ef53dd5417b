"""Prices of costs for learners from fresh rollouts: what a rollout costs, and what is paid."""

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
"""A rollout further above its limit than by the limit itself counts as that far above it, so that
the integral of a bad beginning is paid back as fast as it grew."""

GAINS = MultiplierSettings(kp=0.5, ki=0.02, kd=0.1)
"""Per rollout and per part of the limit, not per gradient step and unit of cost."""


def priced_advantage(
    learner: Any, state: LearnerState, rows: UnitRows, about: Estimates, value: ScaledValue
) -> tuple[LearnerState, Float[Array, " row"], Metrics]:
    """One step of every multiplier, and the advantage less the prices of the costs.

    With ``J_j`` the cost of an episode as the rollout has it, the mean of a step times the horizon,
    and ``d_j`` its limit, the multiplier takes one step of its PID controller on
    ``min((J_j - d_j) / d_j, 1)``; a limit of zero counts in units of the cost. The advantage is

    ``A / s - sum_j multiplier_j A_j / s_j``

    where ``s`` and ``s_j`` are the deviations of the returns of reward and cost so far, so that a
    multiplier means the same on every plant.

    Args:
        learner: A learner with the field ``multiplier``.
        state: State with the parameter ``multipliers``.
        rows: The rollout.
        about: Its advantages, the reward's first.
        value: Values with the scales.

    Returns:
        The state, the advantage, and the largest multiplier with the largest excess of a cost over
        its limit, as a part of the limit.
    """
    settings, preparation = learner.multiplier, state.preparation
    costs = counted_costs(preparation, rows.cost)
    spent = jnp.mean(costs.reshape(-1, costs.shape[-1]), axis=0)
    allowed = step_limits(preparation, chance=settings.chance)
    unit = jnp.where(allowed > 0, allowed, 1 / preparation.horizon)
    excess = (spent - allowed) / unit
    step = partial(
        pid_multiplier_step,
        kp=settings.kp,
        ki=settings.ki,
        kd=settings.kd,
        max_integral=settings.largest,
        max_multiplier=settings.largest,
    )
    control, prices = jax.vmap(step)(
        state.parameters["multipliers"].control,
        jnp.minimum(excess, MOST_EXCESS),
        jnp.zeros_like(excess),
    )
    state = state.with_parameters(multipliers=Multipliers(prices, control))
    gained = about.advantages / value.scale[None]
    advantage = gained[:, 0] - gained[:, 1:] @ prices
    return state, advantage, {"multiplier": jnp.max(prices), "cost_excess": jnp.max(excess)}
