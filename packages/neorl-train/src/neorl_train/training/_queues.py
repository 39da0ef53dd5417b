"""Runs seeds in parallel, in turn on the devices or as one batch each, and feeds their batches."""

import concurrent.futures
import functools
import traceback
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import PRNGKeyArray

from neorl_agents import Algorithm, Learner, LearnerState
from neorl_agents.learning import (
    GivenBatches,
    Log,
    Source,
    Training,
    begin_training,
    log_tables,
    require_policy,
    train_chunk,
)
from neorl_core import InputError, Policy, Spec, Transition, as_arrays
from neorl_core.infrastructure import factorises
from neorl_train.data._training_data import StreamedData, TrainingData
from neorl_train.training._memory import TrainingMemory, memory_of, tree_bytes
from neorl_train.training._mesh import Placement, SharedBatches, batch_devices_of, put, put_own_rows


class Feed(Protocol):
    """Tables of :func:`neorl_agents.learning.train_chunk` for the seeds of a training."""

    @property
    def source(self) -> Source:
        """The source that samples batches from the tables."""
        ...

    @property
    def shared_by_seeds(self) -> bool:
        """Whether all seeds of a device receive the same tables."""
        ...

    def example(self, device: Any, n_updates: int) -> Any:
        """Arrays with the shapes that :meth:`tables` returns."""
        ...

    def tables(self, number: int, device: Any, done: int, n_updates: int) -> Any:
        """Tables for the next chunk of the seed with the given number, on its device."""
        ...

    def close(self) -> None:
        """Releases files and threads."""
        ...


class MemoryFeed:
    """All rows, once on every device; the program samples from them.

    Args:
        learner: Learner whose sampler makes the tables.
        data: The rows.
        devices: Devices.
        tables: Tables from which ``learner`` samples, if they already exist; by default they are
            made.
    """

    source = Log()
    shared_by_seeds = True

    def __init__(
        self,
        learner: Learner,
        data: TrainingData,
        devices: Sequence[Any],
        *,
        tables: Any = None,
    ) -> None:
        if tables is None:
            tables = log_tables(learner, data.spec, data.rows_for(learner))
        self._tables = {device: put(tables, device) for device in devices}

    def example(self, device: Any, n_updates: int) -> Any:
        """The tables themselves."""
        return self._tables[device]

    def tables(self, number: int, device: Any, done: int, n_updates: int) -> Any:
        """The same tables for every seed and chunk."""
        return self._tables[device]

    def close(self) -> None:
        """Does nothing: nothing is open."""


class NoRows:
    """Feed without a log: the source makes every row itself."""

    source = Log()
    shared_by_seeds = True

    def example(self, device: Any, n_updates: int) -> tuple[()]:
        """An empty table."""
        return ()

    def tables(self, number: int, device: Any, done: int, n_updates: int) -> tuple[()]:
        """An empty table."""
        return ()

    def close(self) -> None:
        """Does nothing: nothing is open."""


class StreamFeed:
    """Batches of every seed from the file, read ahead while the devices work.

    If several processes share each batch, each reads only the rows of its own devices, provided
    that the readers of the log can be divided among them; otherwise each reads all rows.
    """

    source = GivenBatches()
    shared_by_seeds = False

    def __init__(self, learner: Learner, data: StreamedData, seeds: Sequence[int]) -> None:
        self._learner, self._data, self._seeds = learner, data, tuple(seeds)
        divided = data.readers % jax.process_count() == 0
        self._part = (jax.process_index(), jax.process_count()) if divided else (0, 1)
        self._per_update = learner.batches_per_update
        self._open: dict[int, tuple[int, Generator[Transition, None, None]]] = {}

    def example(self, device: Any, n_updates: int) -> Any:
        """Zeros of the right shapes."""
        empty = self._data.empty(self._learner, n_batches=n_updates * self._per_update)
        rows = self._learner.batch_size // self._part[1]
        return self._put(jax.tree.map(lambda column: column[:, :rows], empty), device)

    def tables(self, number: int, device: Any, done: int, n_updates: int) -> Any:
        """The next batches of a seed; reading restarts unless it continues where it stopped."""
        expected, source = self._open.get(number, (-1, None))
        if expected != done or source is None:
            if source is not None:
                source.close()
            source = self._data.chunks(
                self._learner,
                seed=self._seeds[number],
                n_batches=n_updates * self._per_update,
                first=done * self._per_update,
                part=self._part,
            )
        batches = next(source)
        self._open[number] = (done + n_updates, source)
        return self._put(batches, device)

    def close(self) -> None:
        """Ends the reading threads."""
        for _, source in self._open.values():
            source.close()
        self._open = {}

    def _put(self, batches: Transition, device: Any) -> Any:
        """Places batches on their device, or this process's rows on its devices."""
        split = (-1, self._per_update)
        shaped = jax.tree.map(lambda c: np.reshape(c, (*split, *c.shape[1:])), batches)
        return put(shaped, device) if self._part == (0, 1) else put_own_rows(shaped, device)


