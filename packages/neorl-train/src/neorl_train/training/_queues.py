"""Seeds side by side: one program for each seed, queued on the devices in turn."""

import concurrent.futures
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from neorl_agents import Algorithm, Learner, LearnerState
from neorl_agents.learning import Source, Training, begin_training, require_policy, train_chunk
from neorl_core import InputError, Policy
from neorl_train.training._feeds import Feed
from neorl_train.training._memory import TrainingMemory, memory_of, tree_bytes
from neorl_train.training._mesh import Place, SharedBatches, batch_devices_of, put

Device: TypeAlias = Any
"""A device, or the place of several that share every batch."""
Metrics = dict[str, jax.Array]

SHARED_MODE = "one program per seed, on devices that share each batch"
"""As :data:`EXECUTION_MODE`, where more than one device shares a batch."""
EXECUTION_MODE = "one program per seed, queued on one device; every core is a device"
"""What, besides configuration, data and key, the bits of a seed are a function of."""


class Stacked(NamedTuple):
    """Inputs of a chunk of several seeds on one device.

    Attributes:
        learner: Learner with array leaves.
        source: Source of its batches.
        trainings: States, stacked by seed.
        tables: Source of the batches.
        keys: Keys of the chunks, stacked by seed.
    """

    learner: Any
    source: Any
    trainings: Training
    tables: Any
    keys: Any


