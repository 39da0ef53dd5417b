"""Compiled training, evaluation, verdicts, checkpoints and experiment tracking."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_train._job.run import Run as Run
    from neorl_train._job.run import resume as resume
    from neorl_train._job.run import start as start
    from neorl_train._process.control import InterruptedRunError as InterruptedRunError
    from neorl_train._process.control import prepare_process as prepare_process
    from neorl_train.configuration._sections import Config as Config
    from neorl_train.configuration._validation import configure as configure
    from neorl_train.judging._evaluate import evaluate as evaluate
    from neorl_train.judging._evaluate import evaluate_offline as evaluate_offline
    from neorl_train.judging._rule import verdict as verdict
    from neorl_train.training._agent import Agent as Agent
    from neorl_train.training._fine_tune import fine_tune as fine_tune
    from neorl_train.training._fine_tune import train_online as train_online
    from neorl_train.training._loop import train as train

__all__ = [
    "Agent",
    "Config",
    "InterruptedRunError",
    "Run",
    "configure",
    "evaluate",
    "evaluate_offline",
    "fine_tune",
    "prepare_process",
    "resume",
    "start",
    "train",
    "train_online",
    "verdict",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
