"""What a run leaves on the disk."""

from neorl_train.runs._checkpoint_manifest import tree_digest as tree_digest
from neorl_train.runs._checkpoints import Checkpoints as Checkpoints
from neorl_train.runs._checkpoints import Restored as Restored
from neorl_train.runs._checkpoints import complete_steps as complete_steps
from neorl_train.runs._directory import RunDirectory as RunDirectory
from neorl_train.runs._records import Records as Records
from neorl_train.runs._records import read_records as read_records

__all__ = [
    "Checkpoints",
    "Records",
    "Restored",
    "RunDirectory",
    "complete_steps",
    "read_records",
    "tree_digest",
]
