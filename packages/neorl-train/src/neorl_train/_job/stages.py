"""The stages of the main job: log, training, policies, evaluation, verdict, report.

Process 0 carries them out, in step with the processes that train with it, if there are any.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from neorl_agents import ALGORITHMS
from neorl_core import InputError, Policy, Spec
from neorl_envs import Dataset
from neorl_envs.inspection import contradiction_sentences, contradictions, signal_warnings
from neorl_safety.guards import describe_settings
from neorl_safety.monitoring import NamedMonitor
from neorl_train._job.artefacts import (
    hard_constraints,
    parity_observations,
    require_storable,
    run_checkpoints,
    write_guard_files,
    write_policies,
)
from neorl_train._job.candidates import (
    choose_stage,
    fit_controllers,
    loop_changes_stage,
    retune_stage,
    with_learners,
)
from neorl_train._job.diverged import (
    record_diverged,
    require_a_finished_learner,
    without_diverged,
)
from neorl_train._job.evaluation import (
    INPUTS,
    RESULTS,
    evaluate_candidates,
    evaluation_inputs,
    matching_evaluation,
    results_digest,
    write_results,
)
from neorl_train._job.fine_tuning import fine_tuning_results
from neorl_train._job.monitors import (
    disagreement_watch,
    fitted_watches,
    guard_settings,
    monitor_records,
)
from neorl_train._job.resolution import origin_of
from neorl_train._job.resolved_run import Learned, ResolvedRun, Session, Task
from neorl_train._job.watcher import RunWatcher, tracked
from neorl_train._process.control import SIGNALS, InterruptedRunError
from neorl_train._process.progress import Reporter, Timings
from neorl_train.candidates._family import Material
from neorl_train.candidates._table import GIVEN, TUNED, make_candidates
from neorl_train.configuration._guard import fallback_policies
from neorl_train.configuration._sections import (
    MAX_STARTS,
    CandidateConfig,
    batch_sizes,
    config_hash,
    config_to_dict,
    hyperparameters,
)
from neorl_train.data._data_warnings import (
    clock_warnings,
    constant_fallback_warnings,
    data_warnings,
    zero_limits,
)
from neorl_train.data._experience import Experience, training_experience
from neorl_train.data._source import (
    PlantSource,
    collected_log,
    complete_log,
    is_streamed,
    more_rows,
)
from neorl_train.data._training_data import StreamedData, streamed_sentence
from neorl_train.judging._pool import Pool
from neorl_train.judging._results import Evaluation
from neorl_train.judging._rollouts import curve_key
from neorl_train.judging._rule import LogPrediction, trial_verdict
from neorl_train.judging._training_results import (
    diverged_sentences,
    exploration_summary,
    unconverged,
    without_safe_actions,
    write_fine_tuning,
)
from neorl_train.judging._validation import PolicyValidation
from neorl_train.runs._directory import DIVERGED, RunDirectory, fallback_names
from neorl_train.runs._records import Records, read_records
from neorl_train.runs._tracker import Tracker
from neorl_train.training._loop import Trained
from neorl_train.training._memory import machine_memory, memory_text
from neorl_train.training._plan import DivergedError, check_logs, plan_of
from neorl_train.training._processes import (
    all_or_none,
    checkpoints_for_all,
    end_together,
    lost_in_one_line,
    require_equal,
    several,
    stop_of_all,
    text_of_leader,
)


def all_stages(run: ResolvedRun, session: Session) -> None:
    """Carries out every stage in turn; stages whose results already exist are cut short."""
    config = run.config
    experience = _read_same_log(run, session)
    learners = {name: hyperparameters(config, name) for name in config.training.algorithms}
    with all_or_none("prepare the training"):
        if experience is not None:
            check_logs([*learners.values()], experience.training)
        for name, learner in learners.items():
            if origin_of(ALGORITHMS, name):  # of ours, tests show that files hold their policies
                require_storable(name, learner, run.spec)
        watches = fitted_watches(config.monitors, config.data, experience, run.spec)
        # A log may be refused for its loops, so this happens before training.
        dataset = None if experience is None else experience.dataset
        digests = session.directory.record().get("given_policies", {})
        material = Material(CandidateConfig.of(config), run.spec, run.environment, dataset, digests)
        material = material._replace(pool=Pool(incumbent=config.evaluation.runs_today))
        material, controllers = fit_controllers(run, session, material)
        material, notes = make_candidates((TUNED, GIVEN), material)
        for line in notes:
            session.reporter.print_line(line)
        material = retune_stage(run, session, experience, material, controllers)
    with tracked(session, to_mlflow=config.output.tracking) as tracker:
        learned = _train_all(run, session, experience, controllers, tracker)
        end_together()
        diverged = session.directory.record().get(DIVERGED, {})
        require_a_finished_learner(run.config.training.algorithms, diverged)
        material, lost = without_diverged(material, diverged)
        _record_exploration(run, session, learned)
        material, notes = with_learners(material, learned)
        watches += disagreement_watch(config.monitors, experience, material)
        guarding = _save_guard(run, session, experience, controllers, watches)
        choice, pool = choose_stage(run, session, experience, material, notes)
        candidate, prediction = choice.candidate.id, choice.prediction
        with session.timings.stage("evaluate"):
            record = session.directory.record()
            inputs = evaluation_inputs(record, pool.policies, candidate=candidate)
            known = matching_evaluation(session.directory, inputs)
            if known is None:
                evaluation = _evaluate(
                    run, session, experience, pool, controllers, candidate, guarding
                )
            else:
                path, evaluation = known
                session.reporter.note(f"evaluation read from {path}; a new one would be equal")
            remark = _remark(run, session, choice.candidate.name, lost)
            _save_results(run, session, experience, learned, evaluation, prediction, remark)
            digest = results_digest(session.directory.path)
            session.directory.update_record(**{INPUTS: inputs, RESULTS: digest})
        session.reporter.end()
        loop_changes_stage(run, session, experience, choice.candidate.policy, material.loops)
        write_run_report(session.directory, session.reporter, session.timings)


def _read_same_log(run: ResolvedRun, session: Session) -> Experience | None:
    """As :func:`read_experience`, but before the others, so that they can copy a collected log.

    Raises:
        InputError: As in that function; also if another process cannot read the log or reads a
            different one.
    """
    with all_or_none("read the log"):
        experience = read_experience(run, session)
    with all_or_none("read its copy of the log"):
        pass  # only the other processes do something here
    require_equal("" if experience is None else experience.dataset.content_hash, "log")
    return experience


def read_experience(run: ResolvedRun, session: Session) -> Experience | None:
    """Reads the data on which a run is trained and judged, and reports warnings about the log.

    It is ``None`` for a run on a plant that records no log.

    Raises:
        InputError: If the log is gone, damaged beyond repair, or not the one the run began with.
    """
    config, directory, reporter = run.config, session.directory, session.reporter
    path = run.source.log_file(directory.dataset)
    if isinstance(run.source, PlantSource) and not config.data.steps:
        return None
    _collect(run, session)
    reporter.stage(f"reading {path.name}")
    with session.timings.stage("read the log"):
        dataset = run.dataset or complete_log(config.data, path, reporter.print_line)
    _record(run, session, dataset, path)
    if isinstance(run.source, PlantSource) and dataset.n_rows > config.data.steps:
        reporter.note(f"{path.name}: {more_rows(config.data.steps, dataset.n_rows)}")
    if not np.asarray(dataset.transitions.terminated).any():
        reporter.print_line(f"{path.name}: no row is terminated; every episode was truncated")
    signal_sentences: list[str] = []
    if not isinstance(run.source, PlantSource):
        with session.timings.stage("check the log for contradictions"):
            counts = contradictions(dataset)
            signal_sentences = signal_warnings(dataset)
            is_constant = run.config.fallback.kind == "constant"
            of_fallback = constant_fallback_warnings(dataset) if is_constant else []
            warnings = [*signal_sentences, *of_fallback]
        for sentence in contradiction_sentences(counts):
            reporter.print_line(
                f"{path.name}: {sentence}; neorl-envs inspect {path.name} shows more"
            )
        for sentence in warnings:
            reporter.print_line(f"warning: {path.name}: {sentence}")
        for sentence in zero_limits(dataset, run.spec):
            reporter.print_line(f"{path.name}: {sentence}")
    with session.timings.stage("split and statistics"):
        experience = training_experience(
            config.data,
            dataset,
            run.spec,
            penalty=config.penalty,
            batch_sizes=batch_sizes(config),
            path=path,
        )
        experience = dataclasses.replace(experience, signal_warnings=tuple(signal_sentences))
    training = experience.training
    learners = {name: hyperparameters(config, name) for name in config.training.algorithms}
    statistics = training.penalised_statistics or training.statistics
    clocks = clock_warnings(dataset, statistics, learners)
    directory.update_record(warnings=clocks)
    for sentence in [*data_warnings(statistics, training.spec), *clocks]:
        reporter.print_line(f"{path.name}: {sentence}")
    if isinstance(training, StreamedData):
        reporter.print_line(streamed_sentence(path, config.data.memory, training))
    reporter.end(f"{dataset.n_rows} rows, {dataset.n_episodes} episodes")
    return experience


def store_log(run: ResolvedRun, session: Session, dataset: Dataset) -> None:
    """Gives a log that was already read to a run that learns from the same one.

    Raises:
        InputError: If the run began with another log.
    """
    _collect(run, session)
    _record(run, session, dataset, run.source.log_file(session.directory.dataset))


def _collect(run: ResolvedRun, session: Session) -> None:
    """Writes the log of a plant into the run directory."""
    if not isinstance(run.source, PlantSource):
        return
    config, directory, reporter = run.config, session.directory, session.reporter
    require_memory_for_log(run.source.name, run.spec, config.data.steps)
    reporter.stage(f"collecting {config.data.steps} steps of {run.source.name}")
    run.kind.take_log(run, directory)
    with session.timings.stage("collect or copy the log"):
        collected_log(config.data, directory.dataset, reporter.note)


BYTES_OF_VALUE = 4


def require_memory_for_log(plant: str, spec: Spec, steps: int) -> None:
    """Refuses a log that would not fit into memory, before its first step is simulated."""
    values = 2 * spec.n_obs + spec.n_action + spec.n_cost + 1
    needed, available = float(BYTES_OF_VALUE * values * steps), machine_memory()
    if needed > available:
        raise InputError(
            f"{steps} steps of {plant} take {memory_text(needed)} of memory, and this machine has "
            f"{memory_text(available)}; set a smaller data.steps, or record several files with "
            f"`neorl-envs collect {plant} --steps {steps} --shard-rows 1000000 --out "
            "log.shards.json` and run on log.shards.json"
        )


def _record(run: ResolvedRun, session: Session, dataset: Dataset, path: Path) -> None:
    """Records the identity of the log, and refuses one with which the run did not begin."""
    directory = session.directory
    expected = directory.record().get("dataset", {}).get("content_hash", dataset.content_hash)
    if expected != dataset.content_hash:
        raise InputError(
            f"{path} is not the log that this run was started with "
            f"({dataset.content_hash[:20]}..., expected {expected[:20]}...); restore it, or start "
            "a new run"
        )
    directory.update_record(
        dataset={
            "file": path.name if path == directory.dataset else str(path),
            "content_hash": dataset.content_hash,
            "rows": dataset.n_rows,
            "episodes": dataset.n_episodes,
            "streamed": is_streamed(run.config.data, path),
        }
    )


def _train_all(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    controllers: dict[str, Policy],
    tracker: Tracker,
) -> dict[str, Learned]:
    """Trains the algorithms one after another; returns their results by name.

    One that diverges, now or before the run was resumed, is named in one line and passed over.
    """
    training, directory = run.config.training, session.directory
    diverged = directory.record().get(DIVERGED, {})
    text_of_leader(" ".join(diverged))
    for line in diverged_sentences(diverged):
        session.reporter.print_line(f"not trained again: {line}")
    validation = validation_of(run, experience)
    records = Records(session.directory.metrics)
    learned: dict[str, Learned] = {}
    line = session.directory.resume_line()
    advice = f"continue from the last checkpoint, in all processes, with\n{line}"
    try:
        for name in training.algorithms:
            if name in diverged:
                continue
            watcher = RunWatcher(
                name,
                training.seeds,
                training.updates,
                records=records,
                reporter=session.reporter,
                tracker=tracker,
                timings=session.timings,
                profile=session.profile,
            )
            stage = session.timings.stage(f"train {name}")
            try:
                with stage, session.stop.later(), lost_in_one_line(advice):
                    task = task_of(run, session, experience, name, watcher, validation, controllers)
                    learned[name] = run.kind.train(task, run, experience)
            except DivergedError as error:
                diverged = record_diverged(directory, name, error)
                session.reporter.end()
                if len(training.algorithms) > 1:  # a single one ends the run with this line
                    session.reporter.print_line(diverged_sentences(diverged)[-1])
                session.stop.check()
                continue
            session.stop.check()
            if several() and not learned[name].trained.finished:
                raise InterruptedRunError(SIGNALS[-1])  # another process was asked to stop
            session.reporter.end()
            _save_policies(run, session, experience, name, learned[name].trained)
    finally:
        session.profile.end()
        records.close()
    return learned


def task_of(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    name: str,
    watcher: RunWatcher,
    validation: PolicyValidation,
    controllers: dict[str, Policy],
) -> Task:
    """Inputs for training one learner."""
    config, print_line = run.config, session.reporter.print_line
    content = _content_hash(experience)
    own = run_checkpoints(
        session.directory, config.checkpoints, config_hash(config), name, content, print_line
    )
    return Task(
        name=name,
        learner=hyperparameters(config, name),
        seeds=config.training.seeds,
        plan=plan_of(config),
        watcher=watcher,
        checkpoints=checkpoints_for_all(own),
        validate=validation,
        stop=stop_of_all(session.stop.requested),
        controllers=controllers,
        print_line=print_line,
    )


def validation_of(run: ResolvedRun, experience: Experience | None) -> PolicyValidation:
    """The validation that evaluates policies during training."""
    evaluation = run.config.evaluation
    key = curve_key(evaluation.seed)
    starts = evaluation.curve_starts
    held_out = None if experience is None else experience.held_out
    penalty_weights = [run.config.penalty.get(channel.name, 0.0) for channel in run.spec.cost]
    first = evaluation.seed + MAX_STARTS  # no episode of the evaluation has one of these seeds
    return PolicyValidation(
        held_out,
        run.environment,
        key=key,
        starts=starts,
        penalty_weights=penalty_weights,
        judge=run.judge,
        judge_seeds=range(first, first + starts),
    )


def _content_hash(experience: Experience | None) -> str:
    """Content hash of the log; empty if none is recorded."""
    return "" if experience is None else experience.dataset.content_hash


def _observations(run: ResolvedRun, experience: Experience | None) -> np.ndarray:
    return parity_observations(
        None if experience is None else experience.dataset.transitions, run.environment
    )


def _record_exploration(run: ResolvedRun, session: Session, learned: Mapping[str, Learned]) -> None:
    """Records what happened on the plant while learners were trained on it."""
    costs = [channel.name for channel in run.spec.cost]
    lines = [
        f"{name} took {sum(seed.steps for seed in result.collected)} steps on the simulated plant "
        f"while it learned: {exploration_summary(result.collected, costs)}"
        for name, result in learned.items()
        if result.collected
    ]
    if lines:
        session.directory.update_record(exploration=lines)


def _save_policies(
    run: ResolvedRun, session: Session, experience: Experience | None, name: str, trained: Trained
) -> None:
    directory, record = session.directory, session.directory.record()
    plain = config_to_dict(run.config)
    description = {
        "hyperparameters": plain["algorithms"][name],
        "origin": origin_of(ALGORITHMS, name),
        "updates": run.config.training.updates if trained.best is None else trained.best,
        "fine_tunes": run.kind.fine_tunes,
        "penalty": plain["penalty"],
        "source": run.config.data.source,
        "constants": run.config.data.constants,
        "dataset_hash": _content_hash(experience),
        "config_hash": record["config_hash"],
        "run": record["id"],
    }
    if trained.best is not None:
        session.reporter.print_line(
            f"{name} is judged after {trained.best} of {trained.step} updates, where its actions "
            "were nearest to those of the held-out episodes (checkpoints.best)"
        )
    by_seed = dict(zip(trained.seeds, trained.policies, strict=True))
    observations = _observations(run, experience)
    digests = write_policies(directory, name, by_seed, run.spec, observations, description)
    directory.update_record(policies=record.get("policies", {}) | digests)


def _evaluate(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    pool: Pool,
    controllers: dict[str, Policy],
    candidate: str,
    guarding: dict[str, Any],
) -> Evaluation:
    """Evaluates all policies, on the plant or beside the log."""
    settings = run.config.evaluation
    starts: dict[str, int] = {"seed": settings.seed, "starts": settings.starts}
    if run.environment is not None:
        count = f"{len(pool)} {'policy' if len(pool) == 1 else 'policies'}"
        session.reporter.stage(f"evaluating {count} in {settings.starts} paired episodes")
    else:
        session.reporter.stage(f"comparing with the log: {', '.join(pool.policies)}")
    if run.judge is not None:
        session.reporter.stage(f"scoring in {settings.starts} episodes of {run.judge.name}")
    return evaluate_candidates(
        run, pool, experience, controllers, guarding, candidate=candidate, **starts
    )


def _remark(run: ResolvedRun, session: Session, candidate: str, lost: str) -> str:
    """What a verdict adds on a candidate that has not learned, or takes a diverged one's place.

    ``lost`` is the configured candidate if that diverged, else empty.
    """
    records = list(read_records(session.directory.metrics))
    late = unconverged(records, config_to_dict(run.config)["algorithms"])
    found = late, without_safe_actions(records)
    remarks = [f"{each[candidate]}." for each in found if candidate in each]
    remarks += [f"{lost} diverged, so {candidate} is judged in its place."] if lost else []
    return " ".join(remarks)


def _save_results(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    learned: Mapping[str, Learned],
    evaluation: Evaluation,
    prediction: LogPrediction | None,
    remark: str,
) -> None:
    """Writes the evaluation with its verdict, preceded by the results of a fine-tuning.

    ``remark`` is added to the sentence of the verdict.
    """
    from neorl_train.judging._rule import verdict

    path, validation = session.directory.path, validation_of(run, experience)
    if run.kind.fine_tunes:
        metrics = session.directory.metrics
        results = fine_tuning_results(learned, run, evaluation, validation, metrics)
        write_fine_tuning(path, results)
    run_verdict = verdict(evaluation.tables)
    if run.environment is None and prediction is not None:
        run_verdict = trial_verdict(evaluation.tables, prediction)
    sentence = f"{run_verdict.sentence} {remark}".rstrip()
    write_results(path, evaluation, replace(run_verdict, sentence=sentence))


def _save_guard(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    controllers: dict[str, Policy],
    watches: list[NamedMonitor],
) -> dict[str, Any]:
    """Writes the guard of a run and returns it in the form that an evaluation takes."""
    config, spec = run.config, run.spec
    fallback_list = fallback_policies(config.fallback, run.environment, spec, controllers)
    constraints = hard_constraints(config.limits, spec)
    fallbacks = dict(zip(fallback_names(len(fallback_list)), fallback_list, strict=True))
    settings = guard_settings(config.supervisor, config.monitors, spec, watches, list(fallbacks))
    observations = _observations(run, experience)
    write_guard_files(session.directory, constraints, fallbacks, settings, spec, observations)
    held_out = None if experience is None else experience.held_out
    session.directory.update_record(
        supervision=describe_settings(settings, spec),
        monitors=monitor_records(watches, held_out, spec),
    )
    return {"constraints": constraints, "fallbacks": fallbacks, "settings": settings}


def write_run_report(run: RunDirectory, reporter: Reporter, timings: Timings) -> None:
    """Writes the report of an evaluated run."""
    from neorl_train.pages import write_report

    reporter.stage("writing the report")
    with timings.stage("report"):
        write_report(run.path)
    reporter.end()
