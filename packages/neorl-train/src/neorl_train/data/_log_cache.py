"""The log of an environment, collected once per user and linked into every run that needs it."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import replacing
from neorl_core.infrastructure.command_line import cache_directory, one_line
from neorl_envs import Dataset, collect_log, make, write_dataset
from neorl_envs.plants import PLANTS
from neorl_envs.recording import quality
from neorl_train.configuration._sections import DataConfig
from neorl_train.data._source import changed_plant, data_keys, read_log
from neorl_train.runs._directory import LOG_CACHE

MAX_BYTES = 10e9
"""Bytes of all logs in a user's cache; the least recently used one is removed first."""


def collected_log(data: DataConfig, run_dataset: Path, print_line: Callable[[str], None]) -> None:
    """Puts the environment's log into a run, from the user's cache if it is there.

    Args:
        data: Section whose source is an environment.
        run_dataset: Path of the destination; an existing file is kept.
        print_line: Called with one line that states where the log came from.

    Raises:
        OSError: If it cannot be written.
    """
    if run_dataset.exists():
        return
    cached = _cached_log(data)
    if cached.exists():
        print_line(f"log read from {cached}")
    else:
        env = changed_plant(data.source, data.constants)
        key, _ = data_keys(data)
        controllers, plan = quality(env, data.quality)
        log = collect_log(env, controllers, plan=plan, n_steps=data.steps, key=key)
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
            write_dataset(cached, log)
        except OSError:  # without a home folder or space there, the run still has its log
            write_dataset(run_dataset, log)
            return
        _limit_cache(cached)
    with contextlib.suppress(OSError):
        os.utime(cached)
    with replacing(run_dataset) as copy:
        try:
            os.link(cached, copy)
        except OSError:  # another file system, or one without links
            shutil.copyfile(cached, copy)


def more_rows(requested: int, collected: int) -> str:
    """Explains why a collected log has more rows than requested."""
    return (
        f"{collected} rows for data.steps {requested}, because every episode is complete and each "
        "controller acts in equally many"
    )


def _limit_cache(latest: Path) -> None:
    """Removes the least recently used logs while the cache is too large; linked copies remain."""
    with contextlib.suppress(OSError):
        cached_files = [
            (path.stat(), path) for path in latest.parent.glob("*.h5") if path != latest
        ]
        total = latest.stat().st_size + sum(stat.st_size for stat, _ in cached_files)
        for stat, path in sorted(cached_files, key=lambda entry: entry[0].st_mtime):
            if total <= MAX_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size


def complete_log(data: DataConfig, run_dataset: Path, print_line: Callable[[str], None]) -> Dataset:
    """Reads the log that was collected for a run; a damaged one is collected again.

    Args:
        data: Section whose source is an environment.
        run_dataset: Path where :func:`collected_log` put it.
        print_line: Called with one line if it was damaged.

    Raises:
        InputError: If the new log cannot be read either.
        OSError: If it cannot be written.
    """
    try:
        return read_log(data, run_dataset)
    except InputError as error:
        print_line(f"{one_line(error)}: collecting it again")
    # The same file under two names: the next run would have the damaged log too.
    for damaged in (run_dataset, _cached_log(data)):
        damaged.unlink(missing_ok=True)
    collected_log(data, run_dataset, print_line)
    return read_log(data, run_dataset)


def _cached_log(data: DataConfig) -> Path:
    """The cache path, named by a digest of everything that determines the log, including code."""
    inputs = {
        "steps": data.steps,
        "quality": data.quality,
        "seed": data.seed,
        "constants": data.constants,
    }
    return cache_directory(LOG_CACHE) / f"{plant_digest(data.source, inputs)}.h5"


def plant_digest(source: str, inputs: Mapping[str, Any]) -> str:
    """A digest of a plant and given inputs, which changes with code and versions."""
    module = type(make(source)).__module__
    code = hashlib.sha256()
    for package in dict.fromkeys(("neorl_core", "neorl_envs", module.partition(".")[0])):
        for path in source_files(package):
            code.update(path.read_bytes())
    content = {
        "source": source,
        "origin": PLANTS.origin(source),
        **inputs,
        "code": code.hexdigest(),
        "jax": metadata.version("jax"),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def source_files(package: str) -> list[Path]:
    """The source files of an imported package or of a single-file module."""
    file = getattr(sys.modules[package], "__file__", None)
    if file is None:
        return []
    path = Path(file)
    return sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
