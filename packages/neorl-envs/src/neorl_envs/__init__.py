"""Industrial simulators in pure JAX, recorded datasets and plant logs."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names
from neorl_envs._when_imported import when_imported

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


def _fill_registry() -> None:
    from neorl_envs.interfaces._gymnasium_names import register_environments

    register_environments()


# Importing Gymnasium takes a third of a second of processor time, and the plants take two seconds.
# A command that only prints its help needs neither. A caller that makes a plant through Gymnasium
# has already imported Gymnasium, so registration can wait until then.
when_imported("gymnasium", _fill_registry)
