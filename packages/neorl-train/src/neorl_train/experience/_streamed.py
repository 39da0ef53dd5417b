"""Training data of one algorithm if the log stays in its file."""

import dataclasses
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from neorl_agents import Learner
from neorl_agents.learning import rows_for
from neorl_agents.sampling import Rows
from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_envs import Dataset, read_dataset
from neorl_envs.datasets import (
    BatchStream,
    batch_stream,
    require_content_hash,
    stored_bytes,
)
from neorl_train.configuration._memory import PEAK
from neorl_train.experience._training_data import ROWS_AT_ONCE, both_statistics, chosen_statistics


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedData:
    """Training data of one algorithm, left in its file; batches are shuffled by blocks.

    Build one with :func:`streamed_data`.

    Attributes:
        dataset: The log, its columns mapped.
        stream: Rows that take part; each seed deals them out in an order of its own.
        statistics: Those of these rows, as they were logged.
        spec: Channels with the cost limits of the run, period and horizon.
        prices: Reward that one unit of each cost takes off for learners that do not read costs.
        priced_statistics: Statistics with the reward less those prices.
        readers: Number of stretches that the log is read in; each gives an equal part of every
            batch.
    """

    dataset: Dataset
    stream: BatchStream
    statistics: DataStatistics
    spec: Spec
    prices: tuple[float, ...]
    priced_statistics: DataStatistics
    readers: int = 1

    @property
    def n_rows(self) -> int:
        """Rows that are trained on."""
        return self.stream.n_rows

    def statistics_for(self, learner: Learner) -> DataStatistics:
        """Statistics with the reward that a learner is given."""
        return chosen_statistics(learner, self.statistics, self.priced_statistics)

    def chunks(
        self,
        learner: Learner,
        *,
        seed: int,
        n_batches: int,
        first: int,
        part: tuple[int, int] = (0, 1),
    ) -> Generator[Transition, None, None]:
        """Batches as a learner is given them, stacked ``n_batches`` at a time.

        Args:
            learner: Whose fields and batch size count.
            seed: Seed of the order of the rows.
            n_batches: Batches of one stack.
            first: Number of the first batch.
            part: Which part of the rows of every batch, and of how many equal parts, a divisor of
                ``readers``; nothing else is read. All by default.
        """
        fields = {*learner.fields}
        if any(self.prices) and "reward" in fields:
            fields.add("cost")  # for its price
        # Masked rows are left out, so that there is no mask, as in memory.
        names = [name for name in Transition._fields if name in fields - {"mask"}]
        own = self.readers // part[1]
        sources = [
            self.stream.reader(number, self.readers)
            .with_(fields=names, batch_size=learner.batch_size // self.readers, seed=seed)
            .chunks(n_batches, first)
            for number in range(part[0] * own, (part[0] + 1) * own)
        ]
        try:
            for rows in zip(*sources, strict=True):
                yield rows_for(learner, _side_by_side(rows), self.prices)
        finally:
            for source in sources:
                source.close()

    def empty(self, learner: Learner, *, n_batches: int) -> Transition:
        """Zeros of the shapes and types of a stack of batches."""
        rows: Any = self.dataset.transitions
        columns = {
            name: np.zeros((n_batches, learner.batch_size, *column.shape[1:]), column.dtype)
            for name in learner.fields
            if name != "mask" and (column := getattr(rows, name)) is not None
        }
        return Transition(*(columns.get(name) for name in Transition._fields))  # pyright: ignore[reportArgumentType]

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions of the rows, a block at a time, in the order of the log."""
        rows: Any = self.dataset.transitions
        for start in range(0, self.dataset.n_rows, ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            used = self.stream.used[block]
            if used.any():
                yield rows.obs[block][used], rows.action[block][used]


def _side_by_side(parts: Sequence[Transition]) -> Transition:
    """The rows of every batch put together; the first axis counts batches."""
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *columns: np.concatenate(columns, axis=1), *parts)


def streamed_data(
    path: str | os.PathLike[str],
    *,
    dataset: Dataset | None = None,
    episodes: Int[np.ndarray, " chosen"] | None = None,
    prices: Sequence[float] = (),
    spec: Spec | None = None,
    readers: int = 1,
) -> StreamedData:
    """A dataset file to be trained on without being read into memory.

    Args:
        path: A dataset file, or the manifest of several.
        dataset: The same file, mapped and checked; by default it is, content hash included.
        episodes: Numbers of those that are trained on; all by default.
        prices: Reward that one unit of each cost takes off for learners that do not read costs;
            none by default.
        spec: Specification with the cost limits of the run; that of the file by default.
        readers: Number of stretches that the log is read in, each giving an equal part of every
            batch. Batches are a function of the seed and of this number. Where several processes
            train together and their number divides it, each reads stretches of its own alone.

    Returns:
        What :func:`neorl_train.train` takes.

    Raises:
        DatasetError: If the file cannot be read or mapped, or was changed.
        ValueError: If every row is masked.
    """
    if dataset is None:
        dataset = read_dataset(path, memory_map=True)
        require_content_hash(dataset, str(path))
    chosen = np.arange(dataset.n_episodes) if episodes is None else np.sort(episodes)
    keep = np.zeros(dataset.n_rows, np.bool_)
    for start, end in zip(
        dataset.episode_starts[chosen], dataset.episode_ends[chosen], strict=True
    ):
        keep[start:end] = True
    own, priced = both_statistics(dataset, prices, chosen)
    stream = batch_stream(
        Path(path),
        [name for name in Transition._fields if name != "mask"],
        batch_size=1,
        seed=0,
        keep=keep,
    )
    spec = spec or dataset.spec
    return StreamedData(dataset, stream, own, spec, tuple(prices), priced, readers)


def streamed_sentence(path: Path, memory: str, data: StreamedData) -> str:
    """Why a log stays on the disk, and what that means for its batches."""
    needed, stream = PEAK * stored_bytes(path) / 1e9, data.stream
    return (
        f"{path.name}: in memory it would take about {needed:.3g} GB, more than data.memory = "
        f"{memory}; it stays on the disk, and batches are shuffled by blocks: "
        f"{stream.buffer_blocks} blocks of {stream.block_rows} rows at a time"
        + (f", from {data.readers} stretches of the log" if data.readers > 1 else "")
    )


def require_streamable(name: str, learner: Learner, readers: int) -> None:
    """Raises unless a stream of batches gives what a learner draws.

    Args:
        name: Name of the learner.
        learner: Draws single rows, in batches of which every reader gives an equal part.
        readers: Number of readers of the log.

    Raises:
        InputError: Saying what to do.
    """
    if type(learner.sampler) is not Rows:
        raise InputError(
            f"{name} draws more than single rows, which a log that stays on the disk does not "
            "give; raise data.memory so that it is read into memory, or take another learner"
        )
    size = learner.batch_size
    if size % readers:
        raise InputError(
            f"{name} takes batches of {size} rows, which do not divide among data.readers = "
            f"{readers}; take steps.batch_size {size // readers * readers or readers}"
        )
