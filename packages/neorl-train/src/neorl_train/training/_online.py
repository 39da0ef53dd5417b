"""Fine-tuning as one program: collect on the plant, store, update on balanced batches."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents import Algorithm
from neorl_agents.online import Replay, balanced_batch, replay_begin, replay_push
from neorl_agents.sampling import RowsWithReturns, sampler_of
from neorl_core import Policy, Spec, Transition
from neorl_train.training._collect import (
    Collection,
    Counts,
    Running,
    begin_episodes,
    collect_step,
    no_counts,
)


class FineTuning(eqx.Module):
    """All that a fine-tuning is a function of besides log, key and initial state.

    Attributes:
        algorithm: Learner with array leaves.
        collection: How rows are collected.
        beyond: Return that a truncated episode is taken to go on with, in the unit of the reward.
        share: Share of the log in every batch; static.
        capacity: Rows that the online buffer holds; static.
        first_steps: Steps of every episode before the first update; static.
        cycle: Calls of ``update`` after every step; static.
    """

    algorithm: Algorithm
    collection: Collection
    beyond: Float[Array, ""]
    share: float = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    first_steps: int = eqx.field(static=True)
    cycle: int = eqx.field(static=True)

    def acting(self, learner: Any) -> Policy:
        """The policy that is tried: exploring, behind the filter where one is declared."""
        explore: Any = self.algorithm
        return self.collection.guarded(explore.explore(learner))


class OnlineState(NamedTuple):
    """Everything that changes while a learner is fine-tuned.

    Attributes:
        learner: State of the learner.
        running: Episodes that go on.
        replay: Rows collected so far.
        counts: What happened while they were collected.
    """

    learner: Any
    running: Running
    replay: Replay
    counts: Counts


@jax.jit
def begin_online(settings: FineTuning, learner: Any, key: PRNGKeyArray) -> OnlineState:
    """The state before the first update: the buffer holds as many rows as that needs.

    Args:
        settings: Settings.
        learner: State of the learner after its offline training.
        key: Key of the chunks.

    Returns:
        The state; what was collected is the work of the offline policy, exploring.
    """
    running = begin_episodes(settings.collection, settings.acting(learner), _keys(key)[3])
    replay = replay_begin(
        _example(settings.collection.spec, running),
        capacity=settings.capacity,
        discount=getattr(settings.algorithm, "discount", 1.0),
        beyond=settings.beyond,
        returns=isinstance(sampler_of(settings.algorithm), RowsWithReturns),
    )
    counts = no_counts(settings.collection.spec.n_cost)
    state = OnlineState(learner, running, replay, counts)

    def step(state: OnlineState, number: Int[Array, ""]) -> tuple[OnlineState, None]:
        return collected(settings, state, number, key), None

    # One step more than rows are needed: the rows of the last one wait.
    numbers = jnp.arange(settings.first_steps + 1, dtype=jnp.int32)
    return jax.lax.scan(step, state, numbers)[0]


def _example(spec: Spec, running: Running) -> Transition:
    """Rows of one step, of which the buffer takes shapes and dtypes."""
    obs, no = running.obs, jnp.zeros(running.total.shape, jnp.bool_)
    action = jnp.zeros((len(no), spec.n_action), obs.dtype)
    return Transition(obs, action, running.total, next_obs=obs, terminated=no, truncated=no)


@partial(jax.jit, static_argnames="n_updates", donate_argnums=1)
def fine_tune_chunk(
    settings: FineTuning,
    state: OnlineState,
    tables: Any,
    first: Int[Array, ""],
    key: PRNGKeyArray,
    *,
    n_updates: int,
) -> tuple[OnlineState, dict[str, Float[Array, ""]]]:
    """Cycles of one step of every episode and the updates after it.

    Batches, keys and noise are functions of ``(key, number)`` and the state, so the chunk length
    is not part of the result.

    Args:
        settings: Settings.
        state: From :func:`begin_online` or the last chunk; its buffers are given away.
        tables: What the learner's sampler draws from: rows of the log, physical units.
        first: Number of the first update, counted in calls of ``algorithm.update``.
        key: Key of the run's chunks.
        n_updates: Number of calls of ``update``, a multiple of ``settings.cycle``; static.

    Returns:
        The state, and the mean of every metric; those that begin with ``online_`` are sums since
        the beginning, and ``online_return`` is the mean return of the episodes that have ended.
    """
    cycles = first // settings.cycle + jnp.arange(n_updates // settings.cycle, dtype=jnp.int32)
    state, metrics = jax.lax.scan(partial(_cycle, settings, tables, key), state, cycles)
    return state, jax.tree.map(jnp.mean, metrics) | _online_metrics(settings, state.counts)


def collected(
    settings: FineTuning, state: OnlineState, number: Int[Array, ""], key: PRNGKeyArray
) -> OnlineState:
    """One more step of every episode; the rows of the step before are stored."""
    policy = settings.acting(state.learner)
    step_key = jax.random.fold_in(_keys(key)[2], number)
    running, rows, more = collect_step(settings.collection, policy, state.running, step_key)
    replay = replay_push(state.replay, rows, horizon=settings.collection.spec.horizon)
    counts = jax.tree.map(jnp.add, state.counts, more)
    return state._replace(running=running, replay=replay, counts=counts)


def _cycle(
    settings: FineTuning, tables: Any, key: PRNGKeyArray, state: OnlineState, cycle: Int[Array, ""]
) -> tuple[OnlineState, dict[str, Float[Array, ""]]]:
    state = collected(settings, state, settings.first_steps + 1 + cycle, key)
    batch_key, update_key, _, _ = _keys(key)
    algorithm, numbers = settings.algorithm, cycle * settings.cycle + jnp.arange(settings.cycle)

    def draw(number: Int[Array, ""]) -> Any:
        return balanced_batch(
            algorithm, tables, state.replay, number, batch_key, share=settings.share
        )

    batches = jax.vmap(draw)(numbers)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(update_key, numbers)
    learner, metrics = jax.lax.scan(
        lambda learner, xs: algorithm.update(learner, *xs), state.learner, (batches, keys)
    )
    return state._replace(learner=learner), jax.tree.map(jnp.mean, metrics)


def _online_metrics(settings: FineTuning, counts: Counts) -> dict[str, Float[Array, ""]]:
    real = jax.tree.map(lambda x: x.astype(jnp.float32), counts)
    names = [channel.name for channel in settings.collection.spec.cost]
    return {
        "online_steps": real.steps,
        "online_episodes": real.episodes,
        "online_return": real.returns / jnp.maximum(real.episodes, 1),
        "online_trips": real.trips,
        "online_filtered": real.filtered,
        "online_fallback": real.fallback,
        **{f"online_violated_{name}": real.violated[j] for j, name in enumerate(names)},
    }


def _keys(key: PRNGKeyArray) -> tuple[PRNGKeyArray, ...]:
    """Of batches, of updates, of the steps on the plant, of the first episodes."""
    return tuple(jax.random.split(key, 4))
