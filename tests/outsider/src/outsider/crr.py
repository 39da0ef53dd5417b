"""Critic-regularised regression, its exponential form (Wang et al., arXiv 2006.15134)."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from neorl_agents.algorithms import require_count, require_number, require_widths
from neorl_agents.networks import MLP, critic_loss, init_critics, init_mlp, q_values, tanh
from neorl_agents.optimisers import descend, init_optimiser
from neorl_agents.policies import Scaling, init_scaling, network_policy, scaled
from neorl_core.losses import advantage_weights, masked_mean, scaled_advantage
from neorl_core.targets import polyak, td_target


class CRRState(eqx.Module):
    """Networks, their optimisers, and the scaling that travels with them."""

    actor: MLP
    critics: MLP
    slow: MLP
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    scaling: Scaling


class CRR(eqx.Module):
    """The regression of logged actions, weighted by how much better they are than the actor's.

    Attributes:
        inverse_temperature: Inverse temperature of the weights, not negative.
        discount: Discount of the reward per step, in [0, 1].
        learning_rate: Learning rate of the actor and of the critics.
        hidden: Widths of the hidden layers of all networks; static.
        batch_size: Rows of one gradient step; static.
    """

    inverse_temperature: float = 1.0
    discount: float = 0.99
    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256), converter=tuple)
    batch_size: int = eqx.field(static=True, default=256)

    fields: ClassVar = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    batches_per_update: ClassVar[int] = 1

    def validate(self):
        require_number(self, "inverse_temperature", low=0)
        require_number(self, "discount", low=0, high=1)
        require_number(self, "learning_rate", low=0, open_low=True)
        require_widths(self, "hidden")
        require_count(self, "batch_size")

    def init(self, spec, statistics, key):
        self.validate()
        actor_key, critic_key = jax.random.split(key)
        actor = init_mlp((spec.n_obs, *self.hidden, spec.n_action), actor_key, output=tanh)
        widths = (spec.n_obs + spec.n_action, *self.hidden)
        critics = init_critics(widths, critic_key, initialiser="uniform")
        rate = self.learning_rate
        return CRRState(
            actor=actor,
            critics=critics,
            slow=critics,
            actor_optimiser=init_optimiser("adam", actor, rate),
            critic_optimiser=init_optimiser("adam", critics, rate),
            scaling=init_scaling(spec, statistics, "std"),
        )

    def update(self, state, batch, key):
        rows = jax.tree.map(lambda x: x[0], scaled(state.scaling, batch))
        after = q_values(state.slow, rows.next_obs, state.actor(rows.next_obs)).min(axis=0)
        target = td_target(rows.reward, after, rows.terminated, discount=self.discount)
        (q_loss, _), slope = jax.value_and_grad(critic_loss, has_aux=True)(
            state.critics, rows, target
        )
        critics, critic_optimiser = descend(
            "adam", state.critics, state.critic_optimiser, slope, self.learning_rate
        )
        logged = q_values(critics, rows.obs, rows.action).min(axis=0)
        own = q_values(critics, rows.obs, state.actor(rows.obs)).min(axis=0)
        better = scaled_advantage(logged - own, rows.mask)
        weights = advantage_weights(better, inverse_temperature=self.inverse_temperature)
        loss, slope = jax.value_and_grad(_weighted_distance)(state.actor, rows, weights)
        actor, actor_optimiser = descend(
            "adam", state.actor, state.actor_optimiser, slope, self.learning_rate
        )
        slow = polyak(state.slow, critics, tau=0.005)
        state = dataclasses.replace(
            state,
            actor=actor,
            critics=critics,
            slow=slow,
            actor_optimiser=actor_optimiser,
            critic_optimiser=critic_optimiser,
        )
        return state, {"actor_loss": loss, "critic_loss": q_loss}

    def policy(self, state):
        return network_policy(state.scaling, state.actor)


def _weighted_distance(actor, rows, weights):
    distance = jnp.mean(jnp.square(actor(rows.obs) - rows.action), axis=-1)
    return masked_mean(weights * distance, rows.mask)
