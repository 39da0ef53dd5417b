"""Industrial simulators in pure JAX, recorded datasets and plant logs."""

import importlib
import sys
from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_envs.datasets._checks import DatasetError as DatasetError
    from neorl_envs.datasets._dataset import Dataset as Dataset
    from neorl_envs.datasets._file import write_dataset as write_dataset
    from neorl_envs.ingest._read import read_dataset as read_dataset
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "neorl_envs": ["datasets", "ingest", "interfaces", "plants", "recording"],
        "neorl_envs.datasets._checks": ["DatasetError"],
        "neorl_envs.datasets._dataset": ["Dataset"],
        "neorl_envs.datasets._file": ["write_dataset"],
        "neorl_envs.ingest._read": ["read_dataset"],
        "neorl_envs.plants._table": ["environment_names", "make"],
        "neorl_envs.recording._collect": ["collect_log"],
    },
)

# Importing Gymnasium and the plants takes seconds of processor time, which a command that only
# prints its help must not take. Whoever has imported Gymnasium before has its registry filled here.
if "gymnasium" in sys.modules:
    importlib.import_module("neorl_envs.interfaces")
