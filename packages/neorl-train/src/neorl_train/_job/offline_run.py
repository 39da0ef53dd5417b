"""The finished run that a fine-tuning continues: its compatibility, its log and its states."""

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from neorl_agents import ALGORITHMS, Explorer
from neorl_agents.learning import for_run
from neorl_core import InputError
from neorl_core.infrastructure import replacing
from neorl_envs import Dataset, read_dataset
from neorl_envs.plants import Plant
from neorl_train._job.artefacts import run_checkpoints
from neorl_train.configuration._sections import (
    Config,
    config_hash,
    config_type,
    hyperparameters,
    load_toml,
)
from neorl_train.data._experience import Experience
from neorl_train.data._source import RunSource, require_same_channels, simulator, source_named
from neorl_train.runs._checkpoints import complete_steps
from neorl_train.runs._directory import DIVERGED, FINISHED, RunDirectory
from neorl_train.training._queues import devices_for, offline_seeds


def offline_run(path: str) -> tuple[RunDirectory, Config]:
    """A run that can be fine-tuned, and its configuration.

    Raises:
        InputError: If it is not a run, was not finished, or is itself a fine-tuning; a policy
            artefact, which has no critics, gets its own message.
    """
    if Path(path).suffix == ".toml":
        raise InputError(
            f"{path} is a configuration file, and finetune takes the directory of a finished run "
            f"first; for example `neorl-train finetune runs/0001 {path}`"
        )
    if Path(path).is_file():
        raise InputError(
            f"{path} is a file, and a policy artefact contains only the actor; fine-tuning also "
            "needs the critics, targets and optimisers, so give the directory of the run that "
            "trained it"
        )
    run = RunDirectory(Path(path).absolute())
    record = run.record()
    if record["status"] != FINISHED:
        raise InputError(f"{run.path} is {record['status']}, not finished: {run.resume_line()}")
    config = load_toml(run.config, config_type(ALGORITHMS)())
    if config.finetune.run:
        raise InputError(
            f"{run.path} is itself a fine-tuning run and cannot be fine-tuned again; fine-tune the "
            f"run that it started from, {config.finetune.run}, with more training.updates"
        )
    if config.training.on == "plant":
        raise InputError(
            f"{run.path} was trained on its plant without a log, and fine-tuning needs one; start "
            "a run on the plant with more training.updates"
        )
    if record["config_hash"] != config_hash(config):
        raise InputError(
            f"{run.config} was changed since the run began, so its checkpoints do not belong to "
            "it; restore the file"
        )
    return run, config


def fine_tuning_defaults(path: str) -> Config:
    """The default configuration for fine-tuning a finished run.

    It is that of the run: its log, penalties, limits and hyperparameters, with those of its
    learners that can be fine-tuned. Rate limits that a log does not contain come from the simulated
    plant.

    Raises:
        InputError: If it is not a finished run, or none of its learners can be fine-tuned.
    """
    run, config = offline_run(path)
    diverged = run.record().get(DIVERGED, {})
    trained = [name for name in config.training.algorithms if name not in diverged]
    learners = {name: hyperparameters(config, name) for name in trained}
    names = [n for n, one in learners.items() if isinstance(one, Explorer) and one.fine_tuning]
    if not names:
        raise InputError(
            f"{run.path} trained {', '.join(trained)}, and none of these can be "
            "fine-tuned; only iql, cal_ql and rebrac can"
        )
    limits = config.limits
    finite = {
        field: {name: rate for name, rate in getattr(limits, field).items() if math.isfinite(rate)}
        for field in ("rate_up", "rate_down")
    }
    candidate = config.evaluation.candidate
    candidate = candidate if candidate in names else ""
    incumbent = config.evaluation.incumbent
    given = config.evaluation.incumbent_file or incumbent in config.classical.declared
    if simulator(config.data, config.evaluation, config.finetune) is None and not given:
        incumbent = ""  # no tuning could be named, so the plant's own is chosen again
    return replace(
        config,
        limits=replace(limits, **finite),
        training=replace(config.training, algorithms=tuple(names)),
        evaluation=replace(config.evaluation, candidate=candidate, incumbent=incumbent),
        finetune=replace(config.finetune, run=str(run.path)),
    )


