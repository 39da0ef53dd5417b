"""Numbered run directories: their files by name, one command at a time, and always resumable."""

import contextlib
import dataclasses
import errno
import json
import os
import re
import shlex
import shutil
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import lock_descriptor, unlock_descriptor

from neorl_core import InputError
from neorl_core.infrastructure import check_head, head, is_full_disk, write_json, write_text
from neorl_core.infrastructure.command_line import command_prefix

CONFIG, RECORD, METRICS, LOCK = "config.toml", "run.json", "metrics.jsonl", "run.lock"
DATASET, POLICIES, CHECKPOINTS = "dataset.h5", "policies", "checkpoints"
FALLBACK, CONSTRAINTS, GUARD = "fallback", "constraints.json", "guard.json"
EVALUATION, TRACES, VERDICT = "evaluation.json", "traces.json", "verdict.json"
FINE_TUNING = "finetune.json"
LOOPS = "loops.json"
REPORT, BUNDLE = "report.html", "policy.bundle"
EVALUATIONS, STARTS = "evaluations", "starts.json"
PROFILE = "profile"
DIVERGED = "diverged"
"""Field of the record: the learners that diverged, by name."""

LOG_CACHE, BASELINE_CACHE = "logs", ".baselines"
MLFLOW_DATABASE, MLFLOW_ARTIFACTS, MLFLOW_LOCK = "mlflow.db", "mlflow-artifacts", "mlflow.lock"

RUNNING, INTERRUPTED, FAILED, FINISHED = "running", "interrupted", "failed", "finished"
STOPPED = "stopped"
"""Status of a run whose record says "running" but on which no process works."""


def fallback_names(count: int) -> list[str]:
    """Names of the artefacts of several fallbacks in order: ``fallback``, ``fallback-2``, ..."""
    return [FALLBACK, *(f"{FALLBACK}-{i}" for i in range(2, count + 1))]


def policy_file(name: str) -> str:
    """Path of a policy's artefact in a run.

    It has forward slashes on every system.
    """
    return f"{POLICIES}/{name}.safetensors"


def file_name(name: str) -> str:
    """A name, with the characters replaced that a file name must not contain.

    Example:
        >>> file_name("PID 106/1500")
        'PID 106_1500'
    """
    return re.sub(r"[^\w. +()-]", "_", name)


VERSION = 1
"""Version of ``run.json``."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """Directory of one run, which holds all its files.

    Attributes:
        path: Absolute path of the folder.
    """

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / CONFIG

    @property
    def metrics(self) -> Path:
        """The complete metrics of the run, line by line."""
        return self.path / METRICS

    @property
    def dataset(self) -> Path:
        """The collected log; absent if the log is a file elsewhere."""
        return self.path / DATASET

    def checkpoints(self, algorithm: str) -> Path:
        """The checkpoints of one algorithm."""
        return self.path / CHECKPOINTS / algorithm

    def policy(self, algorithm: str, seed: int) -> Path:
        """The policy artefact of one trained seed."""
        return self.path / policy_file(f"{algorithm}-{seed}")

    @property
    def fallback(self) -> Path:
        """The artefact of the controller that acts if the guard falls back."""
        return self.path / policy_file(FALLBACK)

    def record(self) -> dict[str, Any]:
        """Content of ``run.json``, without its head.

        Raises:
            InputError: If the folder is not a run directory, or the file is damaged.
        """
        path = self.path / RECORD
        if self.path.is_file():
            raise InputError(
                f"{self.path} is a file, not a run; `neorl-train run {self.path}` "
                "starts one from a log, and `neorl-train list` names the runs"
            )
        if not self.path.is_dir():
            raise InputError(
                f"{self.path}: there is no such run directory; `neorl-train list` names the runs"
            )
        if not path.is_file() or not self.config.is_file():
            missing = RECORD if not path.is_file() else CONFIG
            raise InputError(
                f"{self.path} has no {missing}, so it is not a run directory, or its run was "
                "stopped before it started; start again with `neorl-train run`"
            )
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise InputError(
                f"{path} is damaged ({error}); restore it or start a new run"
            ) from None
        return check_head(record, "run", VERSION, str(path))

    def update_record(self, **values: Any) -> dict[str, Any]:
        """Replaces the given top-level values in ``run.json``."""
        record = {**self.record(), **values}
        write_json(self.path / RECORD, {**head("run", VERSION), **record})
        return record

    def resume_line(self) -> str:
        """The exact command that continues this run from any folder."""
        return f"{command_prefix('neorl-train')} resume {shlex.quote(str(self.path))}"


def create_run(runs: Path, config_toml: str, record: dict[str, Any]) -> RunDirectory:
    """Creates the next numbered directory with its configuration and record.

    Args:
        runs: Folder of all runs; created if it is missing.
        config_toml: The resolved configuration.
        record: Initial content of ``run.json``.

    Returns:
        The new directory. Two simultaneous commands get different numbers.

    Raises:
        InputError: If the folder of all runs cannot be created.
        OSError: If the run directory cannot be written.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if is_full_disk(error):
            raise
        raise InputError(
            f"cannot make the folder {runs}: {error.strerror}; "
            "choose another with --output.directory"
        ) from error
    number = 1 + max((int(path.name) for path in numbered_runs(runs)), default=0)
    while True:
        path = runs.absolute() / f"{number:04d}"
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            break
        number += 1
    return fill_run(path, config_toml, record)


