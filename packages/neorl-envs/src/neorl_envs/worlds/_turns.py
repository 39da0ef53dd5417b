"""One turn of a world: agents one after another, or all at one moment."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from neorl_envs.worlds._protocol import World

Choose = Callable[[Any, Any, Float[Array, " obs"]], tuple[Any, Int[Array, ""]]]
"""``carry, action = choose(carry, agent, obs)``."""


class Turn(NamedTuple):
    """Results of one turn.

    Attributes:
        obs: What each agent saw before it acted.
        action: What each agent did.
        reward: What each agent earned.
    """

    obs: Float[Array, "agent obs"]
    action: Int[Array, " agent"]
    reward: Float[Array, " agent"]


def strict_turn(
    world: World, state: Any, draws: Any, choose: Choose, carry: Any, *, unroll: bool = False
) -> tuple[Any, Any, Turn]:
    """The world changes, then agents act in their order; each sees what those before it did.

    Args:
        world: Rules.
        state: State before the turn.
        draws: Random numbers of the turn (``world.draw``).
        choose: Gives the action of an agent for its observation; called once per agent in order.
        carry: What ``choose`` carries from agent to agent.
        unroll: Whether the agents are written out one by one, so that their numbers are plain
            integers; a larger program, and faster for few agents.

    Returns:
        State and carry after the turn, and what happened in it.
    """

    def one(
        before: tuple[Any, Any], agent: Int[Array, ""]
    ) -> tuple[tuple[Any, Any], tuple[Array, Array, Array]]:
        state, carry = before
        obs = world.observe(state, agent)
        carry, action = choose(carry, agent, obs)
        state, reward = world.act(state, agent, action)
        return (state, carry), (obs, action, reward)

    begun = (world.begin_turn(state, draws), carry)
    (state, carry), happened = _through(one, begun, world.n_agents, unroll)
    return state, carry, Turn(*happened)


def simultaneous_turn(
    world: World, state: Any, draws: Any, choose: Choose, carry: Any, *, unroll: bool = False
) -> tuple[Any, Any, Turn]:
    """The world changes, then all agents see the same world and act at one moment.

    Args:
        world: Rules.
        state: State before the turn.
        draws: Random numbers of the turn (``world.draw``); they also decide between agents that
            want the same place.
        choose: Gives the action of an agent for its observation; called once per agent in order.
        carry: What ``choose`` carries from agent to agent.
        unroll: Whether the agents are written out one by one, so that their numbers are plain
            integers; a larger program, and faster for few agents.

    Returns:
        State and carry after the turn, and what happened in it.
    """
    state = world.begin_turn(state, draws)

    def one(carry: Any, agent: Int[Array, ""]) -> tuple[Any, tuple[Array, Array]]:
        obs = world.observe(state, agent)
        carry, action = choose(carry, agent, obs)
        return carry, (obs, action)

    carry, (obs, action) = _through(one, carry, world.n_agents, unroll)
    state, reward = world.act_together(state, action, draws)
    return state, carry, Turn(obs, action, reward)


def _through(one: Callable[[Any, Any], tuple[Any, Any]], carry: Any, n: int, unroll: bool) -> Any:
    """``one`` for every agent in order; what it returns is stacked."""
    if not unroll:
        return jax.lax.scan(one, carry, jnp.arange(n, dtype=jnp.int32))
    results = []
    for agent in range(n):
        carry, result = one(carry, agent)
        results.append(result)
    return carry, jax.tree.map(lambda *each: jnp.stack(each), *results)
