"""Shared parts of Lagrangian learners: cost critics, and the update of the multipliers."""

from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    LearnerState,
    Metrics,
    UnitRows,
    counted_costs,
    critic_limit_units,
    critic_limits,
)
from neorl_agents.networks import Network, q_values
from neorl_core import Spec
from neorl_core.costs import (
    MultiplierState,
    discounted_cost_target,
    pid_multiplier_init,
    pid_multiplier_step,
)
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean

MEMBERS = 2
"""Number of critics per cost; the larger of their values is used."""

RATES = dict.fromkeys(("cost_critics", "multipliers"), "critic_learning_rate")
"""The fields that hold the learning rates of what a Lagrangian learner trains in addition."""

MOST_EXCESS = 1.0
"""Largest excess of a cost over its limit, as a fraction of the limit, so that the integral of a
bad start unwinds as fast as it grew."""

Fresh = tuple[dict[str, Any], dict[str, Any]]
"""Initial parameters and targets by name."""


class MultiplierSettings(eqx.Module):
    """The controller of the multipliers, one for every cost limit.

    Its error is the excess of a predicted cost over its limit: with ``unit = "limit"`` as a
    fraction of the limit and at most one, so that gains have the same effect for every limit,
    discount and plant; with ``unit = "cost"`` in the unit of the critic, as in OSRL, whose gains
    are 0.1, 0.003 and 0.001. A limit of zero has the unit of its cost.

    The default gains are the best of seven tried with ``iql_lag`` on one toy with a limit of 6. Two
    seeds took a cost of 5.9 and 6.3 after 40,000 updates, and of 5.0 and 4.6 after 10,000, where
    ``kp = 1`` and ``ki = 5e-5`` took 16.5. After 2,000 updates multipliers were still zero, since
    cost critics predicted too little. After 40,000 ``td3_bc_lag`` took 4.9, and with ``alpha = 20``
    5.7. ``bcq_lag`` took 3.9, as much as its ``phi`` permits there, and with ``phi = 0.5`` 5.7 in
    the mean of three seeds.

    Attributes:
        kp: Proportional gain: multiplier per unit of the error.
        ki: Integral gain, per update.
        kd: Derivative gain, on a rising cost only.
        largest: Largest multiplier, and largest integral part of it.
        allowed_violations: Mean number of steps per episode that may exceed a limit per step, which
            bounds the fraction of episodes that break it.
        unit: Unit of the error, ``"limit"`` or ``"cost"``; static.
    """

    kp: float = setting(9.0, low=0)
    ki: float = setting(0.27, low=0)
    kd: float = setting(0.0, low=0)
    largest: float = setting(10.0, above=0)
    allowed_violations: float = setting(0.1, above=0)
    unit: Literal["limit", "cost"] = eqx.field(static=True, default="limit")


class Multipliers(eqx.Module):
    """Prices of the costs in unit rewards, and the state of their controllers.

    No gradient moves them: the optimiser state that every parameter has stays unused.
    """

    value: Float[Array, " cost"]
    control: MultiplierState


def fresh_multipliers(n_cost: int) -> Multipliers:
    """Multipliers of zero: the learner begins as if it had no costs."""
    zeros = jnp.zeros(n_cost, jnp.float32)
    return Multipliers(zeros, jax.vmap(partial(pid_multiplier_init, delay=1))(zeros))


def with_cost_critics(learner: Any, spec: Spec, key: PRNGKeyArray, fresh: Fresh) -> Fresh:
    """Adds cost critics and multipliers to the parameters that ``fresh`` of a learner returned."""
    parameters, targets = fresh
    members = MEMBERS * spec.n_cost
    critics = learner.networks.obs_action_networks(
        spec, 1, jax.random.fold_in(key, 1), members=members, initialiser="uniform"
    )
    cost_critics = {"cost_critics": critics}
    multipliers = {"multipliers": fresh_multipliers(spec.n_cost)}
    return parameters | cost_critics | multipliers, targets | cost_critics


def cost_values(
    critics: Network,
    obs: Float[Array, "batch obs"],
    action: Float[Array, "batch act"],
    *,
    least: bool = False,
) -> Float[Array, "cost batch"]:
    """The larger value of the two critics of every cost; the smaller one if ``least``."""
    values = _by_member(q_values(critics, obs, action))
    return jnp.min(values, axis=0) if least else jnp.max(values, axis=0)


def cost_targets(
    state: LearnerState,
    rows: UnitRows,
    next_action: Float[Array, "batch act"],
    discount: float | Float[Array, ""],
) -> Float[Array, "cost batch"]:
    """``c + discount (1 - terminated) max_i Qc'_i(s', a')`` for every cost."""
    next_q = q_values(state.targets["cost_critics"], rows.next_obs, next_action)
    cost = counted_costs(state.preparation, rows.cost).T
    terminated = jnp.broadcast_to(rows.terminated, cost.shape)
    return discounted_cost_target(cost, _by_member(next_q), terminated, discount=discount)


def cost_critic_loss(
    critics: Network, rows: UnitRows, target: Float[Array, "cost batch"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The squared errors, averaged over rows and summed over critics and costs; the mean value."""
    values = _by_member(q_values(critics, rows.obs, rows.action))
    errors = jnp.sum(jnp.square(values - target[None]), axis=(0, 1))
    mean_value = masked_mean(jnp.mean(values, axis=(0, 1)), rows.mask)
    return masked_mean(errors, rows.mask), mean_value


def multiplier_step(
    learner: Any,
    state: LearnerState,
    rows: UnitRows,
    action: Float[Array, "batch act"],
    *,
    least: bool = False,
) -> tuple[LearnerState, Metrics]:
    """Takes one step of every multiplier, from the mean cost that critics predict of ``action``.

    With ``least`` the smaller of two cost critics is used. The metrics are those of
    :func:`controlled`.
    """
    settings, maps = learner.multiplier, state.preparation
    limits = critic_limits(
        maps, discount=learner.discount, allowed_violations=settings.allowed_violations
    )
    values = cost_values(state.parameters["cost_critics"], rows.obs, action, least=least)
    mean_value = jax.vmap(masked_mean, in_axes=(0, None))(values, rows.mask)
    units = critic_limit_units(maps, discount=learner.discount)
    return controlled(settings, state, mean_value, limits, units)


def controlled(
    settings: MultiplierSettings,
    state: LearnerState,
    measured: Float[Array, " cost"],
    limits: Float[Array, " cost"],
    units: Float[Array, " cost"],
) -> tuple[LearnerState, Metrics]:
    """Takes one step of every multiplier's controller.

    ``measured``, ``limits`` and ``units``, which stand in for limits of zero, are costs in the same
    unit. The metrics are the largest multiplier, and the largest excess of a cost over its limit in
    the unit of the controller.
    """
    excess = measured - limits
    if settings.unit == "limit":
        excess = excess / jnp.where(limits > 0, limits, units)
        measured, limits = jnp.minimum(excess, MOST_EXCESS), jnp.zeros_like(limits)
    step = partial(
        pid_multiplier_step,
        kp=settings.kp,
        ki=settings.ki,
        kd=settings.kd,
        max_integral=settings.largest,
        max_multiplier=settings.largest,
    )
    control, value = jax.vmap(step)(state.parameters["multipliers"].control, measured, limits)
    state = state.with_parameters(multipliers=Multipliers(value, control))
    return state, {"multiplier": jnp.max(value), "cost_excess": jnp.max(excess)}


def _by_member(values: Float[Array, "all batch"]) -> Float[Array, "ens cost batch"]:
    return values.reshape(MEMBERS, -1, values.shape[-1])
