"""Whole episodes in one compiled program: their sums, or one of them row by row."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Environment, Policy, Step, Trajectory, Transition


class EpisodeScores(NamedTuple):
    """Sums over whole episodes, one entry each.

    Attributes:
        total: Return, shape ``(episode,)``.
        cost: Sums of the costs up to the end, shape ``(episode, cost)``. After a trip there are
            none, so a small sum beside a trip says nothing of a limit.
        worst: Largest cost of one step, shape ``(episode, cost)``.
        length: Number of steps, shape ``(episode,)``.
        success: Whether the plant says that the aim was reached, shape ``(episode,)``.
        trip: Whether the plant tripped, shape ``(episode,)``.
    """

    total: Float[Array, " episode"]
    cost: Float[Array, "episode cost"]
    worst: Float[Array, "episode cost"]
    length: Int[Array, " episode"]
    success: Bool[Array, " episode"]
    trip: Bool[Array, " episode"]


@functools.partial(jax.jit, static_argnums=(0,), static_argnames=("preset", "spread"))
def score_episodes(
    env: Environment,
    policy: Policy,
    keys: PRNGKeyArray,
    *,
    preset: str = "plant",
    spread: float = 0.15,
) -> EpisodeScores:
    """The sums of one episode for every key, each with its own parameters, start and noise.

    Args:
        env: A plant; hashable.
        policy: Acts in physical units.
        keys: One for each episode, shape ``(episode,)``.
        preset: Preset of the parameters.
        spread: Relative width of their draws.

    Returns:
        The sums; every step up to the end counts, the last one included.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> keys = jax.random.split(jax.random.key(0), 100)
        >>> found = score_episodes(env, env.tunings()[env.reference], keys)  # doctest: +SKIP
    """

    def episode(key: PRNGKeyArray) -> EpisodeScores:
        advance, carry, step_keys = _begin(env, policy, key, preset, spread)
        nothing = jnp.zeros((), carry[1].dtype)
        costs = jnp.zeros(env.spec.n_cost, carry[1].dtype)
        false = jnp.zeros((), jnp.bool_)
        sums = EpisodeScores(nothing, costs, costs, jnp.zeros((), jnp.int32), false, false)

        def row(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, None]:
            inner, alive, sums = carry
            inner, step, _ = advance(inner, key)
            new = _added(sums, step)
            sums = jax.tree.map(lambda a, b: jnp.where(alive, a, b), new, sums)
            return (inner, alive & ~(step.terminated | step.truncated), sums), None

        (_, _, sums), _ = jax.lax.scan(row, (carry, ~false, sums), step_keys)
        return sums

    return jax.vmap(episode)(keys)


def run_episode(
    env: Environment,
    policy: Policy,
    key: PRNGKeyArray,
    *,
    preset: str = "plant",
    spread: float = 0.15,
) -> Trajectory:
    """One episode row by row, on the host, up to its end.

    Args:
        env: A plant; hashable.
        policy: Acts in physical units.
        key: Decides everything; the same as one key of :func:`score_episodes`.
        preset: Preset of the parameters.
        spread: Relative width of their draw.

    Returns:
        The rows; ``action`` is what the plant received.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> policy = env.tunings()[env.reference]
        >>> rows = run_episode(env, policy, jax.random.key(0))  # doctest: +SKIP
    """
    rows = jax.device_get(_rows(env, policy, key, preset, spread))
    over = np.asarray(rows.terminated | rows.truncated)
    n = int(np.argmax(over)) + 1 if over.any() else len(over)
    return jax.tree.map(lambda column: column[:n], rows)


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def _rows(
    env: Environment, policy: Policy, key: PRNGKeyArray, preset: str, spread: float
) -> Trajectory:
    advance, carry, keys = _begin(env, policy, key, preset, spread)

    def row(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, Transition]:
        carry, step, obs = advance(carry, key)
        return carry, Transition(
            obs=obs,
            action=step.applied,
            reward=step.reward,
            cost=step.cost,
            next_obs=step.final_obs,
            terminated=step.terminated,
            truncated=step.truncated,
        )

    return jax.lax.scan(row, carry, keys)[1]


def _begin(env: Any, policy: Policy, key: PRNGKeyArray, preset: str, spread: float) -> tuple:
    """The function of one step, its carry at the start, and the keys of all steps."""
    for_params, for_reset, for_steps = jax.random.split(key, 3)
    params = env.sample_params(for_params, preset=preset, spread=spread)
    state, obs = env.reset(params, for_reset)

    def advance(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, Step, Array]:
        state, obs, memory = carry
        for_policy, for_env = jax.random.split(key)
        memory, action = policy(memory, obs, for_policy)
        state, step = env.step(params, state, action, for_env)
        return (state, step.obs, policy.sent(memory, step.applied)), step, obs

    carry = (state, obs, policy.initial_carry())
    return advance, carry, jax.random.split(for_steps, env.spec.horizon)


def _added(sums: EpisodeScores, step: Step) -> EpisodeScores:
    false = jnp.zeros((), jnp.bool_)
    cost = jnp.asarray(step.cost, sums.cost.dtype)
    return EpisodeScores(
        total=sums.total + jnp.asarray(step.reward, sums.total.dtype),
        cost=sums.cost + cost,
        worst=jnp.maximum(sums.worst, cost),
        length=sums.length + 1,
        success=getattr(step.info, "success", false),
        trip=getattr(step.info, "trip", false),
    )