Device: TypeAlias = Any
"""A device, or the devices that share every batch."""
Metrics = dict[str, jax.Array]

Form: TypeAlias = Literal["", "queued", "vmap"]
"""How one program serves several settings and seeds; empty chooses by the kind of device.

``"queued"`` calls it once for every setting and seed, so that each result is bit-identical to that
of its single run. ``"vmap"`` calls it once for all of them, in batched operations that round
differently: on an accelerator a call of small networks is too short to fill the device.
"""

EXECUTION_MODE = "one program per seed, queued on one device; every core is a device"
"""The execution mode, on which the bits of a seed depend beside configuration, data and key."""
SHARED_MODE = "one program per seed, on devices that share each batch"
"""As :data:`EXECUTION_MODE`, if more than one device shares a batch."""
BATCHED_MODE = "seeds of a device as one batch if the log is in memory, otherwise queued"
"""As :data:`EXECUTION_MODE`, on an accelerator."""


class Stacked(NamedTuple):
    """Inputs of a chunk of several seeds on one device.

    Attributes:
        learner: Learner with array leaves.
        source: Source of its batches.
        trainings: States, stacked by seed.
        tables: Tables from which the source samples.
        keys: Keys of the chunks, stacked by seed.
    """

    learner: Any
    source: Any
    trainings: Training
    tables: Any
    keys: Any


