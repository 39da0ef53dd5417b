"""Batches from a file larger than memory: shuffled by blocks, prefetched and resumable."""

import bisect
import dataclasses
import functools
import os
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from jaxtyping import Bool, Int

from neorl_core import Transition
from neorl_envs.datasets._checks import FLAGS, DatasetError
from neorl_envs.datasets._file import DTYPES, map_unchecked, open_hdf5
from neorl_envs.datasets._shards import stored_files

# Location of the rows of a log in one or several files, for readers that read them in pieces.


OPEN_FILES = 64
"""Largest number of files that a stream keeps open."""


class StoredRows(NamedTuple):
    """Some consecutive rows of a log in one file.

    Attributes:
        path: The file.
        first: Index of the first row.
        stop: One past the index of the last row.
        offsets: Byte offset at which each field begins.
    """

    path: Path
    first: int
    stop: int
    offsets: dict[str, int]


class OpenFiles:
    """The files of a stream, opened on first use; only a limited number stays open."""

    def __init__(self) -> None:
        self._descriptors: dict[Path, int] = {}

    def read(self, path: Path, n_bytes: int, offset: int) -> bytes:
        """Reads bytes of a file; fewer if the file ends."""
        if path not in self._descriptors:
            if len(self._descriptors) >= OPEN_FILES:
                oldest = next(iter(self._descriptors))
                os.close(self._descriptors.pop(oldest))
            self._descriptors[path] = os.open(path, os.O_RDONLY)
        return os.pread(self._descriptors[path], n_bytes, offset)

    def close(self) -> None:
        """Closes all files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}


def row_bytes(name: str, shape: tuple[int, ...]) -> int:
    """Size of one row of a field, bytes."""
    return int(np.prod(shape)) * np.dtype(DTYPES[name]).itemsize


def opened_rows(
    path: Path, fields: Sequence[str]
) -> tuple[np.ndarray, tuple[StoredRows, ...], dict[str, tuple[int, ...]]]:
    """Checks the files of a log and locates some of its fields.

    Returns the mask of all rows, their location, and the trailing shape of each field. Raises a
    ``DatasetError`` if a file cannot be read or mapped.
    """
    masks, files, row = [], [], 0
    shapes: dict[str, tuple[int, ...]] = {}
    for part in stored_files(path):
        masks.append(np.array(map_unchecked(part).transitions.mask))
        offsets = {}
        with open_hdf5(part) as file:
            for name in fields:
                column = file[name]
                assert isinstance(column, h5py.Dataset)
                offsets[name], shapes[name] = column.id.get_offset() or 0, column.shape[1:]
        files.append(StoredRows(part, row, row + len(masks[-1]), offsets))
        row = files[-1].stop
    return np.concatenate(masks), tuple(files), shapes


BLOCK_ROWS, BLOCK_BYTES, BUFFER_BLOCKS = 1024, 2**18, 256
"""Largest number of rows and bytes of a block, and number of blocks shuffled together."""
STRETCH_BLOCKS = 64
"""Smallest number of blocks for each of several readers, if there are enough rows."""


@dataclasses.dataclass(frozen=True, eq=False)
class BatchStream:
    """Batches of the unmasked rows of a dataset file; an epoch visits each row at most once.

    The rows of the log are divided into blocks of consecutive rows. Blocks may span several files,
    so the batches do not depend on how the log is split into files. An epoch takes the blocks in
    random order, reads ``buffer_blocks`` of them at a time, shuffles their rows together and forms
    batches; the few rows left at the end that do not fill a batch are dropped. The order is a
    function of ``(seed, epoch)``, so batch ``n`` is the same wherever reading starts. A batch
    contains rows from ``buffer_blocks`` places of the log, whereas uniform sampling would use all
    of it.

    Build one with :func:`batch_stream`.

    Attributes:
        path: The dataset file, or the manifest of several.
        fields: Fields of every batch; the others are ``None``.
        batch_size: Number of rows in a batch.
        seed: Seed of the order of blocks and rows.
        used: Flag for every row of the log: whether it is used.
        files: Location of the rows by file, in order.
        shapes: Trailing shape of each field.
        block_rows: Number of rows in a block.
        buffer_blocks: Number of blocks that are shuffled together.
        shard: Index of this reader and number of readers; each reads a separate part of the log.
    """

    path: Path
    fields: tuple[str, ...]
    batch_size: int
    seed: int
    used: Bool[np.ndarray, " row"]
    files: tuple[StoredRows, ...]
    shapes: dict[str, tuple[int, ...]]
    block_rows: int = BLOCK_ROWS
    buffer_blocks: int = BUFFER_BLOCKS
    shard: tuple[int, int] = (0, 1)

    @functools.cached_property
    def _blocks(self) -> Int[np.ndarray, " block"]:
        """Indices of the blocks of this reader that contain a used row."""
        index, count = self.shard
        return np.array_split(np.flatnonzero(self._rows_a_block), count)[index]

    @functools.cached_property
    def _rows_a_block(self) -> Int[np.ndarray, " block"]:
        starts = np.arange(0, len(self.used), self.block_rows)
        return np.add.reduceat(self.used, starts, dtype=np.int64)

    @functools.cached_property
    def n_rows(self) -> int:
        """Number of rows that this reader uses."""
        return int(self._rows_a_block[self._blocks].sum())

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches in one epoch of this reader."""
        return self.n_rows // self.batch_size

    def with_(self, *, fields: Sequence[str], batch_size: int, seed: int) -> "BatchStream":
        """A stream of the same rows with other batches; the file is not checked again.

        Args:
            fields: Fields of the batches, a subset of those of this stream.
            batch_size: Number of rows in a batch.
            seed: Seed of the order of blocks and rows.

        Raises:
            DatasetError: If this stream lacks a field, or this reader has fewer rows than a batch.
        """
        missing = [name for name in fields if name not in self.shapes]
        if missing:
            raise DatasetError(f"the stream of {self.path} was opened without {missing[0]!r}")
        changed = dataclasses.replace(self, fields=tuple(fields), batch_size=batch_size, seed=seed)
        changed.__dict__["_rows_a_block"] = self._rows_a_block
        return _with_a_batch(changed)

    def reader(self, number: int, count: int) -> "BatchStream":
        """One of several readers, each with a separate part of the log and its own order.

        A short log is divided into smaller blocks, so that all parts have about the same length.
        Together, the readers hold as many rows in memory as this stream.

        Args:
            number: Index of the reader, counted from 0.
            count: Number of readers.
        """
        if count == 1:
            return self
        block_rows = min(self.block_rows, max(len(self.used) // (STRETCH_BLOCKS * count), 1))
        buffered = self.buffer_blocks * self.block_rows // (block_rows * count)
        return dataclasses.replace(
            self, shard=(number, count), block_rows=block_rows, buffer_blocks=max(buffered, 1)
        )

    def batches(self, first: int = 0) -> Generator[Transition, None, None]:
        """Yields batches endlessly, beginning with number ``first``; a thread prefetches rows.

        Args:
            first: Index of the first batch, counted from 0. To resume, pass the number of batches
                that were already taken.

        Yields:
            Host arrays with ``batch_size`` rows.
        """
        stop = threading.Event()
        prefetched: queue.Queue[Any] = queue.Queue(maxsize=1)
        reader = threading.Thread(
            target=self._read_ahead,
            args=(first, prefetched, stop),
            daemon=True,
            name="batch stream",
        )
        reader.start()
        try:
            leftover: dict[str, np.ndarray] = {}
            while True:
                batch = prefetched.get()
                if isinstance(batch, BaseException):
                    raise batch
                new, ends = batch
                rows = {
                    n: np.concatenate([leftover[n], c]) if leftover else c for n, c in new.items()
                }
                n = len(next(iter(rows.values()))) // self.batch_size
                for i in range(n):
                    part = slice(i * self.batch_size, (i + 1) * self.batch_size)
                    yield self._transition({name: c[part] for name, c in rows.items()})
                leftover = (
                    {} if ends else {name: c[n * self.batch_size :] for name, c in rows.items()}
                )
        finally:
            stop.set()
            while reader.is_alive():
                try:
                    prefetched.get(timeout=0.01)
                except queue.Empty:
                    continue

    def chunks(self, n_batches: int, first: int = 0) -> Generator[Transition, None, None]:
        """Yields ``n_batches`` batches at a time, stacked along a new first axis."""
        source = self.batches(first)
        try:
            while True:
                batches = [next(source) for _ in range(n_batches)]
                yield self._transition(
                    {name: np.stack([getattr(b, name) for b in batches]) for name in self.fields}
                )
        finally:
            source.close()

    def _transition(self, columns: dict[str, np.ndarray]) -> Transition:
        return Transition(*(columns.get(name) for name in Transition._fields))  # pyright: ignore

    def _read_ahead(self, first: int, prefetched: queue.Queue[Any], stop: threading.Event) -> None:
        """Puts the shuffled rows of each buffer into the queue, and whether they end an epoch."""
        try:
            files = OpenFiles()
            try:
                for item in self._buffers(files, first):
                    while not stop.is_set():
                        try:
                            prefetched.put(item, timeout=0.1)
                            break
                        except queue.Full:
                            continue
                    if stop.is_set():
                        return
            finally:
                files.close()
        except Exception as error:  # the consumer raises it again
            prefetched.put(error)

    def _buffers(
        self, files: OpenFiles, first: int
    ) -> Iterator[tuple[dict[str, np.ndarray], bool]]:
        epoch, position = divmod(first, self.batches_per_epoch)
        while True:
            order = self._order(epoch)
            groups = [
                order[i : i + self.buffer_blocks] for i in range(0, len(order), self.buffer_blocks)
            ]
            skip = position * self.batch_size
            for number, group in enumerate(groups):
                rows = [self._rows_of(block) for block in group]
                size = sum(map(len, rows))
                if skip >= size:
                    skip -= size
                    continue
                shuffled = self._random(epoch, number + 1).permutation(size)[skip:]
                skip = 0
                yield self._gather(files, group, rows, shuffled), number == len(groups) - 1
            epoch, position = epoch + 1, 0

    def _order(self, epoch: int) -> Int[np.ndarray, " block"]:
        return self._random(epoch, 0).permutation(self._blocks)

    def _random(self, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *self.shard, epoch, purpose])

    def _rows_of(self, block: int) -> Int[np.ndarray, " row"]:
        """Indices within a block of the rows that are used."""
        return np.flatnonzero(self.used[block * self.block_rows : (block + 1) * self.block_rows])

    def _gather(
        self,
        files: OpenFiles,
        group: Int[np.ndarray, " block"],
        rows: Sequence[np.ndarray],
        shuffled: Int[np.ndarray, " row"],
    ) -> dict[str, np.ndarray]:
        """The shuffled rows of some blocks, read rather than mapped, to keep memory bounded."""
        columns = {}
        for name in self.fields:
            parts = [
                self._read(files, name, block)[selected_rows]
                for block, selected_rows in zip(group, rows, strict=True)
            ]
            columns[name] = np.concatenate(parts)[shuffled]
        return columns

    def _read(self, files: OpenFiles, name: str, block: int) -> np.ndarray:
        """Reads one block of a field, which may begin in one file and end in another."""
        shape, dtype = self.shapes[name], np.dtype(DTYPES[name])
        width = row_bytes(name, shape)
        start = block * self.block_rows
        stop = min(start + self.block_rows, len(self.used))
        number = bisect.bisect_right(self._firsts, start) - 1
        data = []
        while width and start < stop:
            part = self.files[number]
            n = min(stop, part.stop) - start
            offset = part.offsets[name] + (start - part.first) * width
            data.append(files.read(part.path, n * width, offset))
            if len(data[-1]) != n * width:
                raise DatasetError(f"{part.path}: column '{name}' ends early; the file was changed")
            start, number = start + n, number + 1
        n_rows = stop - block * self.block_rows
        column = np.frombuffer(b"".join(data), dtype).reshape(n_rows, *shape)
        return column.view(np.bool_) if name in FLAGS else column

    @functools.cached_property
    def _firsts(self) -> list[int]:
        return [part.first for part in self.files]


def batch_stream(
    path: str | os.PathLike[str],
    fields: Sequence[str],
    *,
    batch_size: int,
    seed: int,
    keep: Bool[np.ndarray, " row"] | None = None,
    shard: tuple[int, int] = (0, 1),
    block_rows: int | None = None,
    buffer_blocks: int = BUFFER_BLOCKS,
) -> BatchStream:
    """Opens a dataset file to read batches from disk; the file is checked first.

    Args:
        path: A dataset file, or the manifest of several.
        fields: Fields of :class:`~neorl_core.Transition` that the batches contain.
        batch_size: Number of rows in a batch.
        seed: Seed of the order of blocks and rows.
        keep: Flag for every row; false for a row that is not to be used, such as one of a held-out
            episode.
        shard: Index of this reader and number of readers, ``(0, 1)`` for a single one. Each reader
            reads a separate part of the log.
        block_rows: Number of rows in a block; by default 1024, or fewer for wide rows, so that a
            block has at most 256 KiB.
        buffer_blocks: Number of blocks that are shuffled together. Memory use is up to four times
            their size: by default no more than 256 MB.

    Returns:
        The stream.

    Raises:
        DatasetError: If the file cannot be read or mapped, a field is unknown, a number is out of
            range, or this reader has fewer rows than a batch.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from neorl_core import Channel, Spec
        >>> from neorl_envs import write_dataset
        >>> from neorl_envs.datasets import dataset_from_columns
        >>> level, valve = Channel("level", "m", 0, 9), Channel("valve", "%", 0, 9)
        >>> rows = np.arange(8.0)[:, None]
        >>> log = dataset_from_columns(
        ...     Spec((level,), (valve,), (), dt=1, horizon=8),
        ...     obs=rows,
        ...     action=rows,
        ...     reward=rows[:, 0],
        ...     next_obs=rows + 1,
        ...     terminated=np.zeros(8),
        ...     truncated=np.zeros(8),
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_dataset(Path(folder) / "log.h5", log)
        ...     stream = batch_stream(path, ["reward"], batch_size=4, seed=0)
        ...     batches = stream.batches()
        ...     seen = [float(r) for _ in range(2) for r in next(batches).reward]
        ...     batches.close()
        >>> sorted(seen), stream.batches_per_epoch
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 2)
    """
    path = Path(path)
    numbers = {"batch_size": batch_size, "block_rows": block_rows, "buffer_blocks": buffer_blocks}
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise DatasetError(f"{name} must be 1 or more, got {value}")
    if not 0 <= shard[0] < shard[1]:
        raise DatasetError(f"shard must be (number, of how many), as (0, 1), got {shard}")
    unknown = [name for name in fields if name not in Transition._fields]
    if unknown:
        raise DatasetError(f"unknown field {unknown[0]!r}; known: {', '.join(Transition._fields)}")
    used, files, shapes = opened_rows(path, fields)
    if keep is not None:
        if np.shape(keep) != used.shape:
            raise DatasetError(f"keep: expected a flag for each of {len(used)} rows")
        used = used & np.asarray(keep, np.bool_)
    if block_rows is None:
        row = sum(row_bytes(name, shape) for name, shape in shapes.items())
        block_rows = min(BLOCK_ROWS, max(1, BLOCK_BYTES // max(row, 1)))
    return _with_a_batch(
        BatchStream(
            path=path,
            fields=tuple(fields),
            batch_size=batch_size,
            seed=seed,
            used=used,
            files=files,
            shapes=shapes,
            block_rows=block_rows,
            buffer_blocks=buffer_blocks,
            shard=shard,
        )
    )


def _with_a_batch(stream: BatchStream) -> BatchStream:
    if stream.batches_per_epoch < 1:
        index, count = stream.shard
        raise DatasetError(
            f"{stream.path}: a batch has {stream.batch_size} rows, and reader {index} of {count} "
            f"only {stream.n_rows}"
        )
    return stream
