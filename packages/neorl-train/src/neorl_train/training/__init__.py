"""The training loop of all seeds of a learner, on a log or on a simulated plant."""

from neorl_train.training._fine_tune import online_counts as online_counts
from neorl_train.training._loop import UNWATCHED as UNWATCHED
from neorl_train.training._loop import Trained as Trained
from neorl_train.training._loop import Watcher as Watcher
from neorl_train.training._loop import run_loop as run_loop
from neorl_train.training._memory import machine_memory as machine_memory
from neorl_train.training._memory import tree_bytes as tree_bytes
from neorl_train.training._plan import Plan as Plan
from neorl_train.training._plan import check_logs as check_logs
from neorl_train.training._plant_sources import Collection as Collection
from neorl_train.training._plant_sources import Counts as Counts
from neorl_train.training._plant_sources import PlantAndLog as PlantAndLog
from neorl_train.training._plant_sources import PlantReplay as PlantReplay
from neorl_train.training._plant_sources import PlantRollouts as PlantRollouts
from neorl_train.training._plant_sources import online_metrics as online_metrics
from neorl_train.training._queues import EXECUTION_MODE as EXECUTION_MODE
from neorl_train.training._queues import SHARED_MODE as SHARED_MODE
from neorl_train.training._queues import SeedQueues as SeedQueues
from neorl_train.training._queues import devices_for as devices_for
from neorl_train.training._queues import execution_mode as execution_mode
from neorl_train.training._queues import offline_seeds as offline_seeds
from neorl_train.training._queues import run_keys as run_keys
from neorl_train.training._together import Setting as Setting
from neorl_train.training._together import program_key as program_key
from neorl_train.training._together import train_together as train_together

__all__ = [
    "EXECUTION_MODE",
    "SHARED_MODE",
    "UNWATCHED",
    "Collection",
    "Counts",
    "Plan",
    "PlantAndLog",
    "PlantReplay",
    "PlantRollouts",
    "SeedQueues",
    "Setting",
    "Trained",
    "Watcher",
    "check_logs",
    "devices_for",
    "execution_mode",
    "machine_memory",
    "offline_seeds",
    "online_counts",
    "online_metrics",
    "program_key",
    "run_keys",
    "run_loop",
    "train_together",
    "tree_bytes",
]
