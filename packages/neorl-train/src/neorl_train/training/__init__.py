"""The training loop of all seeds of a learner, on a log or on a simulated plant."""

from neorl_train.training._collect import Counts as Counts
from neorl_train.training._fine_tune import online_counts as online_counts
from neorl_train.training._loop import Plan as Plan
from neorl_train.training._loop import Trained as Trained
from neorl_train.training._loop import Watcher as Watcher
from neorl_train.training._plant_sources import PlantAndLog as PlantAndLog
from neorl_train.training._plant_sources import PlantRollouts as PlantRollouts
from neorl_train.training._queues import EXECUTION_MODE as EXECUTION_MODE
from neorl_train.training._queues import SeedQueues as SeedQueues
from neorl_train.training._seeds import offline_seeds as offline_seeds
from neorl_train.training._seeds import run_keys as run_keys

__all__ = [
    "EXECUTION_MODE",
    "Counts",
    "Plan",
    "PlantAndLog",
    "PlantRollouts",
    "SeedQueues",
    "Trained",
    "Watcher",
    "offline_seeds",
    "online_counts",
    "run_keys",
]
