"""The main job: from a data source to policies, a verdict and a report."""

import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_core.infrastructure import cache_fault, is_full_disk
from neorl_core.infrastructure.command_line import one_line
from neorl_envs.scoring import GymnasiumJudge
from neorl_train._job.evaluation import is_complete
from neorl_train._job.resolution import Resolved, judge_origin, origin_of, reopen, resolve
from neorl_train._job.resolved_run import ResolvedRun, Session
from neorl_train._job.stages import all_stages
from neorl_train._job.watcher import READY
from neorl_train._process.control import InterruptedRunError, StopSignal
from neorl_train._process.progress import Profile, Reporter, Timings
from neorl_train.configuration._sections import Config, config_hash, config_to_dict, dump_toml
from neorl_train.configuration._validation import validate
from neorl_train.runs._directory import (
    DIVERGED,
    FAILED,
    FINISHED,
    INTERRUPTED,
    PROFILE,
    RECORD,
    RUNNING,
    RunDirectory,
    create_run,
    locked,
    one_line_when_full,
)
from neorl_train.training._processes import LostProcessError, all_or_none, text_of_leader
from neorl_train.training._queues import execution_mode

FIRST_STAGE = "check the configuration, read the log of a file"
"""Name in the timings for everything before the stages of a run."""


def run_job(
    config: Config,
    reporter: Reporter,
    timings: Timings,
    extra: Mapping[str, Any] | None = None,
    *,
    profile: bool = False,
) -> RunDirectory:
    """Runs a new job; nothing is written until every value has been checked.

    Problems that only the log can reveal, such as too few episodes for a promised error rate, are
    detected before training begins, and then no run directory is left behind either.

    Raises:
        InputError: In one line; if training had begun, the run directory stays and can be resumed.
        InterruptedRunError: After a signal; the run can be resumed.
    """
    with all_or_none("begin the run"), timings.stage(FIRST_STAGE):
        resolved_run, run = begin_job(config, reporter, extra)
    with _remove_unless_started(run, timings):
        return continue_run(resolved_run, run, reporter, timings, profile=profile)


def begin_job(
    config: Config, reporter: Reporter, extra: Mapping[str, Any] | None = None
) -> tuple[ResolvedRun, RunDirectory]:
    """Checks every value and creates the directory of a new run, without carrying anything out."""
    validate(config)
    resolution = resolve(config)
    config, record = resolution.run.config, {**(extra or {}), **first_record(resolution)}
    with one_line_when_full("the run directory", "start again"):
        run = create_run(Path(config.output.directory), dump_toml(config_to_dict(config)), record)
    reporter.note(f"run {run.path}")
    if fault := cache_fault():
        reporter.print_line(fault)
    for note in resolution.notes:
        reporter.print_line(note)
    return resolution.run, run


@contextmanager
def _remove_unless_started(run: RunDirectory, timings: Timings) -> Iterator[None]:
    """Removes a new run that was refused, because with other settings it could not be resumed.

    A full disk does not count as a refusal: the same run can continue once there is space.
    """
    try:
        yield
    except InputError as error:
        full = isinstance(error.__cause__, Exception) and is_full_disk(error.__cause__)
        if READY in timings.moments or full:
            raise
        shutil.rmtree(run.path, ignore_errors=True)
        reason = f"{one_line(error)}; nothing was trained, and {run.path} is removed"
        raise InputError(reason) from error


def resume_job(
    run: RunDirectory,
    config: Config,
    reporter: Reporter,
    timings: Timings,
    *,
    profile: bool = False,
) -> RunDirectory:
    """Continues a job from its last checkpoints, with bit-identical results.

    A finished run whose results are complete is left unchanged; if a result is missing or damaged,
    the run is evaluated again.

    Raises:
        InputError: As in :func:`run_job`; also if the configuration was changed.
    """
    with all_or_none("resume the run"):
        _require_resumable(run, config)
        with timings.stage(FIRST_STAGE):
            resolved_run = None if is_complete(run) else _reopen(run, config, reporter)
    if resolved_run is None:
        reporter.print_line(
            f"run {run.path} is finished and its results are complete; there is nothing to do"
        )
        text_of_leader("")
        return run
    return continue_run(resolved_run, run, reporter, timings, profile=profile)


def _require_resumable(run: RunDirectory, config: Config) -> None:
    """Refuses a run whose configuration was changed, and a site of a federation."""
    record = run.record()
    validate(config)
    if record["config_hash"] != config_hash(config):
        raise InputError(
            f"{run.config} was changed since the run began, so its checkpoints do not belong to "
            "it; restore the file, or start a new run with the changed one"
        )
    if record.get("federation"):
        raise InputError(
            f"{run.path} is a site of a federation; continue the federation with `neorl-train "
            f"federate {record['federation']}`"
        )


