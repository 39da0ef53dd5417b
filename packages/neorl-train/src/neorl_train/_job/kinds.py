"""The kinds of runs, by the data source of their learners."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from neorl_agents.learning import Log
from neorl_core import InputError
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_safety.guards import fallback_chain
from neorl_train._job.artefacts import hard_constraints
from neorl_train._job.fine_tuning import collected_by, fine_tune_one
from neorl_train._job.offline_run import check_offline_run, offline_run, take_log
from neorl_train._job.resolved_run import Learned, ResolvedRun, RunKind, Task
from neorl_train.configuration._guard import fallback_policies
from neorl_train.configuration._online import check_fine_tuning
from neorl_train.configuration._sections import Config, hyperparameters
from neorl_train.data._experience import Experience
from neorl_train.data._source import RunSource
from neorl_train.runs._directory import RunDirectory
from neorl_train.training._fine_tune import check_online, train_online
from neorl_train.training._loop import train
from neorl_train.training._mesh import placements_for, require_equal_parts


def kind_of(config: Config) -> RunKind:
    """The kind of run that a configuration describes."""
    if config.finetune.run:
        return FineTuning(config.finetune.run)
    return Online() if config.training.on == "plant" else Offline()


@dataclasses.dataclass(frozen=True)
class Offline(RunKind):
    """Learners are trained on a log and never act on a plant."""

    def check(
        self, config: Config, source: RunSource, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """Refuses learners that need data from their own policy, which a log cannot give."""
        for name in config.training.algorithms:
            try:
                hyperparameters(config, name).source(Log())
            except InputError as error:
                plant = config.evaluation.environment or config.data.source
                hint = f"neorl-train run {plant} --training.on plant"
                known = environment is not None
                raise InputError(f"{name}: {error}{f', as `{hint}`' * known}") from error
        targets = placements_for(config.training.seeds, config.devices.batch)
        for name in config.training.algorithms:
            require_equal_parts(name, hyperparameters(config, name).batch_size, targets)

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """Trains on the training part of the log."""
        assert experience is not None  # a run on a log has one
        trained = train(
            task.learner,
            experience.training,
            task.seeds,
            task.plan,
            batch_devices=run.config.devices.batch,
            **task.loop(),
        )
        return Learned(trained)


def _require_own_devices(config: Config) -> None:
    if config.devices.batch > 1 or jax.process_count() > 1:
        raise InputError(
            "devices share a batch only in training on a log; on a plant every seed has its own "
            "device, so leave devices.batch at 0 and start one process"
        )


@dataclasses.dataclass(frozen=True)
class FineTuning(RunKind):
    """Continues the learners of a finished run, on a simulated plant and their log."""

    def check(
        self, config: Config, source: RunSource, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """Checks that the run, its log, its learners and the simulator fit together."""
        _require_own_devices(config)
        for name in config.training.algorithms:
            learner = hyperparameters(config, name)
            check_fine_tuning(config.finetune, learner, chunk=config.training.chunk)
        check_offline_run(config, environment, dataset)

    def usual_hyperparameters(self, config: Config) -> Any:
        """Hyperparameters of the run that this one continues."""
        return offline_run(self.fine_tunes)[1].algorithms

    def take_log(self, run: ResolvedRun, directory: RunDirectory) -> None:
        """Links the log of that run."""
        take_log(run.source, RunDirectory(Path(self.fine_tunes)), directory)

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """Trains from the offline states, on the log and on collected rows."""
        assert experience is not None  # that of the run it continues
        trained, before = fine_tune_one(task, run, experience)
        return Learned(trained, before, collected_by(trained))


@dataclasses.dataclass(frozen=True)
class Online(RunKind):
    """Trains learners from scratch on the simulated plant itself.

    Observations and actions are scaled by the declared ranges. A learner qualifies if it explores
    and needs no log for a fit, whether it samples from a buffer or collects rollouts.
    """

    def check(
        self, config: Config, source: RunSource, environment: Plant | None, dataset: Dataset | None
    ) -> None:
        """Requires a plant as source; if no log is recorded, no setting may need one."""
        if environment is None or dataset is not None:
            raise InputError(
                f'training.on is "plant", and {config.data.source} is a log; name a simulated '
                "plant as data.source, as `neorl-train list` names them"
            )
        _require_own_devices(config)
        for name in config.training.algorithms:
            learner = hyperparameters(config, name)
            check_online(learner, environment, config.online, chunk=config.training.chunk)
        if config.data.steps:
            return
        monitors = config.monitors
        for option, given in (
            ("classical.controllers", bool(config.classical.controllers)),
            ("retuning.controller", bool(config.retuning.controller)),
            ("checkpoints.best", config.checkpoints.best),
            *((f"monitor {name}", True) for name in monitors.calibrated),
        ):
            if given:
                raise InputError(
                    f"{option} needs a log, and with data.steps = 0 none is recorded; record one "
                    "with `--data.steps 10000`"
                )

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """Trains from fresh states, within the guard's limits."""
        config, environment = run.config, run.environment
        assert environment is not None  # checked when the run was resolved
        fallbacks = fallback_policies(config.fallback, environment, run.spec, task.controllers)
        trained = train_online(
            task.learner,
            environment,
            task.seeds,
            task.plan,
            settings=config.online,
            spec=run.spec,
            penalty=config.penalty,
            constraints=hard_constraints(config.limits, run.spec),
            fallback=fallback_chain(*fallbacks),
            **task.loop(),
        )
        return Learned(trained, collected=collected_by(trained))
