"""Adds return, length and costs of the running episode to the information of every step."""

import collections
import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Environment, Step
from neorl_envs.wrappers._base import Wrapper


class EpisodeStatisticsState(NamedTuple):
    """State of the environment and the sums of the episode.

    Attributes:
        state: State of the wrapped environment.
        total: Sum of the rewards so far.
        cost: Sums of the costs so far, shape ``(cost,)``.
        length: Number of steps so far.
    """

    state: Any
    total: Float[Array, ""]
    cost: Float[Array, " cost"]
    length: Int[Array, ""]


class EpisodeStatistics(Wrapper):
    """A plant whose ``Step.info`` has ``episode_return``, ``episode_cost``, ``episode_length``.

    They include the current step. Apply automatic resets outside this wrapper, as in
    ``autoreset(episode_statistics(env))``; the last step of an episode then has its totals.

    Attributes:
        env: The wrapped environment.
    """

    def reset(
        self, params: Any, key: PRNGKeyArray
    ) -> tuple[EpisodeStatisticsState, Float[Array, " obs"]]:
        """Starts an episode with all sums at zero."""
        state, obs = self.env.reset(params, key)
        nothing = jnp.zeros((), obs.dtype)
        cost = jnp.zeros(self.spec.n_cost, obs.dtype)
        return EpisodeStatisticsState(state, nothing, cost, jnp.zeros((), jnp.int32)), obs

    def step(
        self,
        params: Any,
        state: EpisodeStatisticsState,
        action: Float[Array, " act"],
        key: PRNGKeyArray,
    ) -> tuple[EpisodeStatisticsState, Step]:
        """Simulates one control period."""
        inner, step = self.env.step(params, state.state, action, key)
        total = state.total + jnp.asarray(step.reward, state.total.dtype)
        cost = state.cost + jnp.asarray(step.cost, state.cost.dtype)
        new = EpisodeStatisticsState(inner, total, cost, state.length + 1)
        info = _extended(
            step.info, episode_return=total, episode_cost=cost, episode_length=new.length
        )
        return new, step._replace(info=info)


def episode_statistics(env: Environment) -> EpisodeStatistics:
    """Adds return, costs and length of every episode to ``Step.info``.

    Args:
        env: An environment without automatic resets.

    Returns:
        An environment with the same interface and a longer ``Step.info``.

    Example:
        >>> import neorl_envs
        >>> episode_statistics(neorl_envs.make("ChemicalReactor-v0")).spec.n_cost
        2
    """
    return EpisodeStatistics(env)


def _extended(info: Any, **more: Array) -> Any:
    """Adds fields to ``Step.info``, which may be an empty tuple.

    Raises:
        ValueError: If a field exists already.
    """
    fields: dict[str, Any] = dict(info._asdict()) if hasattr(info, "_asdict") else {}
    duplicates = sorted(set(fields) & set(more))
    if duplicates:
        raise ValueError(f"the information has a field {duplicates[0]!r} already; wrap once")
    return _kind((*fields, *more))(*fields.values(), *more.values())


@functools.cache
def _kind(fields: tuple[str, ...]) -> Any:
    return collections.namedtuple("Information", fields)
