"""Training from a dataset file that does not fit into memory, chunk by chunk."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents import Algorithm
from neorl_agents.algorithms import for_run
from neorl_agents.sampling import Rows, sampler_of
from neorl_core import InputError, Policy, Transition, as_arrays
from neorl_envs import read_dataset
from neorl_envs.datasets import batch_stream, data_statistics
from neorl_train.training._chunk import run_keys


@dataclasses.dataclass(frozen=True)
class Streamed:
    """How far a training run from a file has come.

    Attributes:
        algorithm: Learner with plain numbers, schedules settled.
        state: State of the learner.
        done: Number of updates taken, in calls of ``algorithm.update``.
        metrics: Mean metrics of the last chunk.
    """

    algorithm: Algorithm
    state: Any
    done: int
    metrics: dict[str, float]

    def policy(self) -> Policy:
        """The policy that was learned."""
        return as_arrays(self.algorithm).policy(self.state)


def _ignore(streamed: Streamed) -> None:
    """Told of every chunk."""


def train_streamed(
    algorithm: Algorithm,
    path: str | os.PathLike[str],
    *,
    updates: int,
    chunk: int = 100,
    seed: int = 0,
    resume: Streamed | None = None,
    keep: Bool[Any, " row"] | None = None,
    shard: tuple[int, int] = (0, 1),
    told: Callable[[Streamed], None] = _ignore,
) -> Streamed:
    """Trains one seed on a dataset file whose rows are never all in memory.

    Batches come from :func:`neorl_envs.datasets.batch_stream`: shuffled by blocks, each epoch
    every row once, read ahead of need. Batch and key of an update are functions of the seed and
    the number of the update, so the result does not hang on where it was interrupted.

    Args:
        algorithm: Learner that draws single rows.
        path: A dataset file.
        updates: Critic gradient steps in all; schedules of length -1 take it.
        chunk: Steps in one call of the compiled program; a divisor of ``updates``.
        seed: Decides initial state, batches and keys.
        resume: What an earlier call gave, to continue from.
        keep: Flag of every row of the file; false where it takes no part.
        shard: Number of this reader and of all readers.
        told: Called after every chunk.

    Returns:
        State and metrics at the end.

    Raises:
        InputError: If the file or a number is bad, the algorithm draws more than single rows, or
            a metric is not finite.
    """
    per_update = algorithm.batches_per_update
    algorithm = _checked(algorithm, updates, chunk)
    fields = [name for name in Transition._fields if name in algorithm.fields]
    stream = batch_stream(
        path, fields, batch_size=algorithm.batch_size, seed=seed, keep=keep, shard=shard
    )
    hyperparameters = as_arrays(algorithm)
    initial, chunks_key = run_keys(seed)
    if resume is None:
        log = read_dataset(path, memory_map=True)
        state = algorithm.init(log.spec, data_statistics(log), initial)
        now = Streamed(algorithm, state, 0, {})
    else:
        now = dataclasses.replace(resume, algorithm=algorithm)
    # The caller's state outlives the chunk, which takes the buffers it is given.
    state = jax.tree.map(jnp.copy, now.state)
    source = stream.chunks(chunk, first=now.done * per_update)
    batches = None
    try:
        while now.done < updates // per_update:
            batches = batches or _next(source, per_update)
            state, means = train_batches(
                hyperparameters, state, batches, jnp.int32(now.done), chunks_key
            )
            done = now.done + chunk // per_update
            # Gathered while the device works.
            batches = _next(source, per_update) if done < updates // per_update else None
            metrics = _finite(algorithm, done * per_update, means)
            now = Streamed(algorithm, state, done, metrics)
            told(now)
            state = jax.tree.map(jnp.copy, state)
    finally:
        source.close()
    return now


@partial(jax.jit, donate_argnums=1)
def train_batches(
    algorithm: Algorithm,
    state: Any,
    batches: Transition,
    first: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Any, dict[str, Float[Array, ""]]]:
    """Updates on given batches: one for every row of their first axis.

    Args:
        algorithm: Learner with array leaves.
        state: State; its buffers are given away.
        batches: Leading axes ``(update, batches_per_update, batch_size)``.
        first: Number of the first update.
        key: Key of the run's chunks.

    Returns:
        The state, and the mean of every metric.
    """
    numbers = first + jnp.arange(batches.obs.shape[0], dtype=jnp.int32)
    _, update_key = jax.random.split(key)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(update_key, numbers)
    state, metrics = jax.lax.scan(lambda s, xs: algorithm.update(s, *xs), state, (batches, keys))
    return state, jax.tree.map(jnp.mean, metrics)


def _next(source: Iterator[Transition], per_update: int) -> Transition:
    return jax.tree.map(lambda c: c.reshape(-1, per_update, *c.shape[1:]), next(source))


def _checked(algorithm: Algorithm, updates: int, chunk: int) -> Algorithm:
    name, per_update = type(algorithm).__name__, algorithm.batches_per_update
    try:
        algorithm.validate()
    except ValueError as error:
        raise InputError(str(error)) from error
    if chunk < 1 or updates < 1 or updates % chunk or chunk % per_update:
        raise InputError(
            f"updates must be a multiple of chunk, and chunk one of {per_update}, the critic steps "
            f"of one update of {name}; got {updates} and {chunk}"
        )
    if type(sampler_of(algorithm)) is not Rows:
        raise InputError(
            f"{name} draws more than single rows, which a stream does not give; train it in memory"
        )
    return for_run(algorithm, updates)


def _finite(algorithm: Algorithm, step: int, means: dict[str, Any]) -> dict[str, float]:
    metrics = {name: float(value) for name, value in jax.device_get(means).items()}
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise InputError(
                f"{type(algorithm).__name__} diverged: {name} is {value} at update {step}; lower "
                "its learning rates, or scale the reward"
            )
    return metrics
