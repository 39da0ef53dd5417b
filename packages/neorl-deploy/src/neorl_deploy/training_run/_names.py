"""File names and status words of a run, as in ``docs/pages/reference/run-directory.md``."""

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
