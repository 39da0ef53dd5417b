"""Trains the learners of several runs in one program; each run then continues by itself."""

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import is_full_disk
from neorl_core.infrastructure.command_line import one_line
from neorl_train._job.diverged import record_diverged, require_a_finished_learner
from neorl_train._job.job import begin_job
from neorl_train._job.kinds import Offline
from neorl_train._job.resolution import reopen
from neorl_train._job.resolved_run import ResolvedRun, Session
from neorl_train._job.stages import read_experience, store_log, task_of, validation_of
from neorl_train._job.watcher import RunWatcher
from neorl_train._process.control import StopSignal
from neorl_train._process.progress import Reporter, Timings
from neorl_train.configuration._sections import (
    Config,
    config_hash,
    config_to_dict,
    hyperparameters,
)
from neorl_train.configuration._validation import configure
from neorl_train.data._experience import Experience
from neorl_train.runs._directory import (
    DIVERGED,
    FAILED,
    INTERRUPTED,
    RUNNING,
    RunDirectory,
    locked,
    one_line_when_full,
)
from neorl_train.runs._records import Records
from neorl_train.runs._tracker import NoTracker
from neorl_train.training._plan import DivergedError
from neorl_train.training._together import Setting, program_key, train_together


@dataclasses.dataclass(frozen=True, eq=False)
class JointRun:
    """One of several runs whose learners are trained together.

    Attributes:
        name: Its name among them.
        config: Configuration as given by the user.
        extra: Additional entries for the record of a new run.
        run: Directory of an interrupted run; ``None`` for a new one.
    """

    name: str
    config: Config
    extra: Mapping[str, Any]
    run: RunDirectory | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class _OpenRun:
    name: str
    resolved_run: ResolvedRun
    session: Session
    is_new: bool


def joint_key(config: Config) -> Hashable | None:
    """Runs with equal keys can be trained together: only numbers of their learners differ.

    It is ``None`` for a run that is not trained on a log.
    """
    if config.finetune.run or config.training.on != "log":
        return None
    if config.devices.batch > 1:  # devices that share a batch run one training at a time
        return None
    plain = {name: value for name, value in config_to_dict(config).items() if name != "algorithms"}
    try:
        programs = [
            program_key(hyperparameters(config, name), config.training.updates)
            for name in config.training.algorithms
        ]
    except (TypeError, ValueError):  # the run itself reports what is wrong with it
        return None
    return json.dumps(plain, sort_keys=True, default=str), tuple(programs)


def train_runs_together(jobs: Sequence[JointRun], reporter: Reporter) -> dict[str, str]:
    """Trains the learners of several runs in one program, up to their last checkpoints.

    Each run has its own directory with the records and the checkpoints that it would have alone, so
    that resuming it writes the policies, the evaluation and the report without further training. A
    run whose training fails records this, and the others continue.

    Returns:
        Reason in one line for each run that failed, by name.

    Raises:
        InputError: If the log cannot be read or split; new run directories are removed.
        InterruptedRunError: After a signal; every run can be resumed.
    """
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopSignal(reporter.print_line))
        open_runs: list[_OpenRun] = []
        for job in jobs:
            try:
                open_run = _open(job, stop)
                stack.enter_context(locked(open_run.session.directory))
                open_runs.append(open_run)
            except InputError as error:
                failed[job.name] = one_line(error)
        try:
            with one_line_when_full("the runs", "start the same command again"):
                failed |= _train(open_runs, stop, reporter)
        except InputError as error:
            full = isinstance(error.__cause__, Exception) and is_full_disk(error.__cause__)
            for open_run in open_runs:
                if open_run.is_new and not full:
                    shutil.rmtree(open_run.session.directory.path, ignore_errors=True)
            raise
        finally:
            reporter.drop()
            _note(open_runs, failed)
    return failed


