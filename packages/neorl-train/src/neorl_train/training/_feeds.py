"""Feeds the batches of a chunk: from rows on the device, or from a file."""

from collections.abc import Generator, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from neorl_agents import Learner
from neorl_agents.learning import GivenBatches, Log, Source, log_tables
from neorl_core import Transition
from neorl_train.data._streamed import StreamedData
from neorl_train.data._training_data import TrainingData
from neorl_train.training._mesh import put, put_own_rows


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
