"""TD3+BC with a critic and a controlled multiplier for every cost limit."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._delayed import delayed_critic_steps, smoothed_action
from neorl_agents.algorithms._td3_bc import TD3BC
from neorl_agents.algorithms._td3_bc import _actor_loss as actor_loss_without_costs
from neorl_agents.algorithms.constrained._lagrangian import (
    RATES,
    MultiplierSettings,
    cost_critic_loss,
    cost_targets,
    cost_values,
    multiplier_step,
    with_cost_critics,
)
from neorl_agents.learning import LearnerState, Metrics, UnitRows, all_batches, nth_batch
from neorl_agents.networks import Network, first_q_value
from neorl_core import Spec
from neorl_core.losses import masked_mean


class TD3BCLag(TD3BC):
    """TD3+BC (:class:`TD3BC`) whose actor pays for costs through controlled multipliers.

    Beside the critics of the reward, two critics for every cost are trained at the same smoothed
    action ``a'``, towards

    ``y_j = c_j + discount (1 - terminated) max_i Qc'_ji(s', a')``.

    Then the multiplier of every limit takes one step of a PID controller on
    ``e_j = mean max_i Qc_ji(s, pi(s)) - d_j`` (:func:`neorl_core.costs.pid_multiplier_step`, with a
    clamped integrator), and the actor descends

    ``-lam mean (Q_1(s, pi(s)) - sum_j multiplier_j max_i Qc_ji(s, pi(s))) + mean (pi(s) - a)^2``

    with TD3+BC's ``lam = alpha / mean |Q_1|``, so a multiplier that rises for long enough outweighs
    even the distance to the log. (If divided by one plus the multipliers, as in the source, it
    could not.)

    A limit per episode becomes ``d_j`` by :func:`neorl_agents.learning.critic_limits`; for a limit
    per step, the steps above it are counted, and ``multiplier.allowed_violations`` of them are
    allowed per episode. With multipliers of zero this is TD3+BC.

    Attributes:
        multiplier: The controller of the multipliers.

    The other fields are those of :class:`TD3BC`.

    Source: the multiplier of Stooke, Achiam and Abbeel, Responsive safety in reinforcement
    learning by PID Lagrangian methods, arXiv 2007.03964, with the gains of BCQ-Lag and BEAR-Lag in
    OSRL; the combination with TD3+BC is not a published learner.
    """

    multiplier: MultiplierSettings = MultiplierSettings()

    reads: ClassVar[tuple[str, ...]] = (*TD3BC.reads, "cost")
    rates: ClassVar[Mapping[str, str]] = {**TD3BC.rates, **RATES}
    supports_n_step: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = True

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The networks of TD3+BC, two critics for every cost, and multipliers of zero."""
        return with_cost_critics(self, spec, key, super().fresh(spec, key))

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes the critic steps, then one step each of multipliers, actor and targets."""
        targets, flat = self.critic_targets(state, rows, key), all_batches(rows)
        next_action = smoothed_action(self, state.targets["actor"], flat.next_obs, key)
        costs = cost_targets(state, flat, next_action, self.discount)
        costs = costs.reshape(-1, *rows.reward.shape)
        state, metrics = delayed_critic_steps(self, state, rows, targets)
        cost_loss = cost_q = jnp.zeros((), costs.dtype)
        for i in range(self.policy_delay):
            state, loss, mean_value = self.descend(
                state, "cost_critics", cost_critic_loss, nth_batch(rows, i), costs[:, i]
            )
            cost_loss = cost_loss + loss / self.policy_delay
            cost_q = cost_q + mean_value / self.policy_delay
        last = nth_batch(rows, self.policy_delay - 1)
        state, control = multiplier_step(self, state, last, state.parameters["actor"](last.obs))
        parameters = state.parameters
        state, actor_loss, actor_metrics = self.descend(
            state,
            "actor",
            _actor_loss,
            (parameters["critics"], parameters["cost_critics"], parameters["multipliers"].value),
            last,
            self.alpha,
        )
        state = state.with_averaged_targets("actor", "critics", "cost_critics", tau=self.tau)
        return state, {
            **metrics,
            "cost_loss": cost_loss,
            "cost_q": cost_q,
            **control,
            "actor_loss": actor_loss,
            **actor_metrics,
        }


def _actor_loss(
    actor: Network,
    critics_and_multipliers: tuple[Network, Network, Float[Array, " cost"]],
    rows: UnitRows,
    alpha: Float[Array, ""],
) -> tuple[Float[Array, ""], Metrics]:
    critics, cost_critics, multipliers = critics_and_multipliers
    action = actor(rows.obs)
    loss, actor_metrics = actor_loss_without_costs(actor, critics, rows, alpha)
    q = jax.lax.stop_gradient(first_q_value(critics, rows.obs, action))
    mean_abs_q = masked_mean(jnp.abs(q), rows.mask)
    weight = alpha / jnp.maximum(mean_abs_q, jnp.finfo(mean_abs_q.dtype).tiny)
    cost_value = multipliers @ cost_values(cost_critics, rows.obs, action)
    return loss + weight * masked_mean(cost_value, rows.mask), actor_metrics