def check_offline_run(config: Config, environment: Plant | None, dataset: Dataset | None) -> None:
    """Refuses a fine-tuning that does not fit its offline run, before anything is written.

    Raises:
        InputError: Names what does not fit: no simulator, other channels, another log or penalty,
            or learners, seeds or checkpoints that the run does not have.
    """
    run, offline_config = offline_run(config.finetune.run)
    if environment is None:
        raise InputError(
            f"{config.data.source} is a log without a simulator, and fine-tuning explores, which "
            "must not happen on a real plant; name a simulated plant with the same channels, such "
            "as `--finetune.environment CSTR-v0`"
        )
    if dataset is None:
        path = source_named(offline_config.data.source).log_file(run.dataset)
        dataset = read_dataset(path, memory_map=True)
    require_same_channels(environment.spec, dataset.spec, environment.name)
    for section in ("data", "penalty"):
        if getattr(config, section) != getattr(offline_config, section):
            raise InputError(
                f"[{section}] differs from that of {run.path}; learners are fine-tuned with the "
                "log and the penalties that they were trained with, so leave it out"
            )
    diverged = run.record().get(DIVERGED, {})
    learners = [name for name in offline_config.training.algorithms if name not in diverged]
    for name, wanted, trained in (
        ("training.algorithms", config.training.algorithms, learners),
        ("training.seeds", config.training.seeds, offline_config.training.seeds),
    ):
        missing = [str(entry) for entry in wanted if entry not in trained]
        if missing:
            raise InputError(
                f"{name} has {', '.join(missing)}, which {run.path} did not train; it has "
                f"{', '.join(map(str, trained))}"
            )
    for name in config.training.algorithms:
        _require_critics(run, name, offline_config.training.updates)


def _require_critics(run: RunDirectory, name: str, updates: int) -> None:
    if updates not in complete_steps(run.checkpoints(name)):
        raise InputError(
            f"{run.path} has no checkpoint of {name} at update {updates}, so its critics are lost, "
            "and a policy alone cannot be fine-tuned; restore the folder checkpoints, or train "
            "again"
        )


def take_log(source: RunSource, offline: RunDirectory, run: RunDirectory) -> None:
    """Links the log of the offline run into the run that fine-tunes it, unless it is there."""
    log = source.log_file(offline.dataset)
    if run.dataset.exists() or not log.is_file():
        return
    with replacing(run.dataset) as copy:
        try:
            os.link(log, copy)
        except OSError:  # another file system, or one without links
            shutil.copyfile(log, copy)


def offline_states(
    config: Config, experience: Experience, name: str, print_line: Any
) -> dict[int, tuple[Any, Any]]:
    """State and policy of every seed of one learner, as its offline training left them.

    Raises:
        InputError: If the checkpoint is damaged, or does not belong to this run.
    """
    run, offline_config = offline_run(config.finetune.run)
    algorithm = for_run(hyperparameters(offline_config, name), offline_config.training.updates)
    seeds = offline_config.training.seeds
    queues = offline_seeds(algorithm, experience.training, seeds, devices_for(seeds))
    content = experience.dataset.content_hash
    checkpoints = run_checkpoints(
        run,
        offline_config.checkpoints,
        config_hash(offline_config),
        name,
        content,
        print_line,
    )
    best = offline_config.checkpoints.best
    try:
        template = queues.snapshot()
        restored = checkpoints.best(template) if best else checkpoints.restore(template)
    finally:
        checkpoints.close()
    if restored is None or (restored.step != offline_config.training.updates and not best):
        _require_critics(run, name, -1)
        raise AssertionError("the last checkpoint disappeared while it was read")
    trainings = queues.unstack(restored.tree["state"])
    states, policies = [training.learner for training in trainings], queues.policies(restored.tree)
    return dict(zip(seeds, zip(states, policies, strict=True), strict=True))
