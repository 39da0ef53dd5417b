"""The parts of a finished training run that an export reads."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._document_heads import head, require_head
from neorl_deploy.bundle._strict_json import read_json
from neorl_deploy.bundle._verdict import ANSWERS, UNKNOWN, contradiction
from neorl_deploy.training_run._lock import holder
from neorl_deploy.training_run._names import (
    ARTEFACT_SUFFIX,
    CONSTRAINTS,
    EVALUATION,
    FAILED,
    FALLBACK,
    FINISHED,
    GUARD,
    POLICIES,
    RECORD,
    RUNNING,
    VERDICT,
    VERSIONS,
    artefact_of,
)
from neorl_deploy.training_run._summaries import finite


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
