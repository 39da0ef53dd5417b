"""The files of a run."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_train.runs._checkpoints import Checkpoints as Checkpoints
    from neorl_train.runs._checkpoints import Restored as Restored
    from neorl_train.runs._checkpoints import complete_steps as complete_steps
    from neorl_train.runs._checkpoints import tree_digest as tree_digest
    from neorl_train.runs._directory import RunDirectory as RunDirectory
    from neorl_train.runs._directory import create_run as create_run
    from neorl_train.runs._directory import file_lock as file_lock
    from neorl_train.runs._directory import holder as holder
    from neorl_train.runs._directory import locked as locked
    from neorl_train.runs._directory import numbered_runs as numbered_runs
    from neorl_train.runs._directory import require_free_space as require_free_space
    from neorl_train.runs._mlflow import copy_to_mlflow as copy_to_mlflow
    from neorl_train.runs._records import RecordReader as RecordReader
    from neorl_train.runs._records import Records as Records
    from neorl_train.runs._records import read_records as read_records
    from neorl_train.runs._tracker import MlflowTracker as MlflowTracker
    from neorl_train.runs._tracker import NoTracker as NoTracker
    from neorl_train.runs._tracker import Tracker as Tracker
    from neorl_train.runs._tracker import copy_once as copy_once
    from neorl_train.runs._tracker import mlflow_installed as mlflow_installed

__all__ = [
    "Checkpoints",
    "MlflowTracker",
    "NoTracker",
    "RecordReader",
    "Records",
    "Restored",
    "RunDirectory",
    "Tracker",
    "complete_steps",
    "copy_once",
    "copy_to_mlflow",
    "create_run",
    "file_lock",
    "holder",
    "locked",
    "mlflow_installed",
    "numbered_runs",
    "read_records",
    "require_free_space",
    "tree_digest",
]

# A command that lists runs needs no checkpoints, and so neither Orbax nor JAX.

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