def _open(job: JointRun, stop: StopSignal) -> _OpenRun:
    quiet = Reporter(quiet=True)
    if job.run is None:
        resolved_run, run = begin_job(job.config, quiet, job.extra)
    else:
        run, config = job.run, configure(job.run.config)
        if run.record()["config_hash"] != config_hash(config):
            raise InputError(
                f"{run.config} was changed since the run was started; restore the file"
            )
        resolved_run = reopen(config)
    return _OpenRun(job.name, resolved_run, Session(run, quiet, stop, Timings()), job.run is None)


def _train(open_runs: Sequence[_OpenRun], stop: StopSignal, reporter: Reporter) -> dict[str, str]:
    failed: dict[str, str] = {}
    shared: Experience | None = None
    for open_run in open_runs:
        open_run.session.directory.update_record(
            status=RUNNING, resume=open_run.session.directory.resume_line(), error=""
        )
        if shared is None:
            shared = read_experience(open_run.resolved_run, open_run.session)
        else:
            store_log(open_run.resolved_run, open_run.session, shared.dataset)
    if shared is None or not all(
        isinstance(open_run.resolved_run.kind, Offline) for open_run in open_runs
    ):
        return failed
    validation = validation_of(open_runs[0].resolved_run, shared)
    for name in open_runs[0].resolved_run.config.training.algorithms:
        running = [
            open_run
            for open_run in open_runs
            if open_run.name not in failed
            and name not in open_run.session.directory.record().get(DIVERGED, {})
        ]
        if not running:
            continue
        with stop.later():
            failed |= _one_learner(name, running, shared, validation, stop, reporter)
        stop.check()
    return failed


def _one_learner(
    name: str,
    open_runs: Sequence[_OpenRun],
    experience: Experience,
    validation: Any,
    stop: StopSignal,
    reporter: Reporter,
) -> dict[str, str]:
    training = open_runs[0].resolved_run.config.training
    total = training.updates * len(training.seeds) * len(open_runs)
    reporter.stage(
        f"training {name}, {len(open_runs)} settings x {len(training.seeds)} seeds together",
        total=total,
        unit="updates/s",
    )
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        settings = []
        for open_run in open_runs:
            records = Records(open_run.session.directory.metrics)
            stack.callback(records.close)
            watcher = RunWatcher(
                name,
                training.seeds,
                training.updates,
                records=records,
                reporter=open_run.session.reporter,
                tracker=NoTracker(),
                timings=open_run.session.timings,
            )
            task = task_of(
                open_run.resolved_run, open_run.session, experience, name, watcher, validation, {}
            )
            settings.append(Setting(task.learner, watcher, task.checkpoints, task.validate))
        results = train_together(
            settings,
            experience.training,
            training.seeds,
            task.plan,
            stop=stop.requested,
            progress=reporter.update,
        )
    reporter.end()
    seconds = round(time.monotonic() - started, 3)
    failed = {}
    for open_run, result in zip(open_runs, results, strict=True):
        record = open_run.session.directory.record()
        together = {
            **record.get("together", {}),
            name: {"runs": len(open_runs), "seconds": seconds},
        }
        open_run.session.directory.update_record(together=together)
        if isinstance(result, DivergedError):  # the run's other learners go on
            diverged = record_diverged(open_run.session.directory, name, result)
            try:
                require_a_finished_learner(training.algorithms, diverged)
            except InputError as error:
                failed[open_run.name] = one_line(error)
        elif isinstance(result, InputError):
            failed[open_run.name] = one_line(result)
    return failed


def _note(open_runs: Sequence[_OpenRun], failed: Mapping[str, str]) -> None:
    """Marks each run as interrupted after its last checkpoint, or as failed."""
    for open_run in open_runs:
        if not open_run.session.directory.path.exists():
            continue
        error = failed.get(open_run.name, "")
        status = FAILED if error else INTERRUPTED
        open_run.session.directory.update_record(status=status, error=error[:500])