class SeedQueues:
    """The trainings of all seeds of one learner, each on its device, and the program of a chunk.

    Queued, every seed runs the very program that it would run alone, so its result is bit-identical
    to that of its single run, whatever the number of seeds and devices. Batched, the seeds of a
    device form one program, which takes an accelerator little more time than one seed, and results
    equal those of single runs up to rounding. Calls return immediately: the devices work in
    parallel.

    Args:
        learner: Learner with array leaves.
        feed: Source of the batches.
        begin: Initial state of the learner by the position of its seed, called once for each.
        keys: Key of the chunks of every seed.
        seeds: Seeds of the training runs.
        devices: Devices, to which the seeds are assigned in turn.
        spec: Channels of the policy.
        source: Source to use instead of that of the feed; it receives the feed's tables.
        programs: Compiled programs by device and number of updates, which trainings may share if
            their learners differ only in numbers; the first one that needs a program compiles it.
        form: By default queued on a CPU and batched on an accelerator. Seeds whose rows are read
            from a file or made during the training, and those on devices that share each batch, are
            always queued.

    Attributes:
        seeds: Seeds of the training runs.
        done: Number of updates of every seed so far, in calls of ``update``.
    """

    def __init__(
        self,
        learner: Learner,
        feed: Feed,
        begin: Callable[[int], LearnerState],
        keys: Sequence[Any],
        seeds: Sequence[int],
        devices: Sequence[Device],
        spec: Spec,
        *,
        source: Source | None = None,
        programs: dict[tuple[Device, int], Any] | None = None,
        form: Form = "",
    ) -> None:
        devices_used = list(devices)[: len(seeds)]
        self.seeds = tuple(seeds)
        self._learner, self._feed = learner, feed
        self._source: Any = learner.source(feed.source if source is None else source)
        self._shared_by = batch_devices_of(devices_used)
        if self._shared_by > 1 and self._source.cycle:
            raise InputError("devices cannot share batches from a plant; leave devices.batch at 0")
        self._devices = [devices_used[i % len(devices_used)] for i in range(len(seeds))]
        self._settings = {
            device: (put(learner, device), put(_share(self._source, device), device))
            for device in devices_used
        }
        self._key_data = np.stack([np.array(jax.random.key_data(key)) for key in keys])
        self._keys = self._on_devices(list(keys))
        self._trainings = [self._start(i, begin(i)) for i in range(len(seeds))]
        batched = chosen_form(form) == "vmap" and self._shared_by == 1
        self._batched = batched and self._source.cycle == 0 and feed.shared_by_seeds
        self._shared = {} if programs is None else programs
        self._programs: dict[Device, Any] = {}
        self._in_turn = False
        self._n_updates = 0
        self.done = 0
        if isinstance(learner, Algorithm):
            jax.eval_shape(
                lambda state: _require_policy(learner, state, spec), self._trainings[0].learner
            )

    def _start(self, i: int, state: LearnerState) -> Training:
        device = self._devices[i]
        # A chunk donates its training's buffers, so no two leaves may share one.
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
            programs = pool.map(lambda d: self._compile(first_index[d], n_updates), missing)
            for device, program in zip(missing, programs, strict=True):
                self._shared[device, n_updates] = program
        chosen = {device: self._shared[device, n_updates] for device in first_index}
        self._programs = {device: program for device, (program, _) in chosen.items()}
        # Host devices that wait for one another must not be several programs apart: their threads
        # would wait for threads that have not started. Nor may two programs factorise at a time.
        waits = self._shared_by > 1 or any(one for _, one in chosen.values())
        self._in_turn = waits and jax.default_backend() == "cpu"

    def memory(self) -> TrainingMemory | None:
        """Memory of the compiled chunk on the devices of this process; ``None`` if unknown.

        Raises:
            RuntimeError: If no chunk was compiled.
        """
        if not self._programs:
            raise RuntimeError("no chunk has been compiled; call compile(n_updates) first")
        held = [
            (device, tree_bytes(training))
            for device, training in zip(self._devices, self._trainings, strict=True)
        ]
        return memory_of(self._programs, held, together=self._batched)

    def advance(self) -> list[Metrics]:
        """Queues the next chunk for every seed and returns immediately.

        Returns:
            The mean metrics of the chunk for each seed, which are still being computed.

        Raises:
            RuntimeError: If no chunk was compiled.
        """
        if not self._programs:
            raise RuntimeError("no chunk has been compiled; call compile(n_updates) first")
        if self._batched:
            return self._advance_batched()
        metrics = []
        for i, device in enumerate(self._devices):
            tables = self._feed.tables(i, device, self.done, self._n_updates)
            self._trainings[i], means = self._programs[device](*self._arguments(i, tables))
            metrics.append(means)
            if self._in_turn:
                jax.block_until_ready(means)
        self.done += self._n_updates
        return metrics

    def _advance_batched(self) -> list[Metrics]:
        metrics: list[Metrics] = [{}] * len(self.seeds)
        for device, program in self._programs.items():
            seeds = self._seeds_of(device)
            tables = self._feed.tables(seeds[0], device, self.done, self._n_updates)
            trainings, means = program(*self._arguments(seeds[0], tables))
            for i, training, mean in zip(seeds, trainings, means, strict=True):
                self._trainings[i], metrics[i] = training, mean
            if self._in_turn:
                jax.block_until_ready(means)
        self.done += self._n_updates
        return metrics

    def _seeds_of(self, device: Device) -> list[int]:
        return [i for i, own in enumerate(self._devices) if own == device]

    def close(self) -> None:
        """Releases the file and its readers if rows are streamed."""
        self._feed.close()

    def origin_of_nan(self, snapshot: dict[str, Any], *, done: int) -> str:
        """The operation and the line of code that gave the first NaN of a chunk.

        Repeats the chunk of one seed after the other, each operation alone, which is slow.

        Args:
            snapshot: All trainings and keys before the chunk.
            done: Number of updates before it, in calls of ``update``.

        Returns:
            A phrase for a message; empty if no operation gives NaN, or rows are streamed.
        """
        if not self._feed.shared_by_seeds:
            return ""
        self.restore(snapshot, done=done)
        chunk: Any = train_chunk
        for i, device in enumerate(self._devices):
            tables = self._feed.tables(i, device, done, self._n_updates)
            arguments = (*self._settings[device], self._trainings[i], tables, done, self._keys[i])
            try:
                with jax.disable_jit(), jax.debug_nans(True):
                    chunk.__wrapped__(*arguments, n_updates=self._n_updates)
            except FloatingPointError as error:
                return _origin(error)
        return ""

    def snapshot(self) -> dict[str, Any]:
        """All trainings and keys on the host, stacked by seed; waits for the devices.

        A copy, so that it survives the next chunk, which donates the buffers.
        """
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(self._trainings))
        return {"state": stacked, "key": self.host_keys()}

    def host_keys(self) -> np.ndarray:
        """The data of all keys, stacked by seed."""
        return self._key_data.copy()

    def stack(self) -> "Stacked":
        """All inputs of a chunk, stacked by seed, if one device has all seeds."""
        (device,) = set(self._devices)
        learner, source = self._settings[device]
        trainings = jax.tree.map(lambda *leaves: jnp.stack(leaves), *self._trainings)
        tables = self._feed.example(device, self._n_updates)
        return Stacked(learner, source, trainings, tables, jnp.stack(self._keys))

    def restore(self, snapshot: dict[str, Any], *, done: int) -> None:
        """Restores the result of :meth:`snapshot`.

        Args:
            snapshot: All trainings and keys, stacked by seed.
            done: Number of updates before it was taken, in calls of ``update``.
        """
        self.done = done
        self._trainings = self._on_devices(self.unstack(snapshot["state"]))
        self._key_data = np.array(snapshot["key"])
        self._keys = self._on_devices([jax.random.wrap_key_data(key) for key in self._key_data])

    def policies(self, snapshot: dict[str, Any]) -> list[Policy]:
        """The policies of a snapshot, one per seed, with host arrays; empty for a model."""
        if not isinstance(self._learner, Algorithm):
            return []
        trainings = self.unstack(snapshot["state"])
        return [self._learner.policy(training.learner) for training in trainings]

    def unstack(self, stacked: Any) -> list[Any]:
        """Splits a tree that is stacked by seed into one tree per seed."""
        leaves, treedef = jax.tree.flatten(stacked)
        return [treedef.unflatten([leaf[i] for leaf in leaves]) for i in range(len(self.seeds))]

    def _on_devices(self, values: list[Any]) -> list[Any]:
        return [put(value, device) for value, device in zip(values, self._devices, strict=True)]

    def _arguments(self, i: int, tables: Any) -> tuple[Any, ...]:
        settings, done = self._settings[self._devices[i]], np.int32(self.done)
        if self._batched:
            seeds = self._seeds_of(self._devices[i])
            trainings, keys = (tuple(of[j] for j in seeds) for of in (self._trainings, self._keys))
            return (*settings, trainings, tables, done, keys)
        return (*settings, self._trainings[i], tables, done, self._keys[i])

    def _compile(self, i: int, n_updates: int) -> tuple[Any, bool]:
        """The program of a chunk, and whether it factorises matrices."""
        example = self._feed.example(self._devices[i], n_updates)
        program = _chunk_of_seeds if self._batched else _program(self._devices[i])
        traced = program.trace(*self._arguments(i, example), n_updates=n_updates)
        return traced.lower().compile(), factorises(traced.jaxpr)