class SeedQueues:
    """The trainings of all seeds of one learner, each on its device, and the program of a chunk.

    Every seed runs the very program that it would run alone, so its result is that of its single
    run, bit for bit, whatever the number of seeds and devices. Calls return at once: the devices
    work through their queues side by side.

    Args:
        learner: Learner with array leaves.
        feed: Source of the batches.
        begin: Initial state of the learner by the position of its seed, called once for each.
        keys: Key of the chunks of every seed.
        seeds: Seeds of the training runs.
        devices: Devices, to which the seeds are dealt in turn.
        source: Source in place of that of the feed; it is given the feed's tables.
        programs: Compiled programs by device and number of updates, which trainings whose learners
            differ in numbers alone may share; each is compiled by who needs it first.

    Attributes:
        seeds: Seeds of the training runs.
        done: Number of updates that every seed has taken, in calls of ``update``.
    """

    def __init__(
        self,
        learner: Learner,
        feed: Feed,
        begin: Callable[[int], LearnerState],
        keys: Sequence[Any],
        seeds: Sequence[int],
        devices: Sequence[Device],
        *,
        source: Source | None = None,
        programs: dict[tuple[Device, int], Any] | None = None,
    ) -> None:
        used = list(devices)[: len(seeds)]
        self.seeds = tuple(seeds)
        self._learner, self._feed = learner, feed
        self._source: Any = learner.source(feed.source if source is None else source)
        self._shared_by = batch_devices_of(used)
        if self._shared_by > 1 and self._source.cycle:
            raise InputError(
                "batches of a plant are not shared by devices; leave devices.batch at 0"
            )
        self._devices = [used[i % len(used)] for i in range(len(seeds))]
        self._settings = {
            device: (put(learner, device), put(_shared(self._source, device), device))
            for device in used
        }
        self._key_data = np.stack([np.array(jax.random.key_data(key)) for key in keys])
        self._keys = self._placed(list(keys))
        self._trainings = [self._begun(i, begin(i)) for i in range(len(seeds))]
        self._on_cpu = jax.default_backend() == "cpu"
        self._shared = {} if programs is None else programs
        self._programs: dict[Device, Any] = {}
        self._n_updates = 0
        self.done = 0
        if isinstance(learner, Algorithm):
            jax.eval_shape(lambda state: _judged(learner, state), self._trainings[0].learner)

    def _begun(self, i: int, state: LearnerState) -> Training:
        device = self._devices[i]
        # A chunk takes its training's buffers, so that no two leaves may share one.
        state = put(state, device, may_alias=False)
        if self._source.cycle == 0:
            return Training(state, ())
        tables = self._feed.example(device, 0)
        return begin_training(*self._settings[device], state, tables, self._keys[i])

    def compile(self, n_updates: int) -> None:
        """Compiles the chunk of ``n_updates`` calls of ``update``, once for each device."""
        self._n_updates = n_updates
        first_index = {device: i for i, device in reversed(list(enumerate(self._devices)))}
        missing = [d for d in first_index if (d, n_updates) not in self._shared]
        with concurrent.futures.ThreadPoolExecutor(max(len(missing), 1)) as pool:
            programs = pool.map(lambda d: self._compiled(first_index[d], n_updates), missing)
            for device, program in zip(missing, programs, strict=True):
                self._shared[device, n_updates] = program
        self._programs = {device: self._shared[device, n_updates] for device in first_index}

    def memory(self) -> TrainingMemory | None:
        """Memory of the compiled chunk on the devices of this process; ``None`` if not known.

        Raises:
            RuntimeError: If no chunk was compiled.
        """
        if not self._programs:
            raise RuntimeError("no chunk was compiled; call compile(n_updates) first")
        held = [
            (device, tree_bytes(one))
            for device, one in zip(self._devices, self._trainings, strict=True)
        ]
        return memory_of(self._programs, held)

    def advance(self) -> list[Metrics]:
        """Queues the next chunk for every seed and returns at once.

        Returns:
            The mean metrics of the chunk for each seed, still being worked out.

        Raises:
            RuntimeError: If no chunk was compiled.
        """
        if not self._programs:
            raise RuntimeError("no chunk was compiled; call compile(n_updates) first")
        metrics = []
        for i, device in enumerate(self._devices):
            tables = self._feed.tables(i, device, self.done, self._n_updates)
            self._trainings[i], means = self._programs[device](*self._arguments(i, tables))
            metrics.append(means)
            if self._shared_by > 1 and self._on_cpu:
                # Host devices that wait for one another must not fall behind by several programs:
                # their threads would wait for threads that have not begun.
                jax.block_until_ready(means)
        self.done += self._n_updates
        return metrics

    def close(self) -> None:
        """Lets go of the file and its readers, where rows are streamed."""
        self._feed.close()

    def snapshot(self) -> dict[str, Any]:
        """All trainings and keys on the host, stacked by seed; waits for the devices.

        Copied, so that it outlives the next chunk, which gives the buffers away.
        """
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(self._trainings))
        return {"state": stacked, "key": self.host_keys()}

    def host_keys(self) -> np.ndarray:
        """The data of all keys, stacked by seed."""
        return self._key_data.copy()

    def stacked(self) -> "Stacked":
        """All that a chunk is a function of, stacked by seed, where one device has all of them."""
        (device,) = set(self._devices)
        learner, source = self._settings[device]
        trainings = jax.tree.map(lambda *leaves: jnp.stack(leaves), *self._trainings)
        tables = self._feed.example(device, self._n_updates)
        return Stacked(learner, source, trainings, tables, jnp.stack(self._keys))

    def restore(self, snapshot: dict[str, Any], *, done: int) -> None:
        """Puts back what :meth:`snapshot` gave.

        Args:
            snapshot: All trainings and keys, stacked by seed.
            done: Number of updates that it was taken after, in calls of ``update``.
        """
        self.done = done
        self._trainings = self._placed(self.unstacked(snapshot["state"]))
        self._key_data = np.array(snapshot["key"])
        self._keys = self._placed([jax.random.wrap_key_data(key) for key in self._key_data])

    def policies(self, snapshot: dict[str, Any]) -> list[Policy]:
        """The policies of a snapshot, one for each seed, with host arrays; none of a model."""
        if not isinstance(self._learner, Algorithm):
            return []
        trainings = self.unstacked(snapshot["state"])
        return [self._learner.policy(training.learner) for training in trainings]

    def unstacked(self, stacked: Any) -> list[Any]:
        """The tree of each seed, of one that is stacked by seed."""
        leaves, treedef = jax.tree.flatten(stacked)
        return [treedef.unflatten([leaf[i] for leaf in leaves]) for i in range(len(self.seeds))]

    def _placed(self, values: list[Any]) -> list[Any]:
        return [put(value, device) for value, device in zip(values, self._devices, strict=True)]

    def _arguments(self, i: int, tables: Any) -> tuple[Any, ...]:
        settings = self._settings[self._devices[i]]
        return (*settings, self._trainings[i], tables, np.int32(self.done), self._keys[i])

    def _compiled(self, i: int, n_updates: int) -> Any:
        example = self._feed.example(self._devices[i], n_updates)
        program = _program(self._devices[i])
        return program.lower(*self._arguments(i, example), n_updates=n_updates).compile()


def _shared(source: Any, place: Place) -> Any:
    return SharedBatches(source, place) if isinstance(place, NamedSharding) else source


@functools.cache
def _program(place: Place) -> Any:
    """The chunk of one device, or of several, each of which ends with a copy of the state."""
    if not isinstance(place, NamedSharding):
        return train_chunk
    return jax.jit(
        train_chunk.__wrapped__,  # pyright: ignore[reportAttributeAccessIssue]
        static_argnames="n_updates",
        donate_argnums=2,
        out_shardings=place,
    )


def devices_for(seeds: Sequence[int]) -> list[Device]:
    """Devices of this process, as many as there are seeds to keep busy."""
    return list(jax.local_devices())[: len(seeds)]


def _judged(algorithm: Algorithm, state: LearnerState) -> tuple[()]:
    """Refuses a policy that cannot act before anything is compiled."""
    require_policy(algorithm, algorithm.policy(state))
    return ()
