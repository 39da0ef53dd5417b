"""Offline training of all seeds of one algorithm, side by side."""

from collections.abc import Sequence
from typing import Any

import jax

from neorl_agents import Algorithm
from neorl_agents.algorithms import require_policy
from neorl_core import as_arrays
from neorl_train.experience._streamed import StreamedData
from neorl_train.experience._training_data import TrainingData
from neorl_train.training._chunk import run_keys
from neorl_train.training._feeds import MemoryFeed, StreamFeed
from neorl_train.training._queues import Device, SeedQueues


class ParallelSeeds(SeedQueues):
    """The training states of all seeds of one algorithm, each on its device.

    Args:
        algorithm: Learner with plain numbers.
        data: Training split; copied to each device once, or left in its file.
        seeds: Seeds of the training runs.
        devices: Devices, to which the seeds are dealt in turn.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        data: TrainingData | StreamedData,
        seeds: Sequence[int],
        devices: Sequence[Device],
    ) -> None:
        arrays = as_arrays(algorithm)
        keys = [run_keys(seed) for seed in seeds]
        feed = (
            StreamFeed(algorithm, data, seeds)
            if isinstance(data, StreamedData)
            else MemoryFeed(algorithm, data, list(devices)[: len(seeds)])
        )
        super().__init__(
            feed,
            arrays,
            [for_chunks for _, for_chunks in keys],
            lambda i: algorithm.init(data.spec, data.statistics, keys[i][0]),
            arrays.policy,
            seeds,
            devices,
        )
        jax.eval_shape(lambda state: _judged(arrays, state), self._states[0])


def _judged(algorithm: Algorithm, state: Any) -> tuple[()]:
    """Refuses a policy that cannot act before anything is compiled."""
    require_policy(algorithm, algorithm.policy(state))
    return ()
