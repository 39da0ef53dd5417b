"""Offline training of all seeds of one learner in parallel."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from neorl_agents import Learner, LearnerState
from neorl_core import as_arrays
from neorl_train.data._streamed import StreamedData
from neorl_train.data._training_data import TrainingData
from neorl_train.training._feeds import Feed, MemoryFeed, StreamFeed
from neorl_train.training._queues import Device, Form, SeedQueues

Contexts = Sequence[Mapping[str, LearnerState]]
"""The parts that were trained before, by name, for every seed."""


def run_keys(seed: int, part: str = "") -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of one training run: for its initial state, and for its chunks.

    Args:
        seed: Seed of the run.
        part: Name of a learner that is trained before; the learner itself by default.
    """
    key = jax.random.key(seed)
    if part:
        key = jax.random.fold_in(key, zlib.crc32(part.encode()))
    initial, chunks = jax.random.split(key)
    return initial, chunks


def feed_for(
    learner: Learner,
    data: TrainingData | StreamedData,
    seeds: Sequence[int],
    devices: Sequence[Device],
) -> Feed:
    """Feeds rows from the devices, or batches from the file."""
    if isinstance(data, StreamedData):
        return StreamFeed(learner, data, seeds)
    return MemoryFeed(learner, data, list(devices)[: len(seeds)])


def offline_seeds(
    learner: Learner,
    data: TrainingData | StreamedData,
    seeds: Sequence[int],
    devices: Sequence[Device],
    *,
    contexts: Contexts = (),
    part: str = "",
    feed: Feed | None = None,
    programs: dict[tuple[Device, int], Any] | None = None,
    form: Form = "",
) -> SeedQueues:
    """The trainings of all seeds of one learner on a log.

    Args:
        learner: Learner with plain numbers and resolved schedules.
        data: Training split; copied to each device once, or left in its file.
        seeds: Seeds of the training runs.
        devices: Devices, to which the seeds are assigned in turn.
        contexts: Results of an earlier training, for every seed; none by default.
        part: Name of a learner that is trained before another one, and therefore uses its own keys.
        feed: Source of the batches, if it already exists.
        programs: Compiled programs that this training shares with others; see
            :class:`SeedQueues`.
        form: How the program is called for the seeds of a device; see :class:`SeedQueues`.
    """
    arrays, keys = as_arrays(learner), [run_keys(seed, part) for seed in seeds]
    statistics = data.statistics_for(learner)

    def begin(i: int) -> Any:
        context = contexts[i] if contexts else None
        return learner.init(data.spec, statistics, keys[i][0], context=context)

    if feed is None:
        feed = feed_for(learner, data, seeds, devices)
    chunk_keys = [chunks for _, chunks in keys]
    shared: Any = {"programs": programs, "form": form}
    return SeedQueues(arrays, feed, begin, chunk_keys, seeds, devices, **shared)
