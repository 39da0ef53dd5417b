"""The ``Dataset`` and its file."""

from neorl_envs.datasets._dataset import dataset_from_columns as dataset_from_columns
from neorl_envs.datasets._nested import flatten_columns as flatten_columns
from neorl_envs.datasets._split import split_episodes as split_episodes
from neorl_envs.datasets._statistics import data_statistics as data_statistics

__all__ = [
    "data_statistics",
    "dataset_from_columns",
    "flatten_columns",
    "split_episodes",
]
