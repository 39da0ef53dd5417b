"""TD3+BC with a critic and a multiplier for every cost limit (Lagrangian relaxation)."""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp

from neorl_agents import BaseLearner
from neorl_agents.learning import critic_loss, only_batch
from neorl_agents.networks import q_values, tanh
from neorl_agents.policies import network_policy
from neorl_core.losses import masked_mean
from neorl_core.targets import td_target


class Lagrangian(BaseLearner):
    """The actor maximises ``Q_r - sum_j multiplier_j Q_j`` beside cloning the log.

    Attributes:
        clone: Weight of cloning the logged actions, not negative.
        discount: Discount of rewards and costs per step, in [0, 1].
        learning_rate: Learning rate of actor and critics.
        multiplier_rate: Learning rate of the multipliers.
    """

    clone: float = 1.0
    discount: float = 0.95
    learning_rate: float = 3e-4
    multiplier_rate: float = 1e-2

    reads = ("obs", "action", "reward", "cost", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("actor", "critics", "cost_critic"), "learning_rate"),
        "multipliers": "multiplier_rate",
    }

    def fresh(self, spec, key):
        actor_key, critic_key, cost_key = jax.random.split(key, 3)
        actor = self.networks.obs_network(spec, spec.n_action, actor_key, output=tanh)
        critics = self.networks.obs_action_networks(spec, 1, critic_key)
        costs = self.networks.obs_action_networks(spec, 1, cost_key, members=spec.n_cost)
        multipliers = jnp.zeros(spec.n_cost)
        followed = {"critics": critics, "cost_critic": costs}
        return {"actor": actor, "multipliers": multipliers, **followed}, followed

    def learn(self, state, rows, key):
        rows, actor, targets = only_batch(rows), state.parameters["actor"], state.targets
        then = actor(rows.next_obs)
        after = q_values(targets["critics"], rows.next_obs, then).min(axis=0)
        target = td_target(rows.reward, after, rows.terminated, discount=self.discount)
        state, loss, _ = self.descend(state, "critics", critic_loss, rows, target)

        after = q_values(targets["cost_critic"], rows.next_obs, then)
        ended = rows.terminated[None]
        target = rows.cost.T + self.discount * jnp.where(ended, 0.0, after)
        state, cost_loss, _ = self.descend(state, "cost_critic", _cost_loss, rows, target)

        state, _, expected = self.descend(state, "actor", _actor_loss, self, state, rows)
        maps = state.preparation
        steps = [maps.horizon if per == "episode" else 1 for per in maps.cost_per]
        excess = (1 - self.discount) * expected - maps.cost_limit / jnp.array(steps)
        state, _, _ = self.descend(state, "multipliers", lambda m: (-jnp.sum(m * excess), None))
        positive = jnp.maximum(state.parameters["multipliers"], 0.0)
        state = state.with_parameters(multipliers=positive)
        state = state.with_averaged_targets("critics", "cost_critic", tau=0.005)
        return state, {"critic_loss": loss, "cost_loss": cost_loss, "multiplier": positive.max()}

    def policy(self, state):
        return network_policy(state.preparation, state.parameters["actor"])


def _cost_loss(critic, rows, target):
    errors = jnp.square(q_values(critic, rows.obs, rows.action) - target).sum(axis=0)
    return masked_mean(errors, rows.mask), None


def _actor_loss(actor, learner, state, rows):
    action = actor(rows.obs)
    earned = q_values(state.parameters["critics"], rows.obs, action).min(axis=0)
    costs = q_values(state.parameters["cost_critic"], rows.obs, action)
    paid = (state.parameters["multipliers"][:, None] * costs).sum(axis=0)
    distance = jnp.square(action - rows.action).sum(axis=-1)
    loss = masked_mean(learner.clone * distance - (earned - paid), rows.mask)
    return loss, jax.vmap(masked_mean, in_axes=(0, None))(costs, rows.mask)
