"""The stage that fine-tunes the learners of a finished run, and what is said of it."""

from typing import Any

import jax
import numpy as np

from neorl_core import InputError, Policy
from neorl_safety.guards import fallback_chain
from neorl_train._pipeline.artefacts import hard_constraints
from neorl_train._pipeline.checkpoints import run_checkpoints
from neorl_train._pipeline.offline_run import offline_states
from neorl_train.configuration._fallback import fallback_policies
from neorl_train.configuration._sections import Config, hyperparameters
from neorl_train.evaluation._fine_tuning import fine_tuned
from neorl_train.evaluation._validation import PolicyValidation
from neorl_train.experience._experience import Experience
from neorl_train.experience._source import simulator
from neorl_train.experience._streamed import StreamedData
from neorl_train.results._fine_tuning import Collected, FineTuning
from neorl_train.results._results import Evaluation
from neorl_train.runs._records import read_records
from neorl_train.training._fine_tune import fine_tune, online_counts
from neorl_train.training._loop import Plan, Trained, Watcher

OFFLINE = "offline"
"""What the name of a learner before its fine-tuning ends with, as in ``iql_offline-0``."""


def fine_tune_one(
    job: Any,
    name: str,
    experience: Experience,
    environment: Any,
    watcher: Watcher,
    validation: PolicyValidation,
) -> tuple[Trained, dict[str, Policy]]:
    """Fine-tunes all seeds of one learner; what it reached, and its policies from before."""
    config, run, spec = job.config, job.run, experience.training.spec
    found = offline_states(config, experience, name, job.reporter.say)
    if isinstance(experience.training, StreamedData):
        raise InputError(
            "fine-tuning keeps the log in memory, and this one stays in its file; train and "
            "fine-tune with a larger data.memory"
        )
    acting = fallback_policies(config.fallback, environment, spec, job.controllers)
    content = experience.dataset.content_hash
    checkpoints = run_checkpoints(run, config, name, content, job.reporter.say)
    seeds, training = config.training.seeds, config.training
    with job.stop.later():
        trained = fine_tune(
            hyperparameters(config, name),
            [found[seed][0] for seed in seeds],
            experience.training,
            environment,
            seeds,
            Plan(training.updates, training.chunk, config.checkpoints.interval),
            settings=config.finetune,
            penalty=config.penalty,
            constraints=hard_constraints(config.limits, spec),
            fallback=fallback_chain(*acting),
            watcher=watcher,
            checkpoints=checkpoints,
            validate=validation,
            stop=job.stop.requested,
        )
    job.stop.check()
    job.reporter.end()
    return trained, {f"{name}_{OFFLINE}-{seed}": found[seed][1] for seed in seeds}


def collected(config: Config, trained: Trained) -> tuple[Collected, ...]:
    """What happened on the plant while each seed was fine-tuned."""
    return tuple(
        Collected(
            seed=seed,
            steps=int(counts.steps),
            episodes=int(counts.episodes),
            mean_return=float(counts.returns) / (int(counts.episodes) or np.nan),
            violated=tuple(int(number) for number in counts.violated),
            trips=int(counts.trips),
            filtered=int(counts.filtered),
            fallback=int(counts.fallback),
        )
        for seed, counts in zip(config.training.seeds, online_counts(trained), strict=True)
    )


def fine_tuning_results(
    job: Any, evaluation: Evaluation, validation: PolicyValidation
) -> FineTuning:
    """Before, after and regret of every learner.

    Args:
        job: The run, with the policies from before and what happened on the plant.
        evaluation: Paired episodes of the policies before and after.
        validation: What judged the policies while they were fine-tuned.
    """
    config = job.config
    environment: Any = simulator(config)
    reference = environment.tunings()[environment.reference]
    judged = jax.device_get({name: validation(policy) for name, policy in job.before.items()})
    level = jax.device_get(validation(reference)).get("plant_return")
    lines = [line for line in read_records(job.run.metrics) if line["kind"] == "validation"]
    results = []
    for name in config.training.algorithms:
        curves = []
        for seed in config.training.seeds:
            mine = [one for one in lines if one["algorithm"] == name and one["seed"] == seed]
            first = judged[f"{name}_{OFFLINE}-{seed}"].get("plant_return", np.nan)
            curves.append([first, *(one["metrics"].get("plant_return", np.nan) for one in mine)])
        regret = None
        if level is not None:
            regret = tuple(float(np.mean(level - np.asarray(curve))) for curve in curves)
        results.append(
            fine_tuned(
                evaluation,
                name,
                f"{name}_{OFFLINE}",
                seeds=config.training.seeds,
                collected=job.online[name],
                regret=regret,
            )
        )
    costs = tuple(channel.name for channel in evaluation.tables.spec.cost)
    return FineTuning(evaluation.tables.reward_unit, costs, tuple(results))
