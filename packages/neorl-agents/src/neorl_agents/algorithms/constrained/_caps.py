"""CAPS: several policies of one body, of which a budget chooses in every step."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._iql import IQL
from neorl_agents.algorithms.constrained._lagrangian import MEMBERS, cost_critic_loss
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    counted_costs,
    critic_limits,
    critic_loss,
    require_count,
    require_number,
    single,
    value_metrics,
)
from neorl_agents.networks import BudgetedChoice, Network, q_values, tanh
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.costs import discounted_cost_target
from neorl_core.distributions import diagonal_gaussian_log_prob
from neorl_core.losses import advantage_weights, expectile_loss, masked_mean
from neorl_core.targets import td_target

LOG_STD_RANGE = (-5.0, 2.0)


class Heads(eqx.Module):
    """The means of all policies by one network, and a log-deviation for each of their channels."""

    mean: Network
    log_std: Float[Array, " head_act"]


class CAPS(BaseLearner):
    """Constraint-adaptive policy switching: the budget is chosen when the policy runs.

    ``n_heads`` policies share a body. The first is for the reward alone, the last for the least
    cost, and head ``k`` between them for ``w = k / (n_heads - 1)``: they clone the log by the
    advantage ``(1 - w) (q - V) - w sum_j (qc_j - Vc_j)``. One update is, in this order,

    1. values, with ``q = min_i Q'_i(s, a)`` and ``qc_j = max_i Qc'_ji(s, a)``: the upper expectile
       of ``q`` and, for every cost, the lower expectile of ``qc_j``;
    2. critics: ``mean (Q_i - y)^2``, ``y = r + discount (1 - terminated) V(s')``, and the same of
       every cost with ``Vc_j(s')``;
    3. heads: ``-mean_k mean min(exp(inverse_temperature advantage_k), max_weight) log pi_k(a|s)``;
    4. targets, by ``tau``.

    In every step the policy takes, of the means of all heads, the one with the largest ``Q`` among
    those whose ``Qc_j`` are within the budget of every cost; where none is, the one with the least
    part above it (:class:`neorl_agents.networks.BudgetedChoice`). The budgets are leaves of the
    policy, and those of the run's limits to begin with; another one needs no training.

    Deviations: the budget stands for a whole horizon in every step, where the code takes off what
    an episode has cost so far, which nobody tells a policy on a plant; limits are converted to
    values of the critics (:func:`neorl_agents.learning.critic_limits`), which the code compares as
    they are; a termination ends the costs too; all costs, not one, and two critics of each.

    Attributes:
        expectile: Expectile of the reward's value, in (0, 1).
        cost_expectile: Of the costs' values, in (0, 1): towards 1 the least cost in the log.
        inverse_temperature: Of the advantages, not negative.
        max_weight: Largest weight of a row.
        discount: Discount of rewards and costs per step, in [0, 1].
        tau: Fraction by which the targets move, in (0, 1].
        value_learning_rate: Learning rate of the values.
        critic_learning_rate: Learning rate of all critics.
        actor_learning_rate: Learning rate of the heads.
        chance: Steps above a limit per step that an episode may have on average; positive.
        n_heads: Number of policies, at least two; static.

    Source: Chemingui et al., Constraint-adaptive policy switching for offline safe reinforcement
    learning, arXiv 2412.18946, on implicit Q-learning; rates and weights are those of its code.
    """

    expectile: float = 0.7
    cost_expectile: float = 0.7
    inverse_temperature: float = 3.0
    max_weight: float = 100.0
    discount: float = 0.99
    tau: float = 0.005
    value_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    actor_learning_rate: float = 3e-4
    chance: float = 0.1
    n_heads: int = eqx.field(static=True, default=2)
    networks: Networks = Networks(hidden=(512, 512))

    reads: ClassVar[tuple[str, ...]] = (*IQL.reads, "cost")
    rates: ClassVar[Mapping[str, str]] = {
        **IQL.rates,
        "cost_value": "value_learning_rate",
        "cost_critics": "critic_learning_rate",
    }
    keeps_limits: ClassVar[bool] = True

    def check(self) -> None:
        """Raises a ``ValueError`` that names the first hyperparameter with a bad value."""
        open_ends = {"open_low": True, "open_high": True}
        require_number(self, "expectile", "cost_expectile", low=0, high=1, **open_ends)
        require_number(self, "inverse_temperature", low=0)
        require_number(self, "max_weight", "chance", low=0, open_low=True)
        require_number(self, "tau", low=0, high=1, open_low=True)
        require_count(self, "n_heads", least=2)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """A value of the reward and of every cost, two critics of each with targets, the heads."""
        keys, nets, members = jax.random.split(key, 5), self.networks, MEMBERS * spec.n_cost
        followed = {
            "critics": nets.of_both(spec, 1, keys[0], initialiser="orthogonal"),
            "cost_critics": nets.of_both(
                spec, 1, keys[1], members=members, initialiser="orthogonal"
            ),
        }
        width = self.n_heads * spec.n_action
        mean = nets.of_obs(spec, width, keys[4], initialiser="orthogonal", output=tanh)
        return followed | {
            "value": nets.of_obs(spec, 1, keys[2], initialiser="orthogonal"),
            "cost_value": nets.of_obs(spec, spec.n_cost, keys[3], initialiser="orthogonal"),
            "actor": Heads(mean, jnp.zeros(width, jnp.float32)),
        }, followed

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """One gradient step of values, critics and heads; the key is ignored."""
        rows, targets = single(rows), state.targets
        n_cost = len(state.preparation.cost_limit)
        q = jnp.min(q_values(targets["critics"], rows.obs, rows.action), axis=0)[:, None]
        qc = q_values(targets["cost_critics"], rows.obs, rows.action)
        qc = jnp.max(qc.reshape(MEMBERS, n_cost, -1), axis=0).T
        lower = 1 - self.cost_expectile
        state, value_loss, _ = self.descend(state, "value", _expectile, rows, q, self.expectile)
        state, cost_value_loss, _ = self.descend(state, "cost_value", _expectile, rows, qc, lower)

        now = state.parameters
        both = jnp.concatenate([rows.obs, rows.next_obs])
        v, next_v = jnp.split(now["value"](both), 2)
        vc, next_vc = jnp.split(now["cost_value"](both), 2)
        target = td_target(rows.reward, next_v[:, 0], rows.terminated, discount=self.discount)
        state, loss, mean_q = self.descend(state, "critics", critic_loss, rows, target)
        cost = counted_costs(state.preparation, rows.cost).T
        ended = jnp.broadcast_to(rows.terminated, cost.shape)
        cost_target = discounted_cost_target(cost, next_vc.T[None], ended, discount=self.discount)
        state, cost_loss, _ = self.descend(
            state, "cost_critics", cost_critic_loss, rows, cost_target
        )

        advantage, saved = (q - v)[:, 0], jnp.sum(vc - qc, axis=-1)
        share = jnp.linspace(0, 1, self.n_heads, dtype=q.dtype)[:, None]
        mixed = (1 - share) * advantage[None] + share * saved[None]
        weights = advantage_weights(
            mixed, inverse_temperature=self.inverse_temperature, max_weight=self.max_weight
        )
        state, actor_loss, _ = self.descend(state, "actor", _heads_loss, rows, weights)
        state = state.tracked("critics", "cost_critics", tau=self.tau)
        return state, {
            "value_loss": value_loss,
            "cost_value_loss": cost_value_loss,
            "critic_loss": loss,
            "cost_loss": cost_loss,
            "actor_loss": actor_loss,
            **value_metrics(mean_q, state.preparation, rows, discount=self.discount),
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The choice among the means of the heads under the run's limits, in physical units."""
        maps, now = state.preparation, state.parameters
        per_step = np.asarray([per == "step" for per in maps.cost_per], bool)
        budget = jnp.where(per_step, self.chance, maps.cost_limit * maps.cost_unit)
        unit = jnp.where(per_step, 1, maps.cost_unit)
        # Values of the critics are proportional to the limit, also where that is zero.
        ones = eqx.tree_at(lambda m: m.cost_limit, maps, jnp.ones_like(maps.cost_limit))
        one = critic_limits(ones, discount=self.discount, chance=1.0)
        choice = BudgetedChoice(
            now["actor"].mean, now["critics"], now["cost_critics"], budget.astype(jnp.float32),
            (one / unit).astype(jnp.float32), maps.low.shape[0],
        )  # fmt: skip
        return network_policy(maps, choice)


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
