"""Many updates as one program, seeds side by side."""

from neorl_train.training._block import run_keys as run_keys
from neorl_train.training._block import train_block as train_block
from neorl_train.training._loop import Plan as Plan
from neorl_train.training._loop import Trained as Trained
from neorl_train.training._loop import Watcher as Watcher
from neorl_train.training._seeds import PROGRAM_FORM as PROGRAM_FORM
from neorl_train.training._seeds import SeedLanes as SeedLanes
from neorl_train.training._seeds import TrainingData as TrainingData

__all__ = [
    "PROGRAM_FORM",
    "Plan",
    "SeedLanes",
    "Trained",
    "TrainingData",
    "Watcher",
    "run_keys",
    "train_block",
]
