"""Baselines on LoadBalance: a random, a greedy and a diffusion policy."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_envs.graph_plants._parts import NetworkPolicy


class _OneMove(NetworkPolicy):
    """A policy of a LoadBalance that infers the possible moves from the observation."""

    def usable(self, obs: Float[Array, " obs"]) -> Bool[Array, " act"]:
        """Which moves are possible according to the observation."""
        n_action = self.plant.spec.n_action
        if self.plant.switching or self.plant.sizes_vary:
            return obs[-n_action:] > 0.5
        return jnp.ones(n_action, jnp.bool_)


class GreedyBalance(_OneMove):
    """Makes the move that lowers the spread most, over the link with the largest load difference.

    A move over a difference ``D`` lowers the sum of squares by ``0.18 D^2``, so no single move
    lowers it more; over several steps, other policies may be better.
    """

    def __call__(
        self, carry: tuple[()], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The action with one at the chosen move and zero elsewhere; the key is ignored."""
        width = 3 if self.plant.sizes_vary else 2
        loads = obs[: width * self.plant.n_nodes : width]
        senders, receivers = jnp.asarray(self.plant.senders), jnp.asarray(self.plant.receivers)
        difference = loads[senders] - loads[receivers]
        gain = jnp.where(self.usable(obs), difference, -jnp.inf)
        return carry, jax.nn.one_hot(jnp.argmax(gain), len(gain), dtype=obs.dtype)


class RandomMoves(_OneMove):
    """Chooses one of the possible moves with equal probability."""

    def __call__(
        self, carry: tuple[()], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The action with one at the chosen move and zero elsewhere.

        Raises:
            ValueError: If no key is given.
        """
        if key is None:
            raise ValueError("moves are drawn at random: give a key, policy(carry, obs, key)")
        usable = self.usable(obs)
        chosen = jax.random.categorical(key, jnp.where(usable, 0.0, -jnp.inf))
        return carry, jax.nn.one_hot(chosen, len(usable), dtype=obs.dtype)


def diffusion_rewards(plant: Any, params: Any, key: PRNGKeyArray) -> Float[Array, " time"]:
    """Rewards of one episode in which every link moves load in every step, as an upper reference.

    This is first-order diffusion, ``L_i' = L_i + rate sum_j (L_j - L_i)`` over the links of ``i``,
    clipped as in the plant. No policy of the plant can do this, because it makes only one move per
    step. The rate is limited to ``1 / (1 + most links of a node)``, above which diffusion may
    diverge.

    Args:
        plant: A LoadBalance.
        params: Topology of the episode.
        key: Random key. It is split in two: one half gives the initial loads as in ``reset``, the
            other the links of every step as in ``step``.

    Source: Cybenko, Dynamic load balancing for distributed memory multiprocessors, Journal of
    Parallel and Distributed Computing 7 (1989).
    """
    for_reset, for_steps = jax.random.split(key)
    state, _ = plant.reset(params, for_reset)
    senders, receivers = jnp.asarray(plant.senders), jnp.asarray(plant.receivers)

    def step(state: Any, step_key: PRNGKeyArray) -> tuple[Any, Array]:
        usable = plant.there(params, state.links)
        degree = jnp.zeros_like(state.loads).at[senders].add(usable.astype(state.loads.dtype))
        rate = jnp.minimum(params.rate, 1 / (1 + jnp.max(degree)))
        flow = jnp.where(usable, rate * (state.loads[senders] - state.loads[receivers]), 0)
        loads = jnp.clip(state.loads.at[receivers].add(flow), 0, 1)
        links = plant.links_after(params, state, plant.sample_noise(params, step_key))
        return type(state)(loads, links, state.time + 1), -10 * plant.spread(params, loads)

    return jax.lax.scan(step, state, jax.random.split(for_steps, plant.horizon))[1]
