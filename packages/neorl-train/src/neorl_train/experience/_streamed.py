"""What one algorithm is trained on where the log stays in its file."""

import dataclasses
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from neorl_agents import Algorithm
from neorl_agents.sampling import Rows, sampler_of
from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_envs import Dataset, read_dataset
from neorl_envs.datasets import (
    BatchStream,
    batch_stream,
    data_statistics,
    require_content_hash,
)
from neorl_train.configuration._memory import PEAK
from neorl_train.experience._training_data import ROWS_AT_ONCE, penalised


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedData:
    """What one algorithm is trained on, left in its file; batches are shuffled by blocks.

    Build one with :func:`streamed_data`.

    Attributes:
        dataset: The log, its columns mapped.
        stream: Rows that take part; each seed deals them out in an order of its own.
        statistics: Those of these rows, of all readers together, with the penalised reward.
        spec: Channels, period and horizon.
        weights: Reward taken off per unit of each cost.
    """

    dataset: Dataset
    stream: BatchStream
    statistics: DataStatistics
    spec: Spec
    weights: tuple[float, ...]

    @property
    def n_rows(self) -> int:
        """Rows that this reader trains on."""
        return self.stream.n_rows

    def chunks(
        self, fields: Sequence[str], *, batch_size: int, seed: int, n_batches: int, first: int
    ) -> Generator[Transition, None, None]:
        """Batches stacked ``n_batches`` at a time, from number ``first`` on, penalty taken off."""
        names = self._read(fields)
        stream = self.stream.with_(fields=names, batch_size=batch_size, seed=seed)
        source = stream.chunks(n_batches, first)
        unread = dict.fromkeys(set(names) - set(fields))
        try:
            for chunk in source:
                rows: Any = chunk
                if "reward" in fields and any(self.weights):
                    reward = penalised(rows.reward, rows.cost, self.weights)
                    rows = rows._replace(reward=reward)
                yield rows._replace(**unread)
        finally:
            source.close()

    def empty(self, fields: Sequence[str], *, batch_size: int, n_batches: int) -> Transition:
        """Zeros of the shapes and types of a chunk."""
        rows: Any = self.dataset.transitions
        columns = {
            name: np.zeros((n_batches, batch_size, *column.shape[1:]), column.dtype)
            for name in fields
            if (column := getattr(rows, name)) is not None
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

    def _read(self, fields: Sequence[str]) -> list[str]:
        """Fields to read, in the order of a row."""
        wanted = {*fields, *(["cost"] if "reward" in fields and any(self.weights) else [])}
        return [name for name in Transition._fields if name in wanted]


def streamed_data(
    path: str | os.PathLike[str],
    *,
    dataset: Dataset | None = None,
    episodes: Int[np.ndarray, " chosen"] | None = None,
    weights: Sequence[float] = (),
    spec: Spec | None = None,
    shard: tuple[int, int] | None = None,
) -> StreamedData:
    """A dataset file to be trained on without being read into memory.

    Args:
        path: A dataset file.
        dataset: The same file, mapped and checked; by default it is, content hash included.
        episodes: Numbers of those that are trained on; all by default.
        weights: Reward taken off per unit of each cost; none by default.
        spec: With the cost limits of the run; that of the file by default.
        shard: Number of this reader and of all readers; by default those of this process of JAX
            among all of its processes, so that every host reads its own part.

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
    weights = tuple(weights) or (0.0,) * dataset.spec.n_cost
    statistics = data_statistics(
        dataset, episodes=chosen, reward=lambda own, cost: penalised(own, cost, weights)
    )
    stream = batch_stream(
        Path(path),
        [name for name in Transition._fields if name != "mask"],
        batch_size=1,
        seed=0,
        keep=keep,
        shard=shard or (jax.process_index(), jax.process_count()),
    )
    return StreamedData(dataset, stream, statistics, spec or dataset.spec, weights)


def streamed_sentence(path: Path, memory: str, data: StreamedData) -> str:
    """Why a log stays on the disk, and what that means for its batches."""
    needed, stream = PEAK * path.stat().st_size / 1e9, data.stream
    return (
        f"{path.name}: in memory it would take about {needed:.3g} GB, more than data.memory = "
        f"{memory}; it stays on the disk, and batches are shuffled by blocks: "
        f"{stream.buffer_blocks} blocks of {stream.block_rows} rows at a time"
    )


def require_single_rows(name: str, algorithm: Algorithm) -> None:
    """Raises unless a learner draws single rows, which is all that a stream of batches gives.

    Raises:
        InputError: Saying what to do.
    """
    if type(sampler_of(algorithm)) is not Rows:
        raise InputError(
            f"{name} draws more than single rows, which a log that stays on the disk does not "
            "give; raise data.memory so that it is read into memory, or take another learner"
        )
