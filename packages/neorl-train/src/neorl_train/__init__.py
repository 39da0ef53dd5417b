"""Compiled training, evaluation, verdicts, checkpoints and tracking."""

from neorl_train._errors import InterruptedRunError as InterruptedRunError
from neorl_train._pipeline.run import Run as Run
from neorl_train._pipeline.run import resume as resume
from neorl_train._pipeline.run import start as start
from neorl_train.configuration._configure import configure as configure
from neorl_train.configuration._sections import Config as Config
from neorl_train.evaluation._logged import evaluate_offline as evaluate_offline
from neorl_train.evaluation._simulated import evaluate as evaluate
from neorl_train.training._fine_tune import fine_tune as fine_tune
from neorl_train.training._fine_tune import train_online as train_online
from neorl_train.training._loop import train as train
from neorl_train.verdicts._rule import verdict as verdict

__all__ = [
    "Config",
    "InterruptedRunError",
    "Run",
    "configure",
    "evaluate",
    "evaluate_offline",
    "fine_tune",
    "resume",
    "start",
    "train",
    "train_online",
    "verdict",
]
