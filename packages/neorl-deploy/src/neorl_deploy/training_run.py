"""A finished training run, read without the training stack."""

import contextlib
import dataclasses
import math
import os
import shlex
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._manifest import ANSWERS, UNKNOWN, contradiction
from neorl_deploy.bundle._strict_json import head, read_json, require_head

__all__ = [
    "Run",
    "evaluation_summary",
    "log_of",
    "newest_bundle",
    "newest_run",
    "read_run",
]

# File names and status words of a run, as in ``docs/pages/reference/run-directory.md``.


RECORD, CONSTRAINTS, GUARD = "run.json", "constraints.json", "guard.json"
EVALUATION, VERDICT = "evaluation.json", "verdict.json"
DATASET, REPORT, LOCK = "dataset.h5", "report.html", "run.lock"
POLICIES, ARTEFACT_SUFFIX = "policies", ".safetensors"
FALLBACK = "policies/fallback.safetensors"
BUNDLE_PATTERN, BUNDLE, REPLAY = "*.bundle", "policy.bundle", "replay.json"

VERSIONS = {"run": 1, "evaluation": 1, "verdict": 1, "constraints": 1, "guard": 1}
"""Supported version of each document, by the kind in its head."""

RUNNING, FAILED, FINISHED = "running", "failed", "finished"
"""Values of ``status`` in ``run.json`` that this package acts on."""


def artefact_of(policy: str) -> str:
    """Path of a policy's artefact in a run, for example of ``"iql-0"``."""
    return f"{POLICIES}/{policy}{ARTEFACT_SUFFIX}"


# The state of a run's lock, which ends with the process that holds it.


