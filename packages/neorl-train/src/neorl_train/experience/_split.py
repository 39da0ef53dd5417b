"""Which episodes are trained on, and whether they are enough."""

import numpy as np

from neorl_core import InputError
from neorl_envs import Dataset
from neorl_envs.datasets import split_episodes
from neorl_train.configuration._sections import Config, hyperparameters
from neorl_train.experience._source import data_keys


def check_split(config: Config, dataset: Dataset) -> None:
    """Refuses a log of which fewer than two episodes would be held out, or trained on.

    Raises:
        InputError: Saying which fraction would do.
    """
    n = dataset.n_episodes
    held_out = n - min(max(round((1 - config.data.held_out) * n), 1), n - 1)
    if n < 4:
        raise InputError(
            f"{config.data.source}: {n} episodes are too few; two must be left to train on and two "
            "to hold out"
        )
    if not 2 <= held_out <= n - 2:
        raise InputError(
            f"data.held_out = {config.data.held_out} of {n} episodes is {held_out}; at least two "
            f"must be held out and two left, so choose from {2 / n:.2g} to {1 - 2 / n:.2g}"
        )


def training_rows(config: Config, dataset: Dataset) -> int:
    """Number of rows that training sees: those of the training part that are not masked."""
    _, key = data_keys(config)
    part, _ = split_episodes(dataset, 1 - config.data.held_out, key)
    return int(np.asarray(part.transitions.mask).sum())


def check_batches(config: Config, rows: int) -> None:
    """Refuses a batch of more rows than there are to train on, long before memory runs out.

    Args:
        config: Configuration, validated.
        rows: Number of rows that training sees.

    Raises:
        InputError: Naming the algorithm and both numbers.
    """
    for name in config.training.algorithms:
        size = hyperparameters(config, name).batch_size
        if size > rows:
            raise InputError(
                f"algorithms.{name}.batch_size is {size}, and there are {rows} rows to train on; "
                f"start a run with --algorithms.{name.replace('_', '-')}.batch-size {rows} or less"
            )
