"""The stages of the main job: log, training, policies, evaluation, verdict, report."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from neorl_agents import ALGORITHMS
from neorl_core import Policy
from neorl_safety.guards import describe_settings
from neorl_safety.monitoring import NamedMonitor
from neorl_train._job import processes
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
from neorl_train._process.progress import Reporter, Timings
from neorl_train.candidates._family import Material
from neorl_train.candidates._table import GIVEN, TUNED, make_candidates
from neorl_train.configuration._guard import fallback_policies
from neorl_train.configuration._sections import (
    MAX_STARTS,
    CandidateConfig,
    config_hash,
    config_to_dict,
    hyperparameters,
)
from neorl_train.data._experience import Experience
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
from neorl_train.training._plan import DivergedError, check_logs, plan_of
from neorl_train.training._processes import (
    all_or_none,
    end_together,
    stop_of_all,
    text_of_leader,
)


def all_stages(run: ResolvedRun, session: Session) -> None:
    """Carries out every stage in turn; stages whose results already exist are cut short."""
    config = run.config
    experience = processes.read_same_log(run, session)
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
    with tracked(run, session) as tracker:
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
                with stage, session.stop.later(), processes.resumable(session):
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
            processes.require_finished(learned[name].trained)
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
        checkpoints=processes.checkpoints_for_all(own),
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
