"""The kinds of runs, by what their learners are trained on."""

import dataclasses
from pathlib import Path
from typing import Any

from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_train._pipeline.fine_tuning import collected_by, fine_tune_one
from neorl_train._pipeline.offline_run import check_offline_run, offline_run, take_log
from neorl_train._pipeline.resolved_run import Learned, ResolvedRun, RunKind, Task
from neorl_train.configuration._fine_tuning import check_fine_tuning
from neorl_train.configuration._sections import Config, hyperparameters
from neorl_train.experience._experience import Experience
from neorl_train.experience._source import Source
from neorl_train.runs._directory import RunDirectory
from neorl_train.training._loop import train


def kind_of(config: Config) -> RunKind:
    """The kind of run that a configuration describes."""
    return FineTuning(config.finetune.run) if config.finetune.run else Offline()


@dataclasses.dataclass(frozen=True)
class Offline:
    """Learners are trained on a log, and try nothing."""

    fine_tunes: str = ""

    def check(
        self, config: Config, source: Source, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """Whatever a log cannot teach is found out when it is read."""

    def usual_hyperparameters(self, config: Config) -> Any:
        """The defaults."""
        return type(config.algorithms)()

    def take_log(self, run: ResolvedRun, directory: RunDirectory) -> None:
        """None is there."""

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """On the training part of the log."""
        assert experience is not None  # a run on a log has one
        trained = train(task.learner, experience.training, task.seeds, task.plan, **task.loop())
        return Learned(trained)


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """The learners of a finished run go on, on a simulated plant beside their log.

    Attributes:
        fine_tunes: Directory of that run.
    """

    fine_tunes: str

    def check(
        self, config: Config, source: Source, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """The run, its log, its learners and the simulator must fit one another."""
        for name in config.training.algorithms:
            learner = hyperparameters(config, name)
            check_fine_tuning(config.finetune, learner, chunk=config.training.chunk)
        check_offline_run(config, environment, dataset)

    def usual_hyperparameters(self, config: Config) -> Any:
        """Those of the run that it goes on from."""
        return offline_run(self.fine_tunes)[1].algorithms

    def take_log(self, run: ResolvedRun, directory: RunDirectory) -> None:
        """The log of that run."""
        take_log(run.source, RunDirectory(Path(self.fine_tunes)), directory)

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """From the offline states, on the log and on what is collected."""
        assert experience is not None  # that of the run it goes on from
        trained, before = fine_tune_one(task, run, experience)
        return Learned(trained, before, collected_by(trained))
