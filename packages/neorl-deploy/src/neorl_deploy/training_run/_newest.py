"""The newest run, its bundle and its log: the defaults if the user names none."""

import contextlib
from pathlib import Path

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._strict_json import read_json
from neorl_deploy.training_run._names import BUNDLE_PATTERN, DATASET, FINISHED, RECORD
from neorl_deploy.training_run._summaries import dataset_file


def newest_run(root: Path) -> Path:
    """The newest finished run in a folder: the highest number whose record says "finished".

    Args:
        root: Folder that contains all runs.

    Returns:
        The run directory.

    Raises:
        DeployError: If there is none.
    """
    for path in reversed(run_directories(root)):
        with contextlib.suppress(DeployError):
            record = read_json(path / RECORD)
            if isinstance(record, dict) and record.get("status") == FINISHED:
                return path
    raise DeployError(
        f"no finished run under {root}; make one with `neorl-train run`, or name a run directory"
    )


def newest_bundle(root: Path) -> Path:
    """The bundle of the newest run in a folder that has one.

    Args:
        root: Folder that contains all runs.

    Returns:
        The bundle directory written last.

    Raises:
        DeployError: If there is none.
    """
    for run in reversed(run_directories(root)):
        bundles = sorted(run.glob(BUNDLE_PATTERN), key=lambda path: path.stat().st_mtime)
        if bundles:
            return bundles[-1]
    raise DeployError(f"no bundle under {root}; make one with `neorl-deploy export`, or name one")


def log_of(bundle: Path) -> Path:
    """The log of the run whose directory contains a bundle.

    Args:
        bundle: The bundle directory.

    Returns:
        The dataset file of the run, or the external file that its record names.

    Raises:
        DeployError: If the bundle is not inside a run, or the run names no existing log.
    """
    run = bundle.resolve().parent
    log = log_of_run(run)
    if log is None:
        raise DeployError(
            f"there is no log beside {bundle}; name one: neorl-deploy replay BUNDLE LOG"
        )
    if log.is_file():
        return log
    raise DeployError(f"the log of {run} was {log}, which no longer exists; name a log to replay")


def log_of_run(run: Path) -> Path | None:
    """Path of a run's log, even if the file is gone; ``None`` if no log is named or no run exists.

    It is the dataset file in the run, or the external file that its record names.
    """
    if (run / DATASET).is_file():
        return run / DATASET
    named = dataset_file(read_json(run / RECORD)) if (run / RECORD).is_file() else None
    return None if named is None else run / named  # joining leaves an absolute path unchanged


def run_directories(root: Path) -> list[Path]:
    """The run directories of a folder, oldest first."""
    if not root.is_dir():
        return []
    runs = [path for path in root.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(runs, key=lambda path: int(path.name))
