"""Critic-regularised regression, its exponential form (Wang et al., arXiv 2006.15134)."""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp

from neorl_agents import BaseLearner
from neorl_agents.learning import critic_loss, only_batch
from neorl_agents.networks import q_values, tanh
from neorl_agents.policies import network_policy
from neorl_core.infrastructure import setting
from neorl_core.losses import advantage_weights, masked_mean, scaled_advantage
from neorl_core.targets import td_target


class CRR(BaseLearner):
    """The regression of logged actions, weighted by how much better they are than the actor's.

    Attributes:
        inverse_temperature: Inverse temperature of the weights.
        discount: Discount of the reward per step.
        learning_rate: Learning rate of the actor and of the critics.
    """

    inverse_temperature: float = setting(1.0, low=0)
    discount: float = 0.99
    learning_rate: float = 3e-4

    reads = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {"actor": "learning_rate", "critics": "learning_rate"}

    def fresh(self, spec, key):
        actor_key, critic_key = jax.random.split(key)
        actor = self.networks.obs_network(spec, spec.n_action, actor_key, output=tanh)
        critics = self.networks.obs_action_networks(spec, 1, critic_key)
        return {"actor": actor, "critics": critics}, {"critics": critics}

    def learn(self, state, rows, key):
        rows = only_batch(rows)
        actor = state.parameters["actor"]
        after = q_values(state.targets["critics"], rows.next_obs, actor(rows.next_obs)).min(axis=0)
        target = td_target(rows.reward, after, rows.terminated, discount=self.discount)
        state, q_loss, _ = self.descend(state, "critics", critic_loss, rows, target)

        critics = state.parameters["critics"]
        logged = q_values(critics, rows.obs, rows.action).min(axis=0)
        own = q_values(critics, rows.obs, actor(rows.obs)).min(axis=0)
        better = scaled_advantage(logged - own, rows.mask)
        weights = advantage_weights(better, inverse_temperature=self.inverse_temperature)
        state, loss, _ = self.descend(state, "actor", _weighted_distance, rows, weights)
        return state.with_averaged_targets("critics", tau=0.005), {
            "actor_loss": loss,
            "critic_loss": q_loss,
        }

    def policy(self, state):
        return network_policy(state.preparation, state.parameters["actor"])


def _weighted_distance(actor, rows, weights):
    distance = jnp.mean(jnp.square(actor(rows.obs) - rows.action), axis=-1)
    return masked_mean(weights * distance, rows.mask), None
