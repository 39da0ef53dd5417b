"""CAPS: several policies with a shared body; a budget chooses among them in every step."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.algorithms._iql import IQL
from neorl_agents.algorithms.constrained._lagrangian import MEMBERS, cost_critic_loss
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    counted_cost_unit,
    counted_costs,
    critic_limit_units,
    critic_loss,
    only_batch,
    value_metrics,
)
from neorl_agents.networks import BudgetedChoice, Network, init_mlp, q_values, tanh
from neorl_agents.networks._windows import FLAGS
from neorl_agents.policies import BudgetedPolicy, Preparation, network_policy
from neorl_core import Spec
from neorl_core.costs import discounted_cost_target
from neorl_core.distributions import diagonal_gaussian_log_prob
from neorl_core.infrastructure import setting
from neorl_core.losses import advantage_weights, expectile_loss, masked_mean
from neorl_core.targets import td_target

LOG_STD_RANGE = (-5.0, 2.0)


class Heads(eqx.Module):
    """One network with the means of all policies, and a log standard deviation for each channel."""

    mean: Network
    log_std: Float[Array, " head_act"]


class CAPS(BaseLearner):
    """Constraint-adaptive policy switching: the budget is chosen at run time.

    ``n_heads`` policies share a body and clone the log, each with its own weights. Let
    ``w = min(exp(inverse_temperature (q - V)), max_weight)``, and let ``w_c`` be the same of
    ``sum_j (Vc_j - qc_j)``. The first head has the weight ``w``, for the reward only, the last has
    ``w_c``, for the smallest cost, and head ``k`` between them ``w + 2 k / (n_heads - 1) w_c``. One
    update takes these steps, in this order; 2 and 3 use the values from before it:

    1. values, with ``q = min_i Q'_i(s, a)`` and ``qc_j = max_i Qc'_ji(s, a)``: the upper expectile
       of ``q`` and, for every cost, the lower expectile of ``qc_j``;
    2. critics: ``mean (Q_i - y)^2``, ``y = r + discount (1 - terminated) V(s')``, and the same for
       every cost with ``Vc_j(s')``;
    3. heads: the mean over them of ``-mean w_k log pi_k(a|s)``;
    4. targets, by ``tau``;
    5. cost predictor: a network that predicts the costs of a step from ``(s, a, s')``, by its
       squared error.

    In every step the policy considers the mean action of each head and takes the one with the
    largest ``Q`` among those whose ``Qc_j`` fit what is left of the budget of every cost. If none
    fits, it takes the one that exceeds its budget by the smallest fraction
    (:class:`neorl_agents.networks.BudgetedChoice`). A policy does not observe its costs at run
    time, so it subtracts the predicted ones (:class:`neorl_agents.policies.BudgetedPolicy`). The
    budgets are leaves of the policy, initially the run's limits; changing them needs no training.

    Deviations: the policy predicts its costs, which the simulator gives to the code; the remaining
    budget is assumed to be spent evenly over the rest of the horizon and converted like a whole one
    (:func:`neorl_agents.learning.critic_limits`), because the critics bootstrap where episodes are
    truncated (the code sums only over the rest, and its critics stop there); the standard
    deviations of heads are trained, within ``exp([-5, 2])`` (the code does not pass them to its
    optimiser, so they stay 1); the heads' rate is constant (the code lets it fall over a million
    updates); a termination ends the costs too; all costs instead of one, with two critics of each.

    Attributes:
        expectile: Expectile of the reward's value.
        cost_expectile: Expectile of the costs' values: towards 1 the smallest logged
            cost.
        inverse_temperature: Inverse temperature of the advantages.
        max_weight: Largest weight of a row.
        discount: Discount of rewards and costs per step.
        tau: Fraction by which the targets move.
        value_learning_rate: Learning rate of the values.
        critic_learning_rate: Learning rate of all critics.
        actor_learning_rate: Learning rate of the heads.
        predictor_learning_rate: Learning rate of the cost predictor.
        allowed_violations: Mean number of steps per episode that may exceed a limit per step.
        n_heads: Number of policies; static.

    Source: Chemingui et al., Constraint-adaptive policy switching for offline safe reinforcement
    learning, arXiv 2412.18946, on implicit Q-learning; rates and weights are those of its code.
    """

    expectile: float = setting(0.7, above=0, below=1)
    cost_expectile: float = setting(0.7, above=0, below=1)
    inverse_temperature: float = setting(3.0, low=0)
    max_weight: float = setting(100.0, above=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    value_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    actor_learning_rate: float = setting(3e-4, above=0)
    predictor_learning_rate: float = setting(1e-3, above=0)
    allowed_violations: float = setting(0.1, above=0)
    n_heads: int = setting(2, low=2, static=True)
    networks: Networks = Networks(hidden=(512, 512))

    reads: ClassVar[tuple[str, ...]] = (*IQL.reads, "cost")
    rates: ClassVar[Mapping[str, str]] = {
        **IQL.rates,
        "cost_value": "value_learning_rate",
        "cost_critics": "critic_learning_rate",
        "predictor": "predictor_learning_rate",
    }
    keeps_limits: ClassVar[bool] = True

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values and critics of the reward and of every cost, the heads, and the cost predictor."""
        keys, nets, members = jax.random.split(key, 6), self.networks, MEMBERS * spec.n_cost
        with_targets = {
            "critics": nets.obs_action_networks(spec, 1, keys[0], initialiser="orthogonal"),
            "cost_critics": nets.obs_action_networks(
                spec, 1, keys[1], members=members, initialiser="orthogonal"
            ),
        }
        width = self.n_heads * spec.n_action
        mean = nets.obs_network(spec, width, keys[4], initialiser="orthogonal", output=tanh)
        n_inputs = 2 * spec.n_obs + spec.n_action
        return with_targets | {
            "predictor": init_mlp((n_inputs, *nets.hidden, spec.n_cost), keys[5]),
            "value": nets.obs_network(spec, 1, keys[2], initialiser="orthogonal"),
            "cost_value": nets.obs_network(spec, spec.n_cost, keys[3], initialiser="orthogonal"),
            "actor": Heads(mean, jnp.zeros(width, jnp.float32)),
        }, with_targets

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of values, critics, heads and cost predictor."""
        rows, targets = only_batch(rows), state.targets
        n_cost = len(state.preparation.cost_limit)
        q = jnp.min(q_values(targets["critics"], rows.obs, rows.action), axis=0)[:, None]
        qc = q_values(targets["cost_critics"], rows.obs, rows.action)
        qc = jnp.max(qc.reshape(MEMBERS, n_cost, -1), axis=0).T
        before = state.parameters
        both = jnp.concatenate([rows.obs, rows.next_obs])
        v, next_v = jnp.split(before["value"](both), 2)
        vc, next_vc = jnp.split(before["cost_value"](both), 2)
        lower_expectile = 1 - self.cost_expectile
        state, value_loss, _ = self.descend(state, "value", _expectile, rows, q, self.expectile)
        state, cost_value_loss, _ = self.descend(
            state, "cost_value", _expectile, rows, qc, lower_expectile
        )

        target = td_target(rows.reward, next_v[:, 0], rows.terminated, discount=self.discount)
        state, loss, mean_q = self.descend(state, "critics", critic_loss, rows, target)
        cost = counted_costs(state.preparation, rows.cost).T
        terminated = jnp.broadcast_to(rows.terminated, cost.shape)
        cost_target = discounted_cost_target(
            cost, next_vc.T[None], terminated, discount=self.discount
        )
        state, cost_loss, cost_q = self.descend(
            state, "cost_critics", cost_critic_loss, rows, cost_target
        )

        advantage, cost_advantage = (q - v)[:, 0], jnp.sum(vc - qc, axis=-1)
        weights = self._weights(advantage, cost_advantage)
        state, actor_loss, _ = self.descend(state, "actor", _heads_loss, rows, weights)
        state = state.with_averaged_targets("critics", "cost_critics", tau=self.tau)
        steps = predictor_inputs(state.preparation, rows)
        state, predictor_loss, error = self.descend(
            state, "predictor", _predictor_loss, rows, *steps, cost.T
        )
        return state, {
            "value_loss": value_loss,
            "cost_value_loss": cost_value_loss,
            "critic_loss": loss,
            "cost_loss": cost_loss,
            "cost_q": cost_q,
            "actor_loss": actor_loss,
            "predictor_loss": predictor_loss,
            "cost_prediction_error": error,
            **value_metrics(mean_q, state.preparation, rows, discount=self.discount),
        }

    def policy(self, state: LearnerState) -> BudgetedPolicy:
        """The choice among the heads under the run's limits, in physical units."""
        maps, parameters = state.preparation, state.parameters
        per_step = np.asarray([per == "step" for per in maps.cost_per], bool)
        budget = jnp.where(per_step, self.allowed_violations, maps.cost_limit * maps.cost_unit)
        unit = jnp.where(per_step, 1, maps.cost_unit)
        unit_value = critic_limit_units(maps, discount=self.discount)
        choice = BudgetedChoice(
            parameters["actor"].mean, parameters["critics"], parameters["cost_critics"],
            budget.astype(jnp.float32), (unit_value / unit).astype(jnp.float32), maps.low.shape[0],
        )  # fmt: skip
        inner = network_policy(maps, choice)
        return BudgetedPolicy(
            inner,
            parameters["predictor"],
            counted_cost_unit(maps).astype(jnp.float32),
            maps.horizon,
        )

    def _weights(
        self, reward_advantage: Float[Array, " batch"], cost_advantage: Float[Array, " batch"]
    ) -> Float[Array, "head batch"]:
        """The weights of every row for every head, from its advantages in reward and cost."""
        limits = {
            "inverse_temperature": self.inverse_temperature, "max_weight": self.max_weight,
        }  # fmt: skip
        reward_weights, cost_weights = (
            advantage_weights(x, **limits) for x in (reward_advantage, cost_advantage)
        )
        indices = np.arange(1, self.n_heads - 1)[:, None]
        fractions = jnp.asarray(2 * indices / (self.n_heads - 1), reward_weights.dtype)
        return jnp.concatenate(
            [
                reward_weights[None],
                reward_weights[None] + fractions * cost_weights[None],
                cost_weights[None],
            ]
        )


def _expectile(
    value: Network, rows: UnitRows, q: Float[Array, "batch value"], expectile: Float[Array, ""]
) -> tuple[Float[Array, ""], None]:
    loss = jnp.sum(expectile_loss(value(rows.obs), q, expectile=expectile), axis=-1)
    return masked_mean(loss, rows.mask), None


def _heads_loss(
    actor: Heads, rows: UnitRows, weights: Float[Array, "head batch"]
) -> tuple[Float[Array, ""], None]:
    n_heads, batch = weights.shape
    means = actor.mean(rows.obs).reshape(batch, n_heads, -1)
    log_std = jnp.clip(actor.log_std.reshape(1, n_heads, -1), *LOG_STD_RANGE)
    action = jnp.broadcast_to(rows.action[:, None], means.shape)
    density = diagonal_gaussian_log_prob(action, means, log_std)
    return -masked_mean(jnp.mean(weights.T * density, axis=1), rows.mask), None


def predictor_inputs(
    maps: Preparation, rows: UnitRows
) -> tuple[Float[Array, "batch step"], Bool[Array, " batch"]]:
    """Inputs ``[obs, action, next obs]`` of a cost predictor, and whether all of them are known.

    If rows hold windows, the newest observations are taken.
    """
    n_obs, n_action = maps.obs.offset.shape[0], maps.low.shape[0]
    known = jnp.ones(len(rows.action), bool) if rows.mask is None else rows.mask
    obs, following = rows.obs, rows.next_obs
    if maps.window:
        width = n_obs + n_action + FLAGS
        obs, following = obs[:, -width:], following[:, -width:]
        known = known & (obs[:, -FLAGS] > 0) & (following[:, -FLAGS] > 0)
    return jnp.concatenate([obs[:, :n_obs], rows.action, following[:, :n_obs]], axis=-1), known


def _predictor_loss(
    predictor: Network,
    rows: UnitRows,
    steps: Float[Array, "batch step"],
    known: Bool[Array, " batch"],
    cost: Float[Array, "batch cost"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The squared error, and the mean error of the worst predicted cost over the rows."""
    error = jnp.where(known[:, None], predictor(steps) - cost, 0)
    means = jax.vmap(masked_mean, in_axes=(1, None))(error, known)
    return masked_mean(jnp.mean(jnp.square(error), axis=-1), known), jnp.max(jnp.abs(means))
