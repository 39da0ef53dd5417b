"""Training data from a source: the log, its split, and the declared penalties."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int

from neorl_core import InputError, Spec
from neorl_core.infrastructure.command_line import one_line
from neorl_envs import Dataset
from neorl_envs.datasets import split_indices
from neorl_train.configuration._sections import (
    SAMPLE,
    DataConfig,
    memory_bytes,
)
from neorl_train.data._source import data_keys, is_streamed
from neorl_train.data._training_data import StreamedData, TrainingData, streamed_data, training_data


def check_split(data: DataConfig, dataset: Dataset) -> None:
    """Refuses a log that would leave fewer than two episodes held out or for training.

    Raises:
        InputError: States a fraction that would work.
    """
    n = dataset.n_episodes
    held_out = n - min(max(round((1 - data.held_out) * n), 1), n - 1)
    if n < 4:
        raise InputError(
            f"{data.source} has too few episodes ({n}): two are needed for training and two are "
            "held out; a long record is cut into episodes by length in [episodes] of its "
            "plant.toml, and `neorl-envs convert`"
        )
    if not 2 <= held_out <= n - 2:
        raise InputError(
            f"data.held_out = {data.held_out} of {n} episodes is {held_out}; at least two must be "
            f"held out and two left for training, so choose from {2 / n:.2g} to {1 - 2 / n:.2g}"
        )


def training_rows(data: DataConfig, dataset: Dataset) -> int:
    """Number of training rows: those of the training part that are not masked."""
    trained_on, mask = training_episodes(data, dataset), np.asarray(dataset.transitions.mask)
    return int(np.add.reduceat(mask, dataset.episode_starts, dtype=np.int64)[trained_on].sum())


def training_episodes(data: DataConfig, dataset: Dataset) -> Int[np.ndarray, " episode"]:
    """Numbers of the training episodes, ascending."""
    return training_and_held_out(data, dataset)[0]


def training_and_held_out(
    data: DataConfig, dataset: Dataset
) -> tuple[Int[np.ndarray, " training"], Int[np.ndarray, " held_out"]]:
    """Numbers of the training episodes and of the held-out ones."""
    _, key = data_keys(data)
    return split_indices(dataset.n_episodes, 1 - data.held_out, key)


def sample_of(
    data: DataConfig, dataset: Dataset, episodes: Int[np.ndarray, " episode"]
) -> Int[np.ndarray, " chosen"]:
    """Evenly spaced episodes, as many as fit into a twentieth of ``data.memory``.

    At least two, in ascending order.
    """
    columns = [column for _, column in dataset.columns() if len(column) == dataset.n_rows]
    row = sum(column.dtype.itemsize * int(np.prod(column.shape[1:])) for column in columns)
    size = row * dataset.episode_lengths[episodes]
    limit = memory_bytes(data.memory) / SAMPLE
    if size.sum() <= limit:
        return episodes
    count = int(len(episodes) * limit / size.sum())
    candidates = np.unique(
        np.linspace(0, len(episodes) - 1, max(count, 2)).round().astype(np.int64)
    )
    fitting = int(np.searchsorted(np.cumsum(size[candidates]), limit, side="right"))
    return episodes[candidates[: max(fitting, 2)]]


def training_sample(data: DataConfig, dataset: Dataset) -> Dataset:
    """The training episodes, as many of them as fit into memory."""
    return dataset.select_episodes(sample_of(data, dataset, training_episodes(data, dataset)))


def check_batches(batch_sizes: Mapping[str, int], rows: int) -> None:
    """Refuses a batch with more rows than the training data, long before memory runs out.

    Args:
        batch_sizes: Batch size of every learner that is trained, by its name.
        rows: Number of training rows.

    Raises:
        InputError: Names the algorithm and both numbers.
    """
    for name, size in batch_sizes.items():
        if size > rows:
            raise InputError(
                f"a batch of {name} has {size} rows, and there are {rows} to train on; start a run "
                f"with --algorithms.{name.replace('_', '-')}.steps.batch-size {rows} or less"
            )


@dataclasses.dataclass(frozen=True)
class Experience:
    """The data on which a run is trained and judged.

    Attributes:
        dataset: Complete log, with the plant's own reward; memory-mapped if it stays on disk.
        held_out: Its episodes that are not used for training, with the plant's own reward; of a log
            on disk, as many of them as fit into memory.
        training: The other episodes, with the cost limits of the run and the penalty of every cost.
        signal_warnings: Sentences on signals that appear to be mislabelled; the log of a simulated
            plant is not inspected for them.
    """

    dataset: Dataset
    held_out: Dataset
    training: TrainingData | StreamedData
    signal_warnings: tuple[str, ...] = ()


def training_experience(
    data: DataConfig,
    dataset: Dataset,
    spec: Spec,
    *,
    penalty: Mapping[str, float],
    batch_sizes: Mapping[str, int],
    path: Path | None = None,
) -> Experience:
    """Splits a log; the training part includes the declared penalties.

    Args:
        data: How the log is read and split.
        dataset: Complete log.
        spec: Channels with the cost limits of the run.
        penalty: Penalty of every cost, by name.
        batch_sizes: Rows of a batch of every learner, by name.
        path: Its file, if the log may stay there.

    Raises:
        InputError: If the log cannot be split, every row of the training part is masked, or a
            batch is larger than it.
    """
    check_split(data, dataset)
    penalty_weights = tuple(penalty.get(channel.name, 0.0) for channel in spec.cost)
    try:
        trained_on, held_out_episodes = training_and_held_out(data, dataset)
        if path is not None and is_streamed(data, path):
            held_out = dataset.select_episodes(sample_of(data, dataset, held_out_episodes))
            training = streamed_data(
                path,
                dataset=dataset,
                episodes=trained_on,
                penalty_weights=penalty_weights,
                spec=spec,
                readers=data.readers,
            )
        else:
            held_out = dataset.select_episodes(held_out_episodes)
            training = training_data(
                dataset.select_episodes(trained_on), penalty_weights=penalty_weights, spec=spec
            )
    except ValueError as error:
        raise InputError(f"{data.source}: {one_line(error)}") from error
    check_batches(batch_sizes, training.n_rows)
    return Experience(dataset, held_out, training)
