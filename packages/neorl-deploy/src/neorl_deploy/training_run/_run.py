"""A finished training run, as far as an export reads it."""

import contextlib
import dataclasses
import math
import shlex
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._strict_json import read_json
from neorl_deploy.bundle._verdict import VERDICTS, contradiction
from neorl_deploy.training_run._lock import holder

RUNNING, FAILED, FINISHED = "running", "failed", "finished"
LONGEST_LIST = 64
"""Longer lists (raw episodes) stay in ``evaluation.json`` and out of the manifest."""


@dataclasses.dataclass(frozen=True)
class Run:
    """The parts of a run directory that a bundle is made of.

    Attributes:
        path: The directory.
        record: ``run.json``: status, versions, dataset hash, seeds.
        verdict: ``verdict.json``; "cannot tell" where another policy is exported than it judged.
        evaluation: ``evaluation.json``.
        constraints: ``constraints.json``.
        candidate: The policy artefact to export.
        fallback: The artefact of the controller that takes over.
    """

    path: Path
    record: dict[str, Any]
    verdict: dict[str, Any]
    evaluation: dict[str, Any]
    constraints: dict[str, Any]
    candidate: Path
    fallback: Path

    @property
    def name(self) -> str:
        """The number of the run."""
        return self.path.resolve().name

    def policy_digest(self, path: Path) -> str | None:
        """The digest that the run recorded for an artefact; ``None`` where it did not."""
        digests = self.record.get("policies")
        return digests.get(path.name) if isinstance(digests, dict) else None


def read_run(path: Path, candidate: str | None = None) -> Run:
    """Reads a run directory.

    Args:
        path: The directory, for example ``runs/0001``.
        candidate: Policy to export in place of the verdict's, by name such as ``iql-1`` or as a
            path inside the run such as ``policies/iql-1.safetensors``.

    Returns:
        The run; the artefacts are located, not yet read.

    Raises:
        DeployError: If a part is missing or damaged, or the run is not finished.
    """
    if not path.is_dir():
        raise DeployError(f"{path} is no run directory; make one with `neorl-train run`")
    documents = {}
    for name in ("run", "verdict", "evaluation", "constraints"):
        document = finite(read_json(path / f"{name}.json"))
        if not isinstance(document, dict):
            raise DeployError(f"{path / name}.json holds no JSON object; the run is damaged")
        if name == "run" and document.get("status") != FINISHED:
            raise DeployError(_unfinished(path, document))
        documents[name] = document
    verdict = documents["verdict"]
    if verdict.get("verdict") not in VERDICTS:
        raise DeployError(
            f"{path / 'verdict.json'}: the verdict is {verdict.get('verdict')!r}; expected one of "
            f"{', '.join(VERDICTS)}"
        )
    against = contradiction(verdict)
    if against:
        raise DeployError(
            f"{path / 'verdict.json'} was changed or damaged: {against}; remove it, and "
            f"`neorl-train resume {shlex.quote(str(path))}` decides again"
        )
    judged = verdict.get("candidate")
    candidate = None if candidate is None else _in_run(candidate)
    if candidate is not None and candidate != judged:
        verdict = _not_judged(verdict, candidate)
    return Run(
        path=path,
        record=documents["run"],
        verdict=verdict,
        evaluation=documents["evaluation"],
        constraints=documents["constraints"],
        candidate=_artefact(path, candidate or judged),
        fallback=_artefact(path, "policies/fallback.safetensors"),
    )


def _unfinished(path: Path, record: dict[str, Any]) -> str:
    """Why a run cannot be exported yet, and what to do about it.

    A record says "running" for ever where the process was killed; the lock tells.
    """
    process = holder(path)
    if process is not None:
        return f"{path} is still training (process {process}); wait until it is finished"
    status = record.get("status") or "of unknown status"
    command = f"`neorl-train resume {shlex.quote(str(path))}`"
    if status == FAILED:
        error = " ".join(str(record.get("error") or "it left no reason").split())
        return f"{path} failed: {error}; only where that was mended does {command} go on"
    resume = f"continue it with {command}"
    if status == RUNNING:
        return f"{path} stopped without a word before it was finished; {resume}"
    return f"{path} is {status}, not finished; {resume}"


def newest_run(root: Path) -> Path:
    """The newest finished run of a folder: the highest number whose record says so.

    Raises:
        DeployError: If there is none.
    """
    for path in reversed(numbered(root)):
        with contextlib.suppress(DeployError):
            record = read_json(path / "run.json")
            if isinstance(record, dict) and record.get("status") == FINISHED:
                return path
    raise DeployError(
        f"no finished run under {root}; make one with `neorl-train run`, or name a run directory"
    )


