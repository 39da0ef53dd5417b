"""One turn of a world, with agents acting one after another or simultaneously."""

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
        obs: Observation of each agent before it acted.
        action: Action of each agent.
        reward: Reward of each agent.
    """

    obs: Float[Array, "agent obs"]
    action: Int[Array, " agent"]
    reward: Float[Array, " agent"]


def strict_turn(
    world: World, state: Any, draws: Any, choose: Choose, carry: Any, *, unroll: bool = False
) -> tuple[Any, Any, Turn]:
    """Changes the world, then lets agents act in order; each observes the effects of earlier ones.

    Args:
        world: The world.
        state: State before the turn.
        draws: Random numbers of the turn (``world.draw``).
        choose: Function that returns the action of an agent for its observation; called once per
            agent in order.
        carry: State that ``choose`` passes on from agent to agent.
        unroll: Whether the loop over agents is unrolled, so that their indices are plain integers;
            the program is larger, and faster for few agents.

    Returns:
        State and carry after the turn, and its observations, actions and rewards.
    """

    def one(
        before: tuple[Any, Any], agent: Int[Array, ""]
    ) -> tuple[tuple[Any, Any], tuple[Array, Array, Array]]:
        state, carry = before
        obs = world.observe(state, agent)
        carry, action = choose(carry, agent, obs)
        state, reward = world.act(state, agent, action)
        return (state, carry), (obs, action, reward)

    start = (world.begin_turn(state, draws), carry)
    (state, carry), steps = _through(one, start, world.n_agents, unroll)
    return state, carry, Turn(*steps)


def simultaneous_turn(
    world: World, state: Any, draws: Any, choose: Choose, carry: Any, *, unroll: bool = False
) -> tuple[Any, Any, Turn]:
    """Changes the world, then lets all agents observe the same state and act simultaneously.

    Args:
        world: The world.
        state: State before the turn.
        draws: Random numbers of the turn (``world.draw``), which also decide between agents that
            want the same place.
        choose: Function that returns the action of an agent for its observation; called once per
            agent in order.
        carry: State that ``choose`` passes on from agent to agent.
        unroll: Whether the loop over agents is unrolled, so that their indices are plain integers;
            the program is larger, and faster for few agents.

    Returns:
        State and carry after the turn, and its observations, actions and rewards.
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
    """Applies ``one`` to every agent in order and stacks the results."""
    if not unroll:
        return jax.lax.scan(one, carry, jnp.arange(n, dtype=jnp.int32))
    results = []
    for agent in range(n):
        carry, result = one(carry, agent)
        results.append(result)
    return carry, jax.tree.map(lambda *each: jnp.stack(each), *results)
