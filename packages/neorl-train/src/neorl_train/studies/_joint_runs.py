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
from neorl_train._pipeline.job import begin_job
from neorl_train._pipeline.kinds import Offline
from neorl_train._pipeline.log_stage import leave_log, read_experience
from neorl_train._pipeline.resolution import reopened
from neorl_train._pipeline.resolved_run import ResolvedRun, Session
from neorl_train._pipeline.stages import task_of, validation_of
from neorl_train._pipeline.watcher import RunWatcher
from neorl_train._process.progress import Reporter
from neorl_train._process.signals import StopSignal
from neorl_train._process.timings import Timings
from neorl_train.configuration._configure import configure
from neorl_train.configuration._sections import (
    Config,
    config_hash,
    config_to_dict,
    hyperparameters,
)
from neorl_train.experience._experience import Experience
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._disk_space import one_line_when_full
from neorl_train.runs._lock import locked
from neorl_train.runs._names import FAILED, INTERRUPTED, RUNNING
from neorl_train.runs._records import Records
from neorl_train.runs._tracker import NoTracker
from neorl_train.training._together import Setting, program_key, train_together


@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """One of several runs whose learners are trained together.

    Attributes:
        name: Its name among them.
        config: Configuration as given by the user.
        about: Additional entries for the record of a new run.
        run: Directory of an interrupted run; ``None`` for a new one.
    """

    name: str
    config: Config
    about: Mapping[str, Any]
    run: RunDirectory | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class _Opened:
    name: str
    complete: ResolvedRun
    session: Session
    new: bool


def joint_key(config: Config) -> Hashable | None:
    """Runs with equal keys can be trained together: only numbers of their learners differ.

    Args:
        config: Configuration, after the checks that need no data.

    Returns:
        The key; ``None`` for a run that is not trained on a log.
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


def train_runs_together(jobs: Sequence[Joint], reporter: Reporter) -> dict[str, str]:
    """Trains the learners of several runs in one program, up to their last checkpoints.

    Each run has its own directory with the records and the checkpoints that it would have alone, so
    that resuming it writes the policies, the evaluation and the report without further training. A
    run whose training fails records this, and the others continue.

    Args:
        jobs: The runs, all with the same :func:`joint_key`.
        reporter: Progress reporter.

    Returns:
        Reason in one line for each run that failed, by name.

    Raises:
        InputError: If the log cannot be read or split; new run directories are removed.
        InterruptedRunError: After a signal; every run can be resumed.
    """
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopSignal(reporter.say))
        opened: list[_Opened] = []
        for job in jobs:
            try:
                one = _open(job, stop)
                stack.enter_context(locked(one.session.directory))
                opened.append(one)
            except InputError as error:
                failed[job.name] = one_line(error)
        try:
            with one_line_when_full("the runs", "start the same command again"):
                failed |= _train(opened, stop, reporter)
        except InputError as error:
            full = isinstance(error.__cause__, Exception) and is_full_disk(error.__cause__)
            for one in opened:
                if one.new and not full:
                    shutil.rmtree(one.session.directory.path, ignore_errors=True)
            raise
        finally:
            reporter.drop()
            _note(opened, failed)
    return failed


def _open(job: Joint, stop: StopSignal) -> _Opened:
    quiet = Reporter(quiet=True)
    if job.run is None:
        complete, run = begin_job(job.config, quiet, job.about)
    else:
        run, config = job.run, configure(job.run.config)
        if run.record()["config_hash"] != config_hash(config):
            raise InputError(f"{run.config} was changed since the run began; restore the file")
        complete = reopened(config)
    return _Opened(job.name, complete, Session(run, quiet, stop, Timings()), job.run is None)


def _train(opened: Sequence[_Opened], stop: StopSignal, reporter: Reporter) -> dict[str, str]:
    failed: dict[str, str] = {}
    shared: Experience | None = None
    for one in opened:
        one.session.directory.update_record(
            status=RUNNING, resume=one.session.directory.resume_line(), error=""
        )
        if shared is None:
            shared = read_experience(one.complete, one.session)
        else:
            leave_log(one.complete, one.session, shared.dataset)
    if shared is None or not all(isinstance(one.complete.kind, Offline) for one in opened):
        return failed
    validation = validation_of(opened[0].complete, shared)
    for name in opened[0].complete.config.training.algorithms:
        running = [one for one in opened if one.name not in failed]
        with stop.later():
            failed |= _one_learner(name, running, shared, validation, stop, reporter)
        stop.check()
    return failed


def _one_learner(
    name: str,
    opened: Sequence[_Opened],
    experience: Experience,
    validation: Any,
    stop: StopSignal,
    reporter: Reporter,
) -> dict[str, str]:
    training = opened[0].complete.config.training
    total = training.updates * len(training.seeds) * len(opened)
    reporter.stage(
        f"training {name}, {len(opened)} settings x {len(training.seeds)} seeds together",
        total=total,
        unit="updates/s",
    )
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        settings = []
        for one in opened:
            records = Records(one.session.directory.metrics)
            stack.callback(records.close)
            watcher = RunWatcher(
                name,
                training.seeds,
                training.updates,
                records=records,
                reporter=one.session.reporter,
                tracker=NoTracker(),
                timings=one.session.timings,
            )
            task = task_of(one.complete, one.session, experience, name, watcher, validation, {})
            settings.append(Setting(task.learner, watcher, task.checkpoints, task.validate))
        ended = train_together(
            settings,
            experience.training,
            training.seeds,
            task.plan,
            stop=stop.requested,
            progress=reporter.update,
        )
    reporter.end()
    seconds = round(time.monotonic() - begun, 3)
    failed = {}
    for one, result in zip(opened, ended, strict=True):
        record = one.session.directory.record()
        together = {**record.get("together", {}), name: {"runs": len(opened), "seconds": seconds}}
        one.session.directory.update_record(together=together)
        if isinstance(result, InputError):
            failed[one.name] = one_line(result)
    return failed


def _note(opened: Sequence[_Opened], failed: Mapping[str, str]) -> None:
    """Marks each run as interrupted after its last checkpoint, or as failed."""
    for one in opened:
        if not one.session.directory.path.exists():
            continue
        error = failed.get(one.name, "")
        status = FAILED if error else INTERRUPTED
        one.session.directory.update_record(status=status, error=error[:500])
