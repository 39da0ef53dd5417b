"""Compiled training, evaluation, verdicts, checkpoints and tracking."""

from neorl_train._command.options import read_config as read_config
from neorl_train._errors import InterruptedRunError as InterruptedRunError
from neorl_train._pipeline.job import resume as resume
from neorl_train._pipeline.job import start as start
from neorl_train._process.progress import Reporter as Reporter
from neorl_train._process.switches import prepare_process as prepare_process
from neorl_train._process.timings import Timings as Timings
from neorl_train.configuration._sections import Config as Config
from neorl_train.evaluation._logged import evaluate_offline as evaluate_offline
from neorl_train.evaluation._simulated import evaluate as evaluate
from neorl_train.training._loop import train as train
from neorl_train.verdicts._rule import verdict as verdict

__all__ = [
    "Config",
    "InterruptedRunError",
    "Reporter",
    "Timings",
    "evaluate",
    "evaluate_offline",
    "prepare_process",
    "read_config",
    "resume",
    "start",
    "train",
    "verdict",
]
