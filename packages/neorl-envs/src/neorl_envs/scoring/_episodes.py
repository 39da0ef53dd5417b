"""Runs whole episodes in one compiled program, and returns sums or the rows of one episode."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Environment, Policy, Trajectory
from neorl_envs.closed_loop import LoopStep, Rollout, drawn_start, rollout


class EpisodeScores(NamedTuple):
    """Sums over whole episodes, one entry each.

    Attributes:
        total: Return, shape ``(episode,)``.
        cost: Sums of the costs up to the end, shape ``(episode, cost)``. No costs arise after a
            trip, so a small sum in a tripped episode does not show that a limit is satisfied.
        worst: Largest cost of one step, shape ``(episode, cost)``.
        length: Number of steps, shape ``(episode,)``.
        success: Whether the goal was reached, as reported by the plant, shape ``(episode,)``.
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
    """Runs one episode for every key, each with its own parameters, start and noise.

    Args:
        env: A plant, which must be hashable.
        policy: A policy in physical units.
        keys: One random key per episode, shape ``(episode,)``.
        preset: Preset of the parameters.
        spread: Relative spread of the parameters.

    Returns:
        The sums over all steps up to and including the last one.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> keys = jax.random.split(jax.random.key(0), 100)
        >>> found = score_episodes(env, env.tunings()[env.reference], keys)  # doctest: +SKIP
    """

    def episode(key: PRNGKeyArray) -> EpisodeScores:
        start = drawn_start(env, key, preset=preset, spread=spread)
        nothing = jnp.zeros((), start.obs.dtype)
        costs = jnp.zeros(env.spec.n_cost, start.obs.dtype)
        false = jnp.zeros((), jnp.bool_)
        sums = EpisodeScores(nothing, costs, costs, jnp.zeros((), jnp.int32), false, false)
        return rollout(env, policy, start, record=None, sums=sums, add=_add_step).sums

    return jax.vmap(episode)(keys)


def run_episode(
    env: Environment,
    policy: Policy,
    key: PRNGKeyArray,
    *,
    preset: str = "plant",
    spread: float = 0.15,
) -> Trajectory:
    """Runs one episode up to its end and returns its rows on the host.

    Args:
        env: A plant, which must be hashable.
        policy: A policy in physical units.
        key: Random key of the episode, like one key of :func:`score_episodes`.
        preset: Preset of the parameters.
        spread: Relative spread of the parameters.

    Returns:
        The rows; ``action`` is the action that the plant received.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> policy = env.tunings()[env.reference]
        >>> rows = run_episode(env, policy, jax.random.key(0))  # doctest: +SKIP
    """
    done = jax.device_get(_rows(env, policy, key, preset, spread))
    # Cut on the host, since the length of an episode cannot be a shape in the compiled program.
    length = int(np.sum(done.mask))
    return jax.tree.map(lambda column: column[:length], done.rows)


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def _rows(
    env: Environment, policy: Policy, key: PRNGKeyArray, preset: str, spread: float
) -> Rollout:
    return rollout(env, policy, drawn_start(env, key, preset=preset, spread=spread))


def _add_step(sums: EpisodeScores, loop_step: LoopStep) -> EpisodeScores:
    step, false = loop_step.step, jnp.zeros((), jnp.bool_)
    cost = jnp.asarray(step.cost, sums.cost.dtype)
    return EpisodeScores(
        total=sums.total + jnp.asarray(step.reward, sums.total.dtype),
        cost=sums.cost + cost,
        worst=jnp.maximum(sums.worst, cost),
        length=sums.length + 1,
        success=getattr(step.info, "success", false),
        trip=getattr(step.info, "trip", false),
    )