def fill_run(path: Path, config_toml: str, record: dict[str, Any]) -> RunDirectory:
    """Writes configuration and record into an empty folder, which makes it a run.

    The folder is removed if they cannot be written.

    Raises:
        OSError: If it cannot be written.
    """
    run = RunDirectory(path)
    try:
        write_text(run.config, config_toml)
        write_json(path / RECORD, {**head("run", VERSION), **record})
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return run


def earlier_verdicts(run: Path) -> int:
    """Number of earlier runs in the same folder that were judged on the same source.

    Keeping the best of several runs selects it by its verdict.
    """
    earlier = [path for path in numbered_runs(run.parent) if path.name < run.name]
    judged = [path for path in earlier if (path / VERDICT).is_file()]
    source = _source(run)
    return sum(bool(source) and _source(path) == source for path in judged)


def _source(run: Path) -> str:
    """Source of a run; empty if its configuration cannot be read."""
    try:
        data = tomllib.loads((run / CONFIG).read_text(encoding="utf-8")).get("data", {})
    except (OSError, ValueError):
        return ""
    return str(data.get("source", ""))


def numbered_runs(runs: Path) -> list[Path]:
    """The run directories in a folder, oldest first."""
    if not runs.is_dir():
        return []
    directories = [path for path in runs.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(directories, key=lambda path: int(path.name))


PATIENCE = 0.5
"""Seconds until a lock counts as held, because a process that only checks it holds it briefly."""


@contextlib.contextmanager
def locked(run: RunDirectory) -> Iterator[None]:
    """Excludes a second process from a run directory.

    Args:
        run: The directory.

    Raises:
        InputError: If another process holds the lock; the message gives its number.
    """
    with file_lock(run.path / LOCK):
        yield


def holder(run: RunDirectory) -> str | None:
    """The process that works on a run at this moment, according to its lock; ``None`` for nobody.

    The record of a killed run says "running" forever, but its lock ended with the process.

    Args:
        run: The directory; nothing is written to it.
    """
    try:
        descriptor = os.open(run.path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        # Two simultaneous checks may see each other's lock, so a held lock is checked twice.
        for pause in (0.0, 0.01):
            time.sleep(pause)
            if lock_descriptor(descriptor, blocking=False):
                unlock_descriptor(descriptor)
                return None
        return _process_of(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def file_lock(path: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Holds a lock that ends with the process, however that ends.

    Args:
        path: The file to lock; created if it is missing, and left in place. It contains the process
            number.
        patience: Seconds to wait for the present holder before refusing.

    Raises:
        InputError: If another process holds it for all that time.
        OSError: If the file cannot be opened, or the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _acquired(descriptor, patience):
            raise InputError(
                f"{path.parent} is in use by process {_process_of(descriptor)}; wait for it or "
                "stop it"
            )
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        # Windows keeps other processes from reading a locked first byte, so the number follows it.
        os.write(descriptor, f" {os.getpid()}\n".encode())
        try:
            yield
        finally:
            unlock_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _acquired(descriptor: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not lock_descriptor(descriptor, blocking=False):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _process_of(descriptor: int) -> str:
    os.lseek(descriptor, 1, os.SEEK_SET)
    return os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"


def require_free_space(folder: Path, size: int) -> None:
    """Fails before anything is written if ``size`` more bytes would not fit.

    Raises:
        OSError: If the disk is full or the size is above the process's limit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is None:  # Windows, macOS
        if shutil.disk_usage(folder).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        return
    probe = folder / ".free-space"
    with probe.open("wb") as file:
        try:
            # Checking only free blocks would not suffice: quotas and process limits apply too.
            allocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            if is_full_disk(error):
                raise
        finally:
            probe.unlink(missing_ok=True)


@contextlib.contextmanager
def one_line_when_full(what: str, advice: str) -> Iterator[None]:
    """Turns the errors of a full disk into one line, which names the file if it is known.

    Args:
        what: Name of what was being written, for example ``"checkpoint 4000 of iql"``.
        advice: What to do once there is free space.
    """
    try:
        yield
    except Exception as error:
        if is_full_disk(error):
            file = getattr(error, "filename", None)
            which = "" if file is None else f" ({file})"
            raise InputError(
                f"no free disk space to write {what}{which}; free some space, then {advice}"
            ) from error
        raise
