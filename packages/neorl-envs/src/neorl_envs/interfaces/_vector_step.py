"""One step of a batch of plants, including resets after the end of an episode."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Bool

from neorl_core import Step
from neorl_envs.closed_loop import where_over
from neorl_envs.interfaces._episode import Draws, Episode, advance, begin
from neorl_envs.plants._protocol import Plant
from neorl_envs.wrappers._autoreset import started_where_over


class Rules(NamedTuple):
    """Settings of a vector environment; hashable.

    Attributes:
        physical: Whether actions are in physical units rather than [-1, 1].
        mode: Gymnasium's autoreset mode.
        limit: Steps after which an episode is truncated.
    """

    physical: bool
    mode: str
    limit: int


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def vector_step(
    env: Plant,
    draws: Draws,
    rules: Rules,
    episodes: Episode,
    over: Bool[Array, " plant"],
    actions: Array,
) -> tuple[Episode, tuple[Step, Bool[Array, "plant act"]]]:
    """Simulates one control period of every plant.

    ``over`` flags the episodes that ended in the previous step. Returns the episodes, and the steps
    with flags for action entries outside their range.
    """

    def one(episode: Episode, ended: Array, action: Array) -> tuple[Episode, tuple[Step, Array]]:
        return _one(env, draws, rules, episode, ended, action)

    return jax.vmap(one)(episodes, over, actions)


def _one(
    env: Plant, draws: Draws, rules: Rules, episode: Episode, ended: Array, action: Array
) -> tuple[Episode, tuple[Step, Array]]:
    after, step, outside = advance(env, rules.physical, episode, action)
    late = (after.time >= rules.limit) & ~step.terminated
    step = step._replace(truncated=step.truncated | late)
    if rules.mode == AutoresetMode.DISABLED.value:
        return after, (step, outside)
    key, for_start = jax.random.split(after.key)
    after = after._replace(key=key)
    same_step = rules.mode == AutoresetMode.SAME_STEP.value
    now = step.terminated | step.truncated if same_step else ended
    after, obs = started_where_over(
        now, lambda: begin(env, draws, None, for_start), (after, step.obs)
    )
    if same_step:
        return after, (step._replace(obs=obs), outside)
    nothing: Any = jax.tree.map(jnp.zeros_like, step)
    started = nothing._replace(obs=obs, final_obs=obs)
    return after, where_over(ended, (started, jnp.zeros_like(outside)), (step, outside))
