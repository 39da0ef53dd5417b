"""Numbered run directories: one command at a time, and always resumable."""

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neorl_train._errors import BadInputError
from neorl_train.runs._files import is_full_disk, write_json, write_text

SCHEMA = 1
CONFIG, RECORD, METRICS, LOCK = "config.toml", "run.json", "metrics.jsonl", "run.lock"
DATASET, POLICIES, CHECKPOINTS = "dataset.h5", "policies", "checkpoints"


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """Where one run keeps everything.

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
        """The truth of the run, line by line."""
        return self.path / METRICS

    @property
    def dataset(self) -> Path:
        """The collected log; absent where the log is a file elsewhere."""
        return self.path / DATASET

    def checkpoints(self, algorithm: str) -> Path:
        """The checkpoints of one algorithm."""
        return self.path / CHECKPOINTS / algorithm

    def policy(self, algorithm: str, seed: int) -> Path:
        """The policy artefact of one trained seed."""
        return self.path / POLICIES / f"{algorithm}-{seed}.safetensors"

    @property
    def fallback(self) -> Path:
        """The artefact of the controller that takes over where a guard falls back."""
        return self.path / POLICIES / "fallback.safetensors"

    def record(self) -> dict[str, Any]:
        """What ``run.json`` says.

        Raises:
            BadInputError: If the folder is no run directory, or the file is damaged.
        """
        path = self.path / RECORD
        if not self.path.is_dir():
            raise BadInputError(
                f"{self.path}: no such run directory; `neorl-train list` names the runs"
            )
        if not path.is_file() or not self.config.is_file():
            missing = RECORD if not path.is_file() else CONFIG
            raise BadInputError(
                f"{self.path} has no {missing}, so it is no run or one that was stopped before it "
                "began; start again with `neorl-train run`"
            )
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise BadInputError(f"{path} is damaged ({error}); restore it or start again") from None
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            found = record.get("schema") if isinstance(record, dict) else type(record).__name__
            raise BadInputError(f"{path} has schema {found!r}, this version reads {SCHEMA}")
        return record

    def update_record(self, **values: Any) -> dict[str, Any]:
        """Writes ``run.json`` with the given top-level values replaced."""
        record = {**self.record(), **values}
        write_json(self.path / RECORD, record)
        return record

    def resume_line(self) -> str:
        """The exact command that continues this run, from any folder."""
        return f"{command_prefix()} resume {shlex.quote(str(self.path))}"


def command_prefix(program: str = "neorl-train") -> str:
    """How a program is called from the user's shell, as far as that can be known."""
    environment = os.environ.get("HATCH_ENV_ACTIVE")
    if environment:
        which = "" if environment == "default" else f"{environment}:"
        return f"python -m hatch run {which}{program}"
    found = shutil.which(program)
    if found and Path(found).parent == Path(sys.executable).parent:
        return program
    return f"{shlex.quote(sys.executable)} -m {program.replace('-', '_')}"


def create_run(runs: Path, config_toml: str, record: dict[str, Any]) -> RunDirectory:
    """Makes the next numbered directory with its configuration and record in place.

    Args:
        runs: Folder of all runs; made where it is missing.
        config_toml: The resolved configuration.
        record: First content of ``run.json``.

    Returns:
        The new directory. Two commands at once get two numbers.

    Raises:
        BadInputError: If the folder of all runs cannot be made.
        OSError: If the run directory cannot be written.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if is_full_disk(error):
            raise
        raise BadInputError(
            f"cannot make the folder {runs}: {error.strerror}; "
            "choose another with --output.directory"
        ) from error
    number = 1 + max((int(path.name) for path in numbered(runs)), default=0)
    while True:
        path = runs.absolute() / f"{number:04d}"
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            break
        number += 1
    run = RunDirectory(path)
    try:
        write_text(run.config, config_toml)
        write_json(path / RECORD, {"schema": SCHEMA, **record})
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return run


def numbered(runs: Path) -> list[Path]:
    """The run directories of a folder, oldest first."""
    if not runs.is_dir():
        return []
    found = [path for path in runs.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


@contextlib.contextmanager
def locked(run: RunDirectory) -> Iterator[None]:
    """Keeps a second process out of a run directory.

    Args:
        run: The directory.

    Raises:
        BadInputError: If another process holds it; its number is named.
    """
    with file_lock(run.path / LOCK, wait=False):
        yield


def holder(run: RunDirectory) -> str | None:
    """The process that works on a run at this moment, as its lock names it; ``None``: nobody.

    The record of a killed run says "running" for ever; its lock ended with the process.
    """
    try:
        descriptor = os.open(run.path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _named(descriptor: int) -> str:
    return os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"


@contextlib.contextmanager
def file_lock(path: Path, *, wait: bool) -> Iterator[None]:
    """Holds a lock that ends with the process, however that ends.

    Args:
        path: The file to lock; made where it is missing, and left there.
        wait: Wait for the present holder instead of refusing.

    Raises:
        BadInputError: If another process holds it and ``wait`` is false.
        OSError: If the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise BadInputError(
                f"{path.parent} is in use by process {_named(descriptor)}; wait for it or stop it"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
