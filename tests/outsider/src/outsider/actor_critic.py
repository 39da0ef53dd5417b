"""Advantage actor-critic on fresh rollouts (Mnih et al., arXiv 1602.01783, side by side)."""

from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from neorl_agents import BaseLearner
from neorl_agents.networks import GaussianActor, gaussian_log_prob, tanh
from neorl_agents.policies import GaussianPolicy, network_policy
from neorl_core.losses import masked_mean
from neorl_core.returns import segment_generalised_advantages

LOG_STD_RANGE = (-3.0, 0.0)


class ActorCritic(BaseLearner):
    """The gradient of ``log pi(a|s) A`` with generalised advantages, and a value beside it.

    Attributes:
        discount: Discount of the reward per step, in [0, 1].
        trace: The lambda of the advantages, in [0, 1].
        learning_rate: Learning rate of actor and value.
        rollout: Steps of every episode for one update; static.
    """

    discount: float = 0.95
    trace: float = 0.9
    learning_rate: float = 3e-3
    rollout: int = eqx.field(static=True, default=16)

    reads = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "mask")
    rates: ClassVar[Mapping[str, str]] = dict.fromkeys(("actor", "value"), "learning_rate")

    def source(self, given):
        return given.rollouts(self.rollout)

    def fresh(self, spec, key):
        actor_key, value_key = jax.random.split(key)
        mean = self.networks.obs_network(
            spec, spec.n_action, actor_key, output=tanh, last_bound=1e-2
        )
        value = self.networks.obs_network(spec, 1, value_key)
        return {
            "actor": GaussianActor(mean, jnp.full(spec.n_action, -0.5, jnp.float32)),
            "value": value,
        }, {}

    def learn(self, state, rows, key):
        value = state.parameters["value"]
        now, after = value(rows.obs)[..., 0], value(rows.next_obs)[..., 0]
        series = (rows.reward, now, after, rows.terminated, rows.truncated)
        estimate = jax.vmap(
            lambda *of: segment_generalised_advantages(*of, discount=self.discount, lam=self.trace),
            in_axes=1,
            out_axes=1,
        )
        advantage = estimate(*series)
        state, value_loss, _ = self.descend(state, "value", _value_loss, rows, now + advantage)
        state, loss, _ = self.descend(state, "actor", _actor_loss, rows, advantage)
        return state, {"actor_loss": loss, "value_loss": value_loss}

    def policy(self, state):
        return network_policy(state.preparation, state.parameters["actor"].mean)

    def explore(self, state):
        log_std = jnp.clip(state.parameters["actor"].log_std, *LOG_STD_RANGE)
        return GaussianPolicy(self.policy(state), log_std)


def _value_loss(value, rows, target):
    return masked_mean(jnp.square(value(rows.obs)[..., 0] - target), rows.mask), None


def _actor_loss(actor, rows, advantage):
    flat = [x.reshape(-1, x.shape[-1]) for x in (rows.obs, rows.action)]
    chance = gaussian_log_prob(actor, *flat, LOG_STD_RANGE).reshape(advantage.shape)
    return -masked_mean(chance * advantage, rows.mask), None
