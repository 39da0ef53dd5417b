"""The observations and actions that a policy visits in a learned plant."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.models._replayed_plant import ReplayedPlant, ReplayedStart
from neorl_core import Policy


class VisitedRows(NamedTuple):
    """Observations and actions along predicted episodes, with the leading axes of the starts.

    Attributes:
        obs: Observation before every step, shape ``(..., time, obs)``.
        action: Action in force in it, shape ``(..., time, act)``.
        alive: Probability that the episode has not ended before it, shape ``(..., time)``; zero
            from where it is truncated.
    """

    obs: Float[Array, "*start time obs"]
    action: Float[Array, "*start time act"]
    alive: Float[Array, "*start time"]


@jax.jit
def visited_rows(plant: ReplayedPlant, policy: Policy, starts: ReplayedStart) -> VisitedRows:
    """The rows of predicted episodes, for comparison with those of a log.

    Args:
        plant: Learned plant.
        policy: Policy in physical units that ignores its key.
        starts: Episodes and members, shape ``(start,)`` each.

    Returns:
        One episode of ``plant.horizon`` rows for each start.
    """

    def episode(start: ReplayedStart) -> VisitedRows:
        state, obs = plant.reset(start)

        def step(running: Any, _: None) -> tuple[Any, VisitedRows]:
            state, carry, obs, alive = running
            carry, action = policy(carry, obs, None)
            state, following = plant.step(start, state, action)
            carry = policy.sent(carry, following.applied)
            row = VisitedRows(obs, following.applied, alive)
            alive = alive * (1 - following.info.end) * (1 - following.truncated)
            return (state, carry, following.obs, alive), row

        initial = state, policy.initial_carry(), obs, jnp.ones(())
        return jax.lax.scan(step, initial, None, length=plant.horizon)[1]

    return jax.vmap(episode)(starts)
