"""The stage that fine-tunes the learners of a finished run, and the report of its results."""

from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from neorl_core import InputError, Policy
from neorl_safety.guards import fallback_chain
from neorl_train._job.artefacts import hard_constraints
from neorl_train._job.offline_run import offline_states
from neorl_train._job.resolved_run import Learned, ResolvedRun, Task
from neorl_train.configuration._guard import fallback_policies
from neorl_train.data._experience import Experience
from neorl_train.data._training_data import StreamedData
from neorl_train.judging._results import Evaluation
from neorl_train.judging._summary import mean_over_seeds, paired_comparison, seed_returns
from neorl_train.judging._training_results import Collected, FineTuned, FineTuning
from neorl_train.judging._validation import PolicyValidation
from neorl_train.runs._records import read_records
from neorl_train.training._fine_tune import fine_tune, online_counts
from neorl_train.training._loop import Trained

OFFLINE = "offline"
"""Suffix of a learner's name before its fine-tuning, as in ``iql_offline-0``."""


def fine_tune_one(
    task: Task, run: ResolvedRun, experience: Experience
) -> tuple[Trained, dict[str, dict[int, Policy]]]:
    """Fine-tunes all seeds of one learner; returns its result and its earlier policies."""
    config, environment, name = run.config, run.environment, task.name
    assert environment is not None  # checked when the run was resolved
    offline = offline_states(config, experience, name, task.print_line)
    if isinstance(experience.training, StreamedData):
        raise InputError(
            "fine-tuning needs the log in memory, and this log is read from its file in blocks "
            "because data.memory is too small for it; train and fine-tune with a larger data.memory"
        )
    fallbacks = fallback_policies(config.fallback, environment, run.spec, task.controllers)
    trained = fine_tune(
        task.learner,
        [offline[seed][0] for seed in task.seeds],
        experience.training,
        environment,
        task.seeds,
        task.plan,
        settings=config.finetune,
        penalty=config.penalty,
        constraints=hard_constraints(config.limits, run.spec),
        fallback=fallback_chain(*fallbacks),
        **task.loop(),
    )
    return trained, {f"{name}_{OFFLINE}": {seed: offline[seed][1] for seed in task.seeds}}


def collected_by(trained: Trained) -> tuple[Collected, ...]:
    """Counts of the events on the plant while each seed was trained."""
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
        for seed, counts in zip(trained.seeds, online_counts(trained), strict=True)
    )


def fine_tuning_results(
    learned: Mapping[str, Learned],
    run: ResolvedRun,
    evaluation: Evaluation,
    validation: PolicyValidation,
    metrics: Path,
) -> FineTuning:
    """Results of every learner before and after fine-tuning, and its regret."""
    assert run.environment is not None  # a fine-tuning has a plant
    reference = run.environment.tunings()[run.environment.reference]
    reference_return = jax.device_get(validation(reference)).get("plant_return")
    lines = [line for line in read_records(metrics) if line["kind"] == "validation"]
    results = []
    for name, learned_policies in learned.items():
        initial_metrics = jax.device_get(
            {
                seed: validation(policy)
                for seed, policy in learned_policies.compared[f"{name}_{OFFLINE}"].items()
            }
        )
        curves = []
        for seed in learned_policies.trained.seeds:
            seed_lines = [
                line for line in lines if line["algorithm"] == name and line["seed"] == seed
            ]
            first = initial_metrics[seed].get("plant_return", np.nan)
            curves.append(
                [first, *(line["metrics"].get("plant_return", np.nan) for line in seed_lines)]
            )
        regret = None
        if reference_return is not None:
            regret = tuple(float(np.mean(reference_return - np.asarray(curve))) for curve in curves)
        after, before = (seed_returns(evaluation, group) for group in (name, f"{name}_{OFFLINE}"))
        assert after is not None  # both are candidates of the pool
        assert before is not None
        level = evaluation.tables.level
        paired = paired_comparison(after, before, level=level)
        results.append(
            FineTuned(
                name=name,
                before=mean_over_seeds(before, level=level),
                after=mean_over_seeds(after, level=level),
                gain=paired.gain,
                each_seed=paired.each_seed,
                regret=regret,
                collected=learned_policies.collected,
            )
        )
    costs = tuple(channel.name for channel in evaluation.tables.spec.cost)
    return FineTuning(evaluation.tables.reward_unit, costs, tuple(results))
