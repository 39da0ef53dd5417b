"""Many updates as one program, seeds side by side."""

from neorl_train.training._chunk import run_keys as run_keys
from neorl_train.training._chunk import train_chunk as train_chunk
from neorl_train.training._collect import Counts as Counts
from neorl_train.training._feeds import train_batches as train_batches
from neorl_train.training._fine_tune import OnlineSeeds as OnlineSeeds
from neorl_train.training._fine_tune import online_counts as online_counts
from neorl_train.training._loop import Plan as Plan
from neorl_train.training._loop import Trained as Trained
from neorl_train.training._loop import Watcher as Watcher
from neorl_train.training._queues import EXECUTION_MODE as EXECUTION_MODE
from neorl_train.training._queues import SeedQueues as SeedQueues
from neorl_train.training._seeds import ParallelSeeds as ParallelSeeds

__all__ = [
    "EXECUTION_MODE",
    "Counts",
    "OnlineSeeds",
    "ParallelSeeds",
    "Plan",
    "SeedQueues",
    "Trained",
    "Watcher",
    "online_counts",
    "run_keys",
    "train_batches",
    "train_chunk",
]
