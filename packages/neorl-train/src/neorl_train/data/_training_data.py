"""Training data of one algorithm, in memory or left in their file."""

import dataclasses
import os
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from neorl_agents import Learner
from neorl_agents.learning import reads_costs, reward_minus_costs, rows_for
from neorl_agents.sampling import Rows
from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_core.costs import limit_kind
from neorl_envs import Dataset, read_dataset
from neorl_envs.datasets import (
    BatchStream,
    batch_stream,
    data_statistics,
    require_content_hash,
    stored_bytes,
)
from neorl_train.configuration._sections import PEAK

ROWS_AT_ONCE = 65_536


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Training data as logged, and the penalties on the costs.

    Attributes:
        rows: The training split as host arrays, physical units, with reward and cost as logged;
            without masked rows, so its own ``mask`` is ``None``, and truncated before each gap.
        statistics: Statistics of these rows.
        spec: Channels with the cost limits of the run, control period and horizon.
        penalty_weights: Penalty per unit of each cost, subtracted from the reward for learners that
            do not read costs; empty for none.
        penalised_statistics: Statistics with these penalties subtracted from the reward; the same
            statistics if there are none.
    """

    rows: Transition
    statistics: DataStatistics
    spec: Spec
    penalty_weights: tuple[float, ...] = ()
    penalised_statistics: DataStatistics | None = None

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.rows.obs)

    def rows_for(self, learner: Learner) -> Transition:
        """The rows as a learner receives them; see :func:`neorl_agents.learning.rows_for`."""
        return rows_for(learner, self.rows, self.penalty_weights)

    def statistics_for(self, learner: Learner) -> DataStatistics:
        """Statistics with the reward that a learner receives."""
        return statistics_for_learner(learner, self.statistics, self.penalised_statistics)

    def mean_reward(self, learner: Learner) -> float:
        """Mean of the reward that a learner receives."""
        reward = self.rows.reward
        if any(self.penalty_weights) and not reads_costs(learner):
            reward = reward_minus_costs(reward, self.rows.cost, self.penalty_weights)
        return float(np.asarray(reward, np.float64).mean())

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions of the rows, one block at a time, in the order of the log."""
        rows: Any = self.rows
        for start in range(0, self.n_rows, ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            yield rows.obs[block], rows.action[block]


def training_data(
    dataset: Dataset, *, penalty_weights: Sequence[float] = (), spec: Spec | None = None
) -> TrainingData:
    """Prepares a complete log for training: every row that is not masked.

    Args:
        dataset: The log.
        penalty_weights: Penalty per unit of each cost, subtracted from the reward for learners that
            do not read costs; none by default.
        spec: Specification with the cost limits of the run; by default that of the log.

    Returns:
        Its rows and their statistics.

    Raises:
        InputError: If every row is masked.
    """
    mask = np.asarray(dataset.transitions.mask)
    if not mask.any():
        raise InputError("every row of the log is masked, so there is nothing to train on")
    rows = jax.tree.map(partial(unmasked_rows, mask), cut_at_gaps(dataset.transitions))
    spec = spec or dataset.spec
    plain, penalised = plain_and_penalised(dataset, penalty_weights, spec)
    return TrainingData(rows, plain, spec, tuple(penalty_weights), penalised)


def plain_and_penalised(
    dataset: Dataset,
    penalty_weights: Sequence[float],
    spec: Spec,
    episodes: Int[np.ndarray, " chosen"] | None = None,
) -> tuple[DataStatistics, DataStatistics]:
    """Statistics with the reward as logged, and with the cost penalties subtracted from it.

    The episodes that count as having kept their limits are those that kept the ones of ``spec``.
    """
    measured = partial(data_statistics, dataset, episodes=episodes, limits=spec.cost)
    plain = measured()
    if not any(penalty_weights):
        return plain, plain

    def penalised(reward: np.ndarray, cost: np.ndarray) -> np.ndarray:
        return reward_minus_costs(reward, cost, penalty_weights)

    return plain, measured(reward=penalised)


def statistics_for_learner(
    learner: Learner, plain: DataStatistics, penalised: DataStatistics | None
) -> DataStatistics:
    """The statistics with those of the reward that a learner receives."""
    return plain if penalised is None or reads_costs(learner) else penalised


def cut_at_gaps(rows: Transition) -> Transition:
    """Removes masked rows, and truncates each row that precedes one.

    Once masked rows are gone, only the flags show which rows are consecutive: otherwise windows,
    n-step returns and returns-to-go would join rows that do not belong together.

    Returns:
        The same rows, with ``truncated`` also true if the next row is masked and the row is not
        terminal.
    """
    mask = np.asarray(rows.mask)
    if mask.all():
        return rows._replace(mask=None)
    next_known = np.concatenate([mask[1:], [True]])
    cut = np.asarray(rows.truncated) | (~next_known & ~np.asarray(rows.terminated))
    zeroed = np.where(cut[:, None], 0, np.asarray(rows.next_action))
    return rows._replace(truncated=cut, next_action=zeroed, mask=None)  # pyright: ignore


def unmasked_rows(mask: Bool[np.ndarray, " row"], column: np.ndarray) -> np.ndarray:
    """The rows of a column that are not masked; without a copy if there are none."""
    return np.asarray(column) if mask.all() else np.asarray(column)[mask]


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedData:
    """Training data of one algorithm, left in its file; batches are shuffled by blocks.

    Create one with :func:`streamed_data`.

    Attributes:
        dataset: The log with memory-mapped columns.
        stream: Training rows; each seed reads them in its own order.
        statistics: Statistics of these rows as logged.
        spec: Channels with the cost limits of the run, control period and horizon.
        penalty_weights: Penalty per unit of each cost, subtracted from the reward for learners that
            do not read costs.
        penalised_statistics: Statistics with these penalties subtracted from the reward.
        readers: Number of sections in which the log is read; each gives an equal part of every
            batch.
    """

    dataset: Dataset
    stream: BatchStream
    statistics: DataStatistics
    spec: Spec
    penalty_weights: tuple[float, ...]
    penalised_statistics: DataStatistics
    readers: int = 1

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.stream.n_rows

    def statistics_for(self, learner: Learner) -> DataStatistics:
        """Statistics with the reward that a learner receives."""
        return statistics_for_learner(learner, self.statistics, self.penalised_statistics)

    def chunks(
        self,
        learner: Learner,
        *,
        seed: int,
        n_batches: int,
        first: int,
        part: tuple[int, int] = (0, 1),
    ) -> Generator[Transition, None, None]:
        """Batches in the form that a learner receives, stacked ``n_batches`` at a time.

        Args:
            learner: Learner that determines fields and batch size.
            seed: Seed for the order of the rows.
            n_batches: Number of batches in one stack.
            first: Number of the first batch.
            part: Index of the part of every batch to read, and the number of equal parts, a divisor
                of ``readers``; nothing else is read. All by default.
        """
        fields = {*learner.fields}
        if any(self.penalty_weights) and "reward" in fields:
            fields.add("cost")  # needed for its penalty
        # Masked rows are left out, so there is no mask, as in memory.
        names = [name for name in Transition._fields if name in fields - {"mask"}]
        readers_here = self.readers // part[1]
        sources = [
            self.stream.reader(number, self.readers)
            .with_(fields=names, batch_size=learner.batch_size // self.readers, seed=seed)
            .chunks(n_batches, first)
            for number in range(part[0] * readers_here, (part[0] + 1) * readers_here)
        ]
        try:
            for rows in zip(*sources, strict=True):
                yield rows_for(learner, _side_by_side(rows), self.penalty_weights)
        finally:
            for source in sources:
                source.close()

    def empty(self, learner: Learner, *, n_batches: int) -> Transition:
        """Zeros with the shapes and types of a stack of batches."""
        rows: Any = self.dataset.transitions
        columns = {
            name: np.zeros((n_batches, learner.batch_size, *column.shape[1:]), column.dtype)
            for name in learner.fields
            if name != "mask" and (column := getattr(rows, name)) is not None
        }
        return Transition(*(columns.get(name) for name in Transition._fields))  # pyright: ignore[reportArgumentType]

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions of the rows, one block at a time, in the order of the log."""
        rows: Any = self.dataset.transitions
        for start in range(0, self.dataset.n_rows, ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            used = self.stream.used[block]
            if used.any():
                yield rows.obs[block][used], rows.action[block][used]

    def limited_costs(self) -> Float[np.ndarray, "episode cost"]:
        """What the limits bound in every training episode: the sum of a cost, or its worst step.

        The costs of masked rows are taken as zero. The log is read in blocks.
        """
        chosen = np.logical_or.reduceat(self.stream.used, self.dataset.episode_starts)
        total = self.dataset.episode_costs()[chosen]
        worst = self.dataset.episode_worst_costs()[chosen]
        quantities = [
            limit_kind(channel).of_episode(total[:, i], worst[:, i])
            for i, channel in enumerate(self.spec.cost)
        ]
        return np.stack(quantities, axis=1)


def _side_by_side(parts: Sequence[Transition]) -> Transition:
    """Concatenates the rows of every batch; the first axis counts batches."""
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *columns: np.concatenate(columns, axis=1), *parts)


def streamed_data(
    path: str | os.PathLike[str],
    *,
    dataset: Dataset | None = None,
    episodes: Int[np.ndarray, " chosen"] | None = None,
    penalty_weights: Sequence[float] = (),
    spec: Spec | None = None,
    readers: int = 1,
) -> StreamedData:
    """Prepares a dataset file for training without reading it into memory.

    Args:
        path: A dataset file, or the manifest of several.
        dataset: The same file, memory-mapped and verified; by default this is done here, including
            the content hash.
        episodes: Numbers of the training episodes; all by default.
        penalty_weights: Penalty per unit of each cost, subtracted from the reward for learners that
            do not read costs; none by default.
        spec: Specification with the cost limits of the run; by default that of the file.
        readers: Number of sections in which the log is read, each giving an equal part of every
            batch. Batches depend on the seed and on this number. If several processes train
            together and their number divides it, each reads only its own sections.

    Returns:
        Data for :func:`neorl_train.train`.

    Raises:
        DatasetError: If the file cannot be read or memory-mapped, or was changed.
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
    spec = spec or dataset.spec
    plain, penalised = plain_and_penalised(dataset, penalty_weights, spec, chosen)
    stream = batch_stream(
        Path(path),
        [name for name in Transition._fields if name != "mask"],
        batch_size=1,
        seed=0,
        keep=keep,
    )
    return StreamedData(dataset, stream, plain, spec, tuple(penalty_weights), penalised, readers)


def streamed_sentence(path: Path, memory: str, data: StreamedData) -> str:
    """Explains why a log stays on disk, and the consequence for its batches."""
    needed, stream = PEAK * stored_bytes(path) / 1e9, data.stream
    return (
        f"{path.name}: in memory it would take about {needed:.3g} GB, more than data.memory = "
        f"{memory}; it is read from the file, and batches are shuffled by blocks: "
        f"{stream.buffer_blocks} blocks of {stream.block_rows} rows at a time"
        + (f", from {data.readers} stretches of the log" if data.readers > 1 else "")
    )


def require_streamable(name: str, learner: Learner, readers: int) -> None:
    """Raises unless a stream of batches can supply what a learner samples.

    It must sample single rows, in batches that the number of readers divides.
    """
    if type(learner.sampler) is not Rows:
        raise InputError(
            f"{name} needs more than single rows, which a log that is read in blocks cannot "
            "provide; raise data.memory so that the log fits in memory, or choose another learner"
        )
    size = learner.batch_size
    if size % readers:
        raise InputError(
            f"{name} takes batches of {size} rows, which is not a multiple of data.readers = "
            f"{readers}; set steps.batch_size to {size // readers * readers or readers}"
        )
