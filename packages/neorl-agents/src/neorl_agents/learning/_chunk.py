"""The hot loop: many updates as one compiled program, on batches from any source."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.learning._contract import updated_once
from neorl_agents.learning._protocol import Learner
from neorl_agents.learning._source import Source, TrainingKeys, training_keys
from neorl_agents.learning._state import LearnerState


class Training(NamedTuple):
    """Everything that changes while a learner is trained.

    Attributes:
        learner: State of the learner.
        memory: Memory of the source; ``()`` if it has none.
    """

    learner: LearnerState
    memory: Any


@jax.jit
def begin_training(
    learner: Learner, source: Source, state: LearnerState, tables: Any, key: PRNGKeyArray
) -> Training:
    """The training before its first update.

    Args:
        learner: Learner with array leaves (``neorl_core.as_arrays``).
        source: Source of its batches.
        state: State of ``learner.init``, or of an earlier training.
        tables: Device tables that the source samples from.
        key: Key of the run's chunks.
    """
    return Training(state, source.begin(learner, state, tables, training_keys(key)))


@partial(jax.jit, static_argnames="n_updates", donate_argnums=2)
def train_chunk(
    learner: Learner,
    source: Source,
    training: Training,
    tables: Any,
    first: Int[Array, ""],
    key: PRNGKeyArray,
    *,
    n_updates: int,
) -> tuple[Training, dict[str, Float[Array, ""]]]:
    """Runs updates ``first .. first + n_updates - 1`` of one training.

    Batches and keys are functions of ``(key, index of the update)`` and of the source's memory, so
    the result does not depend on the length of a chunk. A source without memory gives all batches
    of the chunk before the scan.

    Args:
        learner: Learner with array leaves (``neorl_core.as_arrays``).
        source: Source of its batches.
        training: Result of :func:`begin_training` or the last chunk; its buffers are donated.
        tables: Device tables that the source samples from.
        first: Index of the first update, counted in calls of ``update``.
        key: Key of the run's chunks.
        n_updates: Number of calls of ``update``; a multiple of ``source.cycle``; static.

    Returns:
        The training, and the mean of every metric over the chunk.

    Raises:
        ValueError: If ``n_updates`` is not a multiple of the cycle.
    """
    keys, state = training_keys(key), training.learner
    if source.cycle == 0:
        numbers = first + jnp.arange(n_updates, dtype=jnp.int32)
        batches = source.batches(learner, training.memory, tables, numbers, keys.batches)
        state, metrics = _updates(learner, keys, state, numbers, batches)
        training = Training(state, training.memory)
    else:
        if n_updates % source.cycle:
            raise ValueError(
                f"the updates of a chunk must be a multiple of the source's cycle, {source.cycle}, "
                f"got {n_updates}"
            )
        cycles = first // source.cycle + jnp.arange(n_updates // source.cycle, dtype=jnp.int32)
        step = partial(_cycle, learner, source, tables, keys)
        training, metrics = jax.lax.scan(step, training, cycles)
    return training, jax.tree.map(jnp.mean, metrics) | source.metrics(training.memory)


def _cycle(
    learner: Learner,
    source: Source,
    tables: Any,
    keys: TrainingKeys,
    training: Training,
    number: Int[Array, ""],
) -> tuple[Training, dict[str, Float[Array, ""]]]:
    state, memory = training
    memory = source.advance(learner, state, memory, tables, number, keys.source)
    numbers = number * source.cycle + jnp.arange(source.cycle, dtype=jnp.int32)
    batches = source.batches(learner, memory, tables, numbers, keys.batches)
    state, metrics = _updates(learner, keys, state, numbers, batches)
    return Training(state, memory), jax.tree.map(jnp.mean, metrics)


def _updates(
    learner: Learner,
    keys: TrainingKeys,
    state: LearnerState,
    numbers: Int[Array, " update"],
    batches: Any,
) -> tuple[LearnerState, dict[str, Float[Array, " update"]]]:
    update_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(keys.updates, numbers)
    return jax.lax.scan(partial(_update, learner), state, (batches, update_keys))


def _update(
    learner: Learner, state: LearnerState, batch_and_key: tuple[Any, PRNGKeyArray]
) -> tuple[LearnerState, dict[str, Float[Array, ""]]]:
    """Runs one update; a learner that breaks the contract is refused by a message that names it."""
    return updated_once(learner, state, *batch_and_key)