def newest_bundle(root: Path) -> Path:
    """The bundle of the newest run of a folder that has one.

    Raises:
        DeployError: If there is none.
    """
    for run in reversed(numbered(root)):
        bundles = sorted(run.glob("*.bundle"), key=lambda path: path.stat().st_mtime)
        if bundles:
            return bundles[-1]
    raise DeployError(f"no bundle under {root}; make one with `neorl-deploy export`, or name one")


def log_of(bundle: Path) -> Path:
    """The log of the run in whose directory a bundle lies.

    Raises:
        DeployError: If there is no run around it, or the run names no log that exists.
    """
    run = bundle.resolve().parent
    if (run / "dataset.h5").is_file():
        return run / "dataset.h5"
    if (run / "run.json").is_file():
        named = named_dataset(read_json(run / "run.json"))
        if named is not None:
            found = Path(named) if Path(named).is_absolute() else run / named
            if found.is_file():
                return found
            raise DeployError(f"the log of {run} was {named}, which is gone; name a log to replay")
    raise DeployError(f"there is no log beside {bundle}; name one: neorl-deploy replay BUNDLE LOG")


def numbered(root: Path) -> list[Path]:
    """The run directories of a folder, oldest first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


def data_hash(run: Run) -> str | None:
    """The content hash of the log that the run learned from, where recorded."""
    dataset = run.record.get("dataset")
    if isinstance(dataset, dict):
        return dataset.get("content_hash") or dataset.get("hash")
    return run.record.get("dataset_hash")


def evaluation_summary(evaluation: dict[str, Any]) -> dict[str, Any]:
    """What a manifest repeats of ``evaluation.json``: candidate, reference and log, with intervals.

    Args:
        evaluation: The whole document; one of an unknown layout loses its long lists.
    """
    tables = evaluation.get("tables")
    if not isinstance(tables, dict) or not isinstance(tables.get("rows"), list):
        return trimmed(evaluation)
    named = {tables.get("candidate"), tables.get("reference")}
    kept = ("environment", "reason", "reward_unit", "level", "n_starts", "candidate", "reference")
    return {
        "schema": evaluation.get("schema"),
        "units": evaluation.get("units"),
        **{name: tables.get(name) for name in kept},
        "rows": [
            row for row in tables["rows"] if row.get("name") in named or row.get("role") == "log"
        ],
    }


def finite(value: Any) -> Any:
    """JSON with ``null`` in place of NaN and infinities."""
    if isinstance(value, dict):
        return {name: finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def trimmed(value: Any) -> Any:
    """JSON without its long lists: what a manifest repeats of a larger document."""
    if isinstance(value, dict):
        return {name: trimmed(entry) for name, entry in value.items()}
    if isinstance(value, list):
        if len(value) > LONGEST_LIST:
            return f"{len(value)} entries"
        return [trimmed(entry) for entry in value]
    return value


def _not_judged(verdict: dict[str, Any], chosen: str) -> dict[str, Any]:
    """A verdict holds for the policy it names, and for no other seed."""
    reason = f"the run judged {verdict.get('candidate')}, not {chosen}"
    return {
        "verdict": "cannot tell",
        "sentence": f"Cannot tell whether {chosen} may be deployed: {reason}.",
        "reason": reason,
        "candidate": chosen,
        "clauses": [],
        "judged": verdict,
    }


def _in_run(policy: str) -> str:
    """Where in a run a policy lies that was given by name, by file name or by path."""
    if not policy or "/" in policy:
        return policy
    return f"policies/{policy.removesuffix('.safetensors')}.safetensors"


def _artefact(run: Path, name: Any) -> Path:
    known = sorted(found.stem for found in (run / "policies").glob("*.safetensors"))
    listed = f"the run has {', '.join(known) or 'no policies'}"
    if not isinstance(name, str) or not name:
        raise DeployError(
            f"{run / 'verdict.json'} names no candidate; choose one with --policy NAME: {listed}"
        )
    path = run / name
    inside = path.resolve().parent == (run / "policies").resolve()
    if not inside or path.suffix != ".safetensors":
        raise DeployError(
            f"{name!r} is no policy of {run}; expected NAME or policies/NAME.safetensors: {listed}"
        )
    if not path.is_file():
        raise DeployError(f"{path} is missing; {listed}")
    return path


def named_dataset(record: Any) -> str | None:
    """The file that a run's record names as its log; ``None`` where it names none."""
    dataset = record.get("dataset") if isinstance(record, dict) else None
    if isinstance(dataset, dict):
        dataset = dataset.get("path") or dataset.get("file")
    return dataset if isinstance(dataset, str) else None
