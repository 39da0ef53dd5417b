"""What one algorithm is trained on."""

import dataclasses
from functools import partial

import jax
import numpy as np
from jaxtyping import Bool

from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_envs import Dataset
from neorl_envs.datasets import data_statistics


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """What one algorithm is trained on.

    Attributes:
        rows: The training split as host arrays, physical units, the penalised reward; without
            masked rows, so its own ``mask`` is ``None``.
        statistics: Statistics of the same split with the same reward.
        spec: Channels, period and horizon.
    """

    rows: Transition
    statistics: DataStatistics
    spec: Spec


def training_data(dataset: Dataset) -> TrainingData:
    """A complete log to be trained on: every row that is not masked, with the log's own reward.

    Args:
        dataset: The log.

    Returns:
        Its rows and their statistics.

    Raises:
        InputError: If every row is masked.
    """
    mask = np.asarray(dataset.transitions.mask)
    if not mask.any():
        raise InputError("every row of the log is masked, so there is nothing to train on")
    rows = jax.tree.map(partial(unmasked, mask), dataset.transitions._replace(mask=None))
    return TrainingData(rows, data_statistics(dataset), dataset.spec)


def unmasked(mask: Bool[np.ndarray, " row"], column: np.ndarray) -> np.ndarray:
    """The rows of a column that count; no copy where all of them do."""
    return np.asarray(column) if mask.all() else np.asarray(column)[mask]
