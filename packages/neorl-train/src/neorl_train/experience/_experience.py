"""From a source to what is trained on: the log, the declared penalties, the split."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core import InputError
from neorl_core.costs import penalised_reward
from neorl_envs import (
    Dataset,
)
from neorl_envs.command_line import one_line
from neorl_envs.datasets import data_statistics, split_episodes
from neorl_train.configuration._limits import limited_spec
from neorl_train.configuration._sections import Config
from neorl_train.experience._source import data_keys
from neorl_train.experience._split import check_batches, check_split
from neorl_train.experience._training_data import TrainingData, unmasked


@dataclasses.dataclass(frozen=True)
class Experience:
    """What a run learns from and is judged on.

    Attributes:
        dataset: Complete log, with the plant's own reward.
        held_out: Episodes of it that training does not see, with the plant's own reward.
        training: The rest, with the penalised reward and the cost limits of the run.
    """

    dataset: Dataset
    held_out: Dataset
    training: TrainingData


def training_experience(config: Config, dataset: Dataset, penalty: dict[str, float]) -> Experience:
    """Splits a log and takes the declared penalties off the reward of the training part.

    Args:
        config: Configuration, validated.
        dataset: Complete log.
        penalty: Penalty weight of every cost, in the order of the specification.

    Raises:
        InputError: If the log cannot be split, every row of the training part is masked, or a
            batch is larger than it.
    """
    _, key = data_keys(config)
    check_split(config, dataset)
    try:
        part, held_out = split_episodes(dataset, 1 - config.data.held_out, key)
        part = _penalised(part, list(penalty.values()))
        statistics = data_statistics(part)
    except ValueError as error:
        raise InputError(f"{config.data.source}: {one_line(error)}") from error
    mask = np.asarray(part.transitions.mask)
    check_batches(config, int(mask.sum()))
    rows = jax.tree.map(partial(unmasked, mask), part.transitions._replace(mask=None))
    spec = limited_spec(part.spec, config.limits.cost)
    return Experience(dataset, held_out, TrainingData(rows, statistics, spec))


def _penalised(dataset: Dataset, weights: list[float]) -> Dataset:
    columns = dataset.transitions
    reward, cost = jnp.asarray(columns.reward), jnp.asarray(columns.cost)
    reward = np.asarray(penalised_reward(reward, cost, jnp.asarray(weights, jnp.float32)))
    return dataclasses.replace(dataset, transitions=columns._replace(reward=reward))
