"""Returns and costs of a policy in a learned plant."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.models._replayed_plant import ReplayedPlant, ReplayedStart
from neorl_core import Policy


class PredictedEpisodes(NamedTuple):
    """Results of a policy in a learned plant, with the leading axes of the starts.

    Attributes:
        returns: Sum of the rewards, each times the probability that the episode still continues.
        cost_sum: Sum of every cost, likewise, shape ``(..., cost)``.
        cost_worst: Largest cost of a step, likewise.
        ended: Probability that the plant has ended the episode.
        outside: Mean of :attr:`ReplayedStep.outside` over the steps of the episode.
    """

    returns: Float[Array, "*start"]
    cost_sum: Float[Array, "*start cost"]
    cost_worst: Float[Array, "*start cost"]
    ended: Float[Array, "*start"]
    outside: Float[Array, "*start"]


def predicted_episodes(
    plant: ReplayedPlant, policy: Policy, starts: ReplayedStart
) -> PredictedEpisodes:
    """Simulates episodes of a policy in a learned plant.

    Args:
        plant: The plant.
        policy: Policy in physical units that ignores its key.
        starts: Episodes and members, shape ``(start,)`` each.

    Returns:
        One entry for each start. A rollout that is no longer finite has a return of minus infinity.
    """
    return jax.vmap(partial(_episode, plant, policy))(starts)


def every_start(plant: ReplayedPlant, members: Any, episodes: Any) -> ReplayedStart:
    """All pairs of the given members and episodes, members first, flattened."""
    m, e = jnp.meshgrid(jnp.asarray(members), jnp.asarray(episodes), indexing="ij")
    return ReplayedStart(e.ravel(), m.ravel())


class _Running(NamedTuple):
    state: Any
    carry: Any
    obs: Array
    alive: Array
    inside: Array
    total: PredictedEpisodes


def _episode(plant: ReplayedPlant, policy: Policy, start: ReplayedStart) -> PredictedEpisodes:
    state, obs = plant.reset(start)
    zero, zeros = jnp.zeros(()), jnp.zeros(plant.spec.n_cost)
    total = PredictedEpisodes(zero, zeros, zeros, zero, zero)
    length = plant.episodes.length[start.episode]
    initial = _Running(state, policy.initial_carry(), obs, jnp.ones(()), jnp.ones(()), total)

    def step(running: _Running, _: None) -> tuple[_Running, None]:
        carry, action = policy(running.carry, running.obs, None)
        state, next_reading = plant.step(start, running.state, action)
        cost = running.alive * next_reading.cost
        total = PredictedEpisodes(
            running.total.returns + running.alive * next_reading.reward,
            running.total.cost_sum + cost,
            jnp.maximum(running.total.cost_worst, cost),
            running.total.ended + running.alive * next_reading.info.end,
            running.total.outside + running.inside * next_reading.info.outside / length,
        )
        alive = running.alive * (1 - next_reading.info.end)
        inside = running.inside * (1 - next_reading.truncated)
        carry = policy.sent(carry, next_reading.applied)
        return _Running(state, carry, next_reading.obs, alive * inside, inside, total), None

    total = jax.lax.scan(step, initial, None, length=plant.horizon)[0].total
    finite = jnp.isfinite(total.returns) & jnp.all(jnp.isfinite(total.cost_sum))
    return total._replace(returns=jnp.where(finite, total.returns, -jnp.inf))
