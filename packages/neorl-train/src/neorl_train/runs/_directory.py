"""Numbered run directories: one command at a time, and always resumable."""

import contextlib
import dataclasses
import json
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import check_head, head, is_full_disk, write_json, write_text
from neorl_core.infrastructure.command_line import command_prefix
from neorl_train.runs._names import (
    CHECKPOINTS,
    CONFIG,
    DATASET,
    FALLBACK,
    METRICS,
    RECORD,
    VERDICT,
    policy_file,
)

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