def holder(run: Path) -> str | None:
    """Identifies the process that is training or continuing a run.

    Returns:
        Its process number as written in the lock file, ``"unknown"`` if the file has none; ``None``
        if nobody holds the lock, or the system has no such locks.
    """
    try:
        import fcntl

        descriptor = os.open(run / LOCK, os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


# Summarises a run's larger documents for the manifest.


LONGEST_LIST = 64
"""Longer lists (raw episodes) stay in ``evaluation.json`` and out of the manifest."""

SUMMARISED = ("environment", "reason", "reward_unit", "level", "n_starts", "candidate", "reference")
"""Fields of the result tables that are repeated, in addition to some of their rows."""


def evaluation_summary(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Summary of ``evaluation.json``: candidate, reference and log, with intervals.

    Of an unknown layout only the long lists are removed.
    """
    tables = evaluation.get("tables")
    if not isinstance(tables, dict) or not isinstance(tables.get("rows"), list):
        return trim(evaluation)
    named = {tables.get("candidate"), tables.get("reference")}
    return {
        "units": evaluation.get("units"),
        **{name: tables.get(name) for name in SUMMARISED},
        "rows": [
            row for row in tables["rows"] if row.get("name") in named or row.get("role") == "log"
        ],
    }


def finite(value: Any) -> Any:
    """JSON with NaN and infinities replaced by ``null``."""
    if isinstance(value, dict):
        return {name: finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def trim(value: Any) -> Any:
    """A larger document without its long lists, for the manifest."""
    if isinstance(value, dict):
        return {name: trim(entry) for name, entry in value.items()}
    if isinstance(value, list):
        if len(value) > LONGEST_LIST:
            return f"{len(value)} entries"
        return [trim(entry) for entry in value]
    return value


def data_hash(record: dict[str, Any]) -> str | None:
    """The content hash of the log that a run learned from, if its record has one."""
    dataset = record.get("dataset")
    content_hash = dataset.get("content_hash") if isinstance(dataset, dict) else None
    return content_hash if isinstance(content_hash, str) else None


def dataset_file(record: Any) -> str | None:
    """The file that a run's record names as its log; ``None`` if it names none."""
    dataset = record.get("dataset") if isinstance(record, dict) else None
    file = dataset.get("file") if isinstance(dataset, dict) else None
    return file if isinstance(file, str) else None


# The newest run, its bundle and its log: the defaults if the user names none.


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


# The parts of a finished training run that an export reads.


@dataclasses.dataclass(frozen=True)
class Run:
    """The parts of a run directory from which a bundle is made.

    Attributes:
        path: The directory.
        record: ``run.json``: status, versions, dataset hash, seeds.
        verdict: ``verdict.json``; "cannot tell" if the policy to export is not the one it judged.
        evaluation: ``evaluation.json``.
        constraints: ``constraints.json``.
        guard: ``guard.json``: supervisor, monitors, ages, order of the fallbacks.
        candidate: The policy artefact to export.
        fallback: The artefact of the controller that takes over.
    """

    path: Path
    record: dict[str, Any]
    verdict: dict[str, Any]
    evaluation: dict[str, Any]
    constraints: dict[str, Any]
    guard: dict[str, Any]
    candidate: Path
    fallback: Path

    @property
    def name(self) -> str:
        """The number of the run."""
        return self.path.resolve().name

    @property
    def answer(self) -> str:
        """The verdict's answer for the policy to export."""
        return self.verdict["answer"]

    def policy(self, name: str) -> Path:
        """The artefact of another policy that the guard needs.

        Raises:
            DeployError: If it is missing.
        """
        return _artefact(self.path, artefact_of(name))

    def policy_digest(self, path: Path) -> str | None:
        """The digest that the run recorded for an artefact; ``None`` if it recorded none."""
        digests = self.record.get("policies")
        return digests.get(path.name) if isinstance(digests, dict) else None


def read_run(path: Path, policy: str | None = None) -> Run:
    """Reads a run directory.

    Args:
        path: The directory, for example ``runs/0001``.
        policy: Policy to export instead of the verdict's, by name such as ``iql-1`` or as a path
            inside the run such as ``policies/iql-1.safetensors``.

    Returns:
        The run; the artefacts are located, not yet read.

    Raises:
        DeployError: If a part is missing or damaged, or the run is not finished.
    """
    if not path.is_dir():
        raise DeployError(f"{path} is not a run directory; make one with `neorl-train run`")
    record = _document(path / RECORD, "run")
    if record.get("status") != FINISHED:
        raise DeployError(_why_unfinished(path, record))
    verdict = _read_verdict(path / VERDICT)
    candidate_name = str(verdict.get("candidate"))
    candidate = _artefact(path, verdict.get("artefact") if policy is None else _path_in_run(policy))
    if verdict.get("artefact") not in (None, artefact_of(candidate_name)):
        raise DeployError(
            f"{path / VERDICT} judges {candidate_name!r} and names the artefact "
            f"{verdict['artefact']}; the run is damaged"
        )
    return Run(
        path=path,
        record=record,
        verdict=verdict
        if candidate.stem == candidate_name
        else _undecided_verdict(verdict, candidate.stem),
        evaluation=_document(path / EVALUATION, "evaluation"),
        constraints=_document(path / CONSTRAINTS, "constraints"),
        guard=_document(path / GUARD, "guard"),
        candidate=candidate,
        fallback=_artefact(path, FALLBACK),
    )


def _document(path: Path, kind: str) -> dict[str, Any]:
    return require_head(finite(read_json(path)), kind, VERSIONS[kind], str(path))


def _read_verdict(path: Path) -> dict[str, Any]:
    """The verdict of a run, after checking that it is consistent."""
    verdict = _document(path, "verdict")
    answer = verdict.get("answer")
    if answer not in ANSWERS:
        raise DeployError(f"{path}: the answer is {answer!r}; expected one of {', '.join(ANSWERS)}")
    conflict = contradiction(verdict)
    if conflict:
        raise DeployError(
            f"{path} was changed or damaged: {conflict}; remove it, and "
            f"`neorl-train resume {shlex.quote(str(path.parent))}` decides again"
        )
    return verdict


def _why_unfinished(path: Path, record: dict[str, Any]) -> str:
    """Why a run cannot be exported yet, and what to do about it.

    If the process was killed, the record keeps saying "running"; the lock shows the truth.
    """
    process = holder(path)
    if process is not None:
        return f"{path} is still training (process {process}); wait until it is finished"
    status = record.get("status") or "of unknown status"
    command = f"`neorl-train resume {shlex.quote(str(path))}`"
    if status == FAILED:
        error = " ".join(str(record.get("error") or "it gave no reason").split())
        return f"{path} failed: {error}; correct the cause, then {command} continues it"
    resume = f"continue it with {command}"
    if status == RUNNING:
        return f"{path} stopped without an error message before it was finished; {resume}"
    return f"{path} is {status}, not finished; {resume}"


def _undecided_verdict(verdict: dict[str, Any], policy: str) -> dict[str, Any]:
    """A verdict applies only to the policy that it names, not to another seed."""
    reason = f"the run judged {verdict.get('candidate')}, not {policy}"
    return {
        **head("verdict", VERSIONS["verdict"]),
        "answer": UNKNOWN,
        "sentence": f"Cannot tell whether {policy} may be deployed: {reason}.",
        "candidate": policy,
        "artefact": artefact_of(policy),
        "reason": reason,
        "clauses": [],
        "judged": verdict,
    }


def _path_in_run(policy: str) -> str:
    """The path within a run of a policy given by name, file name or path."""
    if not policy or "/" in policy:
        return policy
    return artefact_of(policy.removesuffix(ARTEFACT_SUFFIX))


def _artefact(run: Path, name: Any) -> Path:
    names = sorted(path.stem for path in (run / POLICIES).glob(f"*{ARTEFACT_SUFFIX}"))
    listed = f"the run has {', '.join(names) or 'no policies'}"
    if not isinstance(name, str) or not name:
        raise DeployError(
            f"{run / VERDICT} names no candidate; choose one with --policy NAME: {listed}"
        )
    path = run / name
    inside = path.resolve().parent == (run / POLICIES).resolve()
    if not inside or path.suffix != ARTEFACT_SUFFIX:
        raise DeployError(
            f"{name!r} is not a policy of {run}; expected NAME or {artefact_of('NAME')}: {listed}"
        )
    if not path.is_file():
        raise DeployError(f"{path} is missing; {listed}")
    return path
