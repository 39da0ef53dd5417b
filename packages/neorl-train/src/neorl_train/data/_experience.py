"""Training data from a source: the log, the declared penalties, the split."""

import dataclasses
from pathlib import Path

from neorl_core import InputError, Spec
from neorl_core.infrastructure.command_line import one_line
from neorl_envs import Dataset
from neorl_train.configuration._sections import Config, batch_sizes
from neorl_train.data._source import is_streamed
from neorl_train.data._split import (
    check_batches,
    check_split,
    sample_of,
    training_and_held_out,
)
from neorl_train.data._streamed import StreamedData, streamed_data
from neorl_train.data._training_data import TrainingData, training_data


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
    config: Config, dataset: Dataset, spec: Spec, path: Path | None = None
) -> Experience:
    """Splits a log; the training part includes the declared penalties.

    Args:
        config: A resolved configuration.
        dataset: Complete log.
        spec: Channels with the cost limits of the run.
        path: Its file, if the log may stay there.

    Raises:
        InputError: If the log cannot be split, every row of the training part is masked, or a
            batch is larger than it.
    """
    check_split(config.data, dataset)
    penalty_weights = tuple(config.penalty.get(channel.name, 0.0) for channel in spec.cost)
    try:
        trained_on, held_out_episodes = training_and_held_out(config.data, dataset)
        if path is not None and is_streamed(config.data, path):
            held_out = dataset.select_episodes(sample_of(config.data, dataset, held_out_episodes))
            training = streamed_data(
                path,
                dataset=dataset,
                episodes=trained_on,
                penalty_weights=penalty_weights,
                spec=spec,
                readers=config.data.readers,
            )
        else:
            held_out = dataset.select_episodes(held_out_episodes)
            training = training_data(
                dataset.select_episodes(trained_on), penalty_weights=penalty_weights, spec=spec
            )
    except ValueError as error:
        raise InputError(f"{config.data.source}: {one_line(error)}") from error
    check_batches(batch_sizes(config), training.n_rows)
    return Experience(dataset, held_out, training)
