"""Industrial simulators in pure JAX, recorded datasets and plant logs."""

import importlib
import sys
from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_envs import datasets as datasets
    from neorl_envs import ingest as ingest
    from neorl_envs import interfaces as interfaces
    from neorl_envs import plants as plants
    from neorl_envs import recording as recording
    from neorl_envs.datasets._checks import DatasetError as DatasetError
    from neorl_envs.datasets._dataset import Dataset as Dataset
    from neorl_envs.datasets._file import write_dataset as write_dataset
    from neorl_envs.ingest._readers import read_dataset as read_dataset
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)

# Importing Gymnasium and the plants takes seconds of processor time, which a command that only
# prints its help must not take. Whoever has imported Gymnasium before has its registry filled here.
if "gymnasium" in sys.modules:
    importlib.import_module("neorl_envs.interfaces")
