"""The stages of the main job: log, training, policies, evaluation, verdict, report."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neorl_agents import ALGORITHMS
from neorl_core import InputError, Policy
from neorl_envs import Dataset
from neorl_safety.guards import describe_settings
from neorl_safety.monitoring import Watch
from neorl_train._pipeline.artefacts import (
    hard_constraints,
    write_guard_files,
    write_policies,
)
from neorl_train._pipeline.checkpoints import run_checkpoints
from neorl_train._pipeline.controllers import fitted_controllers
from neorl_train._pipeline.fine_tuning import collected, fine_tune_one, fine_tuning_results
from neorl_train._pipeline.monitors import (
    disagreement_watch,
    fitted_watches,
    guard_settings,
    monitor_records,
)
from neorl_train._pipeline.offline_run import take_log
from neorl_train._pipeline.origins import origin_of
from neorl_train._pipeline.retuning import Retuning, chosen_candidate, retuning_of
from neorl_train._pipeline.watcher import RunWatcher
from neorl_train._process.progress import Reporter
from neorl_train._process.signals import StopSignal
from neorl_train._process.timings import Timings
from neorl_train.configuration._fallback import fallback_policies
from neorl_train.configuration._sections import Config, config_to_dict, hyperparameters
from neorl_train.evaluation._validation import PolicyValidation
from neorl_train.experience._experience import Experience, training_experience
from neorl_train.experience._hindrances import hindrances
from neorl_train.experience._log_cache import collected_log, complete_log, log_file
from neorl_train.experience._source import is_environment, is_streamed, read_log, simulator
from neorl_train.experience._streamed import StreamedData, streamed_sentence
from neorl_train.results._fine_tuning import Collected, write_fine_tuning
from neorl_train.results._results import Evaluation
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import fallback_names
from neorl_train.runs._records import Records
from neorl_train.runs._tracker import MISSING, MlflowTracker, NoTracker, Tracker, mlflow_installed
from neorl_train.training._loop import Plan, Trained, train
from neorl_train.verdicts._trial import LogPrediction, trial_verdict


@dataclasses.dataclass
class Job:
    """What the stages of one run share.

    Attributes:
        config: Configuration, validated, with the penalties resolved.
        run: Run directory, locked.
        dataset: Log, where it was read already.
        reporter: Reporter of progress.
        stop: Flag that signals set.
        timings: Record of where the time goes.
        online: What happened on the plant while a learner was fine-tuned, by its name.
        before: Policies before their fine-tuning, by name.
        controllers: Classical controllers fitted on the log, by name.
        retuning: The retuned controller with its learned plants, where one is retuned.
    """

    config: Config
    run: RunDirectory
    dataset: Dataset | None
    reporter: Reporter
    stop: StopSignal
    timings: Timings
    online: dict[str, tuple[Collected, ...]] = dataclasses.field(default_factory=dict)
    before: dict[str, Policy] = dataclasses.field(default_factory=dict)
    controllers: dict[str, Policy] = dataclasses.field(default_factory=dict)
    retuning: Retuning | None = None


def all_stages(job: Job) -> None:
    """Every stage in turn; those that left their results are cut short."""
    experience = _experience(job)
    environment = simulator(job.config)
    watches = fitted_watches(job.config, experience)
    _fit_controllers(job, experience, environment)  # loops may be refused, so before training
    retuned = _retune(job, experience, environment)
    tracker = _tracker(job)
    try:
        policies = retuned | _train_all(job, experience, environment, tracker)
    finally:
        tracking_error = tracker.finish()
        if tracking_error:
            job.reporter.say(tracking_error)
    watches += disagreement_watch(job.config, experience, policies)
    _judge(job, experience, environment, policies, watches)


def _experience(job: Job) -> Experience:
    config, run = job.config, job.run
    path = log_file(config, run.dataset)
    if is_environment(config.data.source):
        job.reporter.stage(f"collecting {config.data.steps} steps of {config.data.source}")
        if config.finetune.run:
            take_log(config, run)
        with job.timings.stage("collect or copy the log"):
            collected_log(config, run.dataset, job.reporter.say)
    job.reporter.stage(f"reading {path.name}")
    with job.timings.stage("read the log"):
        dataset = job.dataset or _read(job, path)
    expected = run.record().get("dataset", {}).get("content_hash", dataset.content_hash)
    if expected != dataset.content_hash:
        raise InputError(
            f"{path} is not the log that this run began with ({dataset.content_hash[:20]}..., "
            f"expected {expected[:20]}...); restore it, or start a new run"
        )
    where = path.name if path == run.dataset else str(path)
    run.update_record(
        dataset={
            "file": where,
            "content_hash": dataset.content_hash,
            "rows": dataset.n_rows,
            "episodes": dataset.n_episodes,
            "streamed": is_streamed(config, path),
        }
    )
    if not np.asarray(dataset.transitions.terminated).any():
        job.reporter.say(f"{path.name}: no row is terminated; every episode was truncated")
    with job.timings.stage("split and statistics"):
        experience = training_experience(config, dataset, config.penalty, path)
    training = experience.training
    for sentence in hindrances(training.priced_statistics or training.statistics, training.spec):
        job.reporter.say(f"{path.name}: {sentence}")
    if isinstance(experience.training, StreamedData):
        job.reporter.say(streamed_sentence(path, config.data.memory, experience.training))
    job.reporter.end(f"{dataset.n_rows} rows, {dataset.n_episodes} episodes")
    return experience


def _fit_controllers(job: Job, experience: Experience, environment: Any) -> None:
    """Fits the classical controllers, and leaves what was identified in the record."""
    names = job.config.classical.controllers
    if not names:
        return
    job.reporter.stage(f"fitting {', '.join(names)} on the log")
    with job.timings.stage("fit classical controllers"):
        found = fitted_controllers(job.config, experience.dataset, environment)
    job.controllers, words = found
    job.run.update_record(controllers=words)
    job.reporter.end()
    for line in words:
        job.reporter.say(line)


def _retune(job: Job, experience: Experience, environment: Any) -> dict[str, Policy]:
    """Retunes a controller in a plant model of the log, and leaves what changed in the record."""
    name = job.config.retuning.controller
    if not name:
        return {}
    job.reporter.stage(f"learning the plant from the log and retuning {name}")
    spec = experience.training.spec
    with job.timings.stage("retune"):
        job.retuning = retuning_of(
            job.config, experience.dataset, environment, job.controllers, spec
        )
    record, seed = job.run.record(), job.config.training.seeds[0]
    job.run.update_record(
        controllers=[*record.get("controllers", []), *job.retuning.words]
        if job.controllers
        else job.retuning.words
    )
    about = {"hyperparameters": {}, "origin": "", "controller": name, "run": record["id"]}
    rows, made = experience.dataset.transitions, job.retuning.policies
    digests: dict[str, Any] = {}
    for kind, policy in made.items():
        digests |= write_policies(job.run, kind, {seed: policy}, spec, rows, about)
    job.run.update_record(policies=job.run.record().get("policies", {}) | digests)
    job.reporter.end()
    for line in job.retuning.words:
        job.reporter.say(line)
    return {f"{kind}-{seed}": policy for kind, policy in made.items()}


def _choose(job: Job, policies: dict[str, Policy]) -> tuple[str, LogPrediction | None]:
    """The candidate, and what a plant model predicts of it where there is one."""
    config = job.config
    if job.retuning is None:
        return f"{config.evaluation.candidate}-{config.training.seeds[0]}", None
    with job.timings.stage("choose"):
        candidate, prediction, words = chosen_candidate(config, job.retuning, policies)
    job.run.update_record(choice=words)
    for line in words:
        job.reporter.say(line)
    return candidate, prediction


def _read(job: Job, path: Path) -> Dataset:
    if is_environment(job.config.data.source):
        return complete_log(job.config, path, job.reporter.say)
    return read_log(job.config, path)


def _tracker(job: Job) -> Tracker:
    if not job.config.output.tracking:
        return NoTracker()
    if not mlflow_installed():
        job.reporter.say(MISSING)
        return NoTracker()
    return MlflowTracker(job.run)


def _train_all(
    job: Job, experience: Experience, environment: Any, tracker: Tracker
) -> dict[str, Policy]:
    """Trains or fine-tunes every algorithm in turn; policies by ``algorithm-seed``."""
    config = job.config
    validation = _validation(config, experience, environment)
    records = Records(job.run.metrics)
    policies: dict[str, Policy] = {}
    try:
        for name in config.training.algorithms:
            watcher = RunWatcher(
                name,
                config.training.seeds,
                config.training.updates,
                records=records,
                reporter=job.reporter,
                tracker=tracker,
                timings=job.timings,
            )
            before: dict[str, Policy] = {}
            with job.timings.stage(f"train {name}"):
                if config.finetune.run:
                    trained, before = fine_tune_one(
                        job, name, experience, environment, watcher, validation
                    )
                    job.online[name] = collected(config, trained)
                else:
                    trained = _train_one(job, name, experience, watcher, validation)
            policies |= _leave_policies(job, name, experience, trained) | before
            job.before |= before
    finally:
        records.close()
    return policies


def _validation(config: Config, experience: Experience, environment: Any) -> PolicyValidation:
    key = jax.random.fold_in(jax.random.key(config.evaluation.seed), 1)
    starts = config.evaluation.curve_starts
    return PolicyValidation(experience.held_out, environment, key=key, starts=starts)


def _train_one(
    job: Job, name: str, experience: Experience, watcher: RunWatcher, validation: PolicyValidation
) -> Trained:
    config, run = job.config, job.run
    content = experience.dataset.content_hash
    checkpoints = run_checkpoints(run, config, name, content, job.reporter.say)
    with job.stop.later():
        trained = train(
            hyperparameters(config, name),
            experience.training,
            config.training.seeds,
            Plan(config.training.updates, config.training.chunk, config.checkpoints.interval),
            watcher=watcher,
            checkpoints=checkpoints,
            validate=validation,
            stop=job.stop.requested,
        )
    job.stop.check()
    job.reporter.end()
    return trained


def _leave_policies(
    job: Job, name: str, experience: Experience, trained: Trained
) -> dict[str, Policy]:
    config, run = job.config, job.run
    plain, record = config_to_dict(config), run.record()
    about = {
        "hyperparameters": plain["algorithms"][name],
        "origin": origin_of(ALGORITHMS, name),
        "updates": config.training.updates,
        "fine_tunes": config.finetune.run,
        "penalty": plain["penalty"],
        "source": config.data.source,
        "dataset_hash": experience.dataset.content_hash,
        "config_hash": record["config_hash"],
        "run": record["id"],
    }
    by_seed = dict(zip(config.training.seeds, trained.policies, strict=True))
    digests = write_policies(
        run, name, by_seed, experience.training.spec, experience.dataset.transitions, about
    )
    run.update_record(policies=record.get("policies", {}) | digests)
    return {f"{name}-{seed}": policy for seed, policy in by_seed.items()}


def _judge(
    job: Job,
    experience: Experience,
    environment: Any,
    policies: dict[str, Policy],
    watches: list[Watch],
) -> None:
    """Evaluates, decides, reports; imported here, for training must not wait for it."""
    from neorl_train.evaluation._logged import evaluate_offline
    from neorl_train.evaluation._simulated import evaluate

    config, dataset = job.config, experience.dataset
    controllers = job.controllers
    guarding = _leave_guard(job, experience, environment, watches)
    candidate, prediction = _choose(job, policies)
    with job.timings.stage("evaluate"):
        if environment is None:
            job.reporter.stage(f"comparing with the log: {', '.join(policies)}")
            evaluation = evaluate_offline(
                policies,
                dataset=dataset,
                held_out=experience.held_out,
                training=experience.training,
                candidate=candidate,
                cost_limits=config.limits.cost,
                controllers=controllers,
                level=config.evaluation.level,
                episode_margin=config.evaluation.episode_margin,
            )
        else:
            starts = config.evaluation.starts
            job.reporter.stage(f"evaluating {len(policies)} policies in {starts} paired episodes")
            evaluation = evaluate(
                environment,
                policies,
                dataset,
                candidate=candidate,
                incumbent=config.evaluation.incumbent or None,
                **guarding,
                cost_limits=config.limits.cost,
                controllers=controllers,
                key=jax.random.key(config.evaluation.seed),
                n_starts=starts,
                level=config.evaluation.level,
                episode_margin=config.evaluation.episode_margin,
            )
        _leave_results(job, experience, environment, evaluation, prediction)
    job.reporter.end()
    write_run_report(job.run, job.reporter, job.timings)


def _leave_results(
    job: Job,
    experience: Experience,
    environment: Any,
    evaluation: Evaluation,
    prediction: LogPrediction | None,
) -> None:
    """Writes the evaluation with its verdict, and before it what a fine-tuning brought."""
    from neorl_train._pipeline.write_results import write_results
    from neorl_train.verdicts._rule import verdict

    if job.config.finetune.run:
        validation = _validation(job.config, experience, environment)
        write_fine_tuning(job.run.path, fine_tuning_results(job, evaluation, validation))
    decided = verdict(evaluation.tables)
    if environment is None and prediction is not None:
        decided = trial_verdict(evaluation.tables, prediction)
    write_results(job.run.path, evaluation, decided)


def _leave_guard(
    job: Job,
    experience: Experience,
    environment: Any,
    watches: list[Watch],
) -> dict[str, Any]:
    """Writes what the guard of a run is made of, and gives it as an evaluation takes it."""
    dataset, spec = experience.dataset, experience.training.spec
    acting = fallback_policies(job.config.fallback, environment, spec, job.controllers)
    constraints = hard_constraints(job.config.limits, spec)
    fallbacks = dict(zip(fallback_names(len(acting)), acting, strict=True))
    settings = guard_settings(job.config, spec, watches, list(fallbacks))
    write_guard_files(job.run, constraints, fallbacks, settings, spec, dataset.transitions)
    job.run.update_record(
        supervision=describe_settings(settings, spec),
        monitors=monitor_records(watches, experience.held_out),
    )
    return {"constraints": constraints, "fallbacks": fallbacks, "settings": settings}


def write_run_report(run: RunDirectory, reporter: Reporter, timings: Timings) -> None:
    """Writes the report of a run that was evaluated."""
    from neorl_train.report import write_report

    reporter.stage("writing the report")
    with timings.stage("report"):
        write_report(run.path)
    reporter.end()