FRAMEWORK = {"jax", "jaxlib", "equinox", "optax", "jaxtyping", "beartype"}
"""Folders of code in which an operation is carried out, but not written."""


def _origin(error: FloatingPointError) -> str:
    """The innermost line of a traceback that is not in JAX or a library on top of it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not FRAMEWORK & set(Path(frame.filename).parts)]
    file = "/".join(Path(own[-1].filename).parts[-2:])
    return f"the first NaN comes from {file}, line {own[-1].lineno}: `{own[-1].line}`"


def _share(source: Any, placement: Placement) -> Any:
    return SharedBatches(source, placement) if isinstance(placement, NamedSharding) else source


@functools.cache
def _program(placement: Placement) -> Any:
    """The chunk program of one device, or of several that each end with a copy of the state."""
    if not isinstance(placement, NamedSharding):
        return train_chunk
    return jax.jit(
        train_chunk.__wrapped__,  # pyright: ignore[reportAttributeAccessIssue]
        static_argnames="n_updates",
        donate_argnums=2,
        out_shardings=placement,
    )


@functools.partial(jax.jit, static_argnames="n_updates", donate_argnums=2)
def _chunk_of_seeds(
    learner: Any,
    source: Any,
    trainings: tuple[Training, ...],
    tables: Any,
    first: Any,
    keys: tuple[Any, ...],
    *,
    n_updates: int,
) -> tuple[tuple[Training, ...], tuple[Metrics, ...]]:
    """A chunk of all seeds of a device; their states are separate before and after."""

    def one(training: Training, key: Any) -> tuple[Training, Metrics]:
        return train_chunk(learner, source, training, tables, first, key, n_updates=n_updates)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trainings)
    done = jax.vmap(one)(stacked, jnp.stack(keys))
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], done) for i in range(len(keys))]
    return tuple(training for training, _ in each), tuple(means for _, means in each)


def execution_mode(batch_devices: int) -> str:
    """The execution mode that a run records, because the bits of a seed depend on it."""
    if batch_devices > 1 or jax.process_count() > 1:
        return SHARED_MODE
    return EXECUTION_MODE if chosen_form("") == "queued" else BATCHED_MODE


def chosen_form(form: Form) -> Form:
    """The requested form, or the one that was measured to be faster.

    On a CPU queues are faster, while one small network does not fill a GPU.
    """
    if form not in get_args(Form):
        raise InputError(f"form must be 'queued', 'vmap' or '', got {form!r}")
    return form or ("queued" if jax.default_backend() == "cpu" else "vmap")


def devices_for(seeds: Sequence[int]) -> list[Device]:
    """Devices of this process, as many as the seeds can use."""
    return list(jax.local_devices())[: len(seeds)]


def _require_policy(algorithm: Algorithm, state: LearnerState, spec: Spec) -> tuple[()]:
    """Refuses a policy that cannot act, before anything is compiled."""
    require_policy(algorithm, state, spec)
    return ()


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
    return SeedQueues(arrays, feed, begin, chunk_keys, seeds, devices, data.spec, **shared)