def _reopen(run: RunDirectory, config: Config, reporter: Reporter) -> ResolvedRun:
    resolved_run = reopen(config)
    note_other_versions(run, run.record(), reporter, resolved_run.judge)
    return resolved_run


PACKAGES = ("jax", "neorl-core", "neorl-envs", "neorl-safety", "neorl-agents", "neorl-train")
"""Distributions whose versions influence a run."""


def note_other_versions(
    run: RunDirectory,
    record: Mapping[str, Any],
    reporter: Reporter,
    judge: GymnasiumJudge | None = None,
) -> None:
    """Reports and records versions, learners and a judge that differ from the beginning."""
    known = record.get("origins", {})
    known = known.get("environment", {}) | known.get("algorithm", {})
    now = {name: origin_of(ALGORITHMS, name) for name in record["algorithms"]}
    now |= {} if judge is None else {judge.name: judge_origin(judge)}
    began = record["versions"] | {name: known[name] for name in now if name in known}
    versions = _versions() | {name: origin for name, origin in now.items() if origin}
    last = (record.get("resumed_with") or [{}])[-1].get("versions", began)
    if versions != last:
        entry = {"time": _now(), "versions": versions, "commit": source_commit()}
        run.update_record(resumed_with=[*record.get("resumed_with", []), entry])
    changed = [
        f"{name} {began.get(name, 'unknown')}, this is {version}"
        for name, version in versions.items()
        if began.get(name) != version
    ]
    if changed:
        reporter.print_line(
            f"the run was started with {'; '.join(changed)}, so its results will not be "
            "bit-identical"
        )


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in PACKAGES}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def source_commit() -> str:
    """Commit of the checkout that contains this code; empty if it was installed from a wheel."""
    this_file = Path(__file__)
    # A virtual environment may lie in an unrelated checkout, which does not track this file.
    git_commands = (["ls-files", "--error-unmatch", this_file.name], ["rev-parse", "HEAD"])
    answer = ""
    for arguments in git_commands:
        try:
            process = subprocess.run(
                ["git", "-C", str(this_file.parent), *arguments],
                capture_output=True,
                text=True,
                timeout=SECONDS_FOR_GIT,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        answer = process.stdout.strip()
    return answer


SECONDS_FOR_GIT = 5.0


def first_record(complete: Resolved) -> dict[str, Any]:
    """The record of a run before any stage has run."""
    config = complete.run.config
    return {
        "id": uuid.uuid4().hex,
        "status": RUNNING,
        "started": _now(),
        "config_hash": config_hash(config),
        "execution_mode": execution_mode(config.devices.batch),
        "devices": len(jax.local_devices()),
        "versions": _versions(),
        "commit": source_commit(),
        "python": sys.version.split()[0],
        "algorithms": list(config.training.algorithms),
        "seeds": list(config.training.seeds) if config.training.algorithms else [],
        **complete.facts,
        DIVERGED: {},
        "controllers": [],
        "changes": [],
        "predicted_movement": [],
        "fine_tunes": complete.run.kind.fine_tunes,
    }


def continue_run(
    resolved_run: ResolvedRun,
    run: RunDirectory,
    reporter: Reporter,
    timings: Timings,
    *,
    profile: bool = False,
) -> RunDirectory:
    """Carries out the rest of a run in its own directory and records how it ended."""
    with locked(run), StopSignal(reporter.print_line) as stop:
        traces = Profile(run.path / PROFILE if profile else None)
        session = Session(run, reporter, stop, timings, traces)
        with (
            _record_status(session),
            one_line_when_full(f"run {run.path.name}", run.resume_line()),
        ):
            run.update_record(status=RUNNING, resume=run.resume_line(), error="")
            text_of_leader(dump_toml(config_to_dict(resolved_run.config)))
            all_stages(resolved_run, session)
    return run


@contextmanager
def _record_status(session: Session) -> Iterator[None]:
    """Records how the run ended."""
    try:
        yield
    except InterruptedRunError as error:
        _update_status(session, INTERRUPTED)
        raise InterruptedRunError(error.signal_number, session.directory.resume_line()) from None
    except LostProcessError as error:
        _update_status(session, INTERRUPTED, error=one_line(error)[:500])
        raise
    except BaseException as error:
        # A full disk is no fault of the run, so a sweep continues it without being asked.
        status = INTERRUPTED if is_full_disk(error) else FAILED
        _update_status(session, status, error=one_line(error)[:500])
        raise
    finally:
        session.reporter.drop()
    _update_status(session, FINISHED, error="")


def _update_status(session: Session, status: str, **values: Any) -> None:
    """Best effort: a disk that cannot store the record must not hide the original error."""
    try:
        session.directory.update_record(status=status, timings=session.timings.to_dict(), **values)
    except (OSError, InputError) as error:
        session.reporter.print_line(f"{RECORD} could not be updated: {one_line(error)}")
