"""Industrial simulators in pure JAX, recorded datasets and plant logs."""

from neorl_envs.datasets._checks import DatasetError as DatasetError
from neorl_envs.datasets._dataset import Dataset as Dataset
from neorl_envs.datasets._file import write_dataset as write_dataset
from neorl_envs.ingest._read import read_dataset as read_dataset
from neorl_envs.interfaces._gymnasium_names import register_environments
from neorl_envs.plants._table import environment_names as environment_names
from neorl_envs.plants._table import make as make
from neorl_envs.recording._collect import collect_log as collect_log

__all__ = [
    "Dataset",
    "DatasetError",
    "collect_log",
    "environment_names",
    "make",
    "read_dataset",
    "write_dataset",
]

register_environments()
