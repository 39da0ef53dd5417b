"""All file names and status words of run directories and of the folder of all runs."""

import re

CONFIG, RECORD, METRICS, LOCK = "config.toml", "run.json", "metrics.jsonl", "run.lock"
DATASET, POLICIES, CHECKPOINTS = "dataset.h5", "policies", "checkpoints"
FALLBACK, CONSTRAINTS, GUARD = "fallback", "constraints.json", "guard.json"
EVALUATION, TRACES, VERDICT = "evaluation.json", "traces.json", "verdict.json"
FINE_TUNING = "finetune.json"
REPORT, BUNDLE = "report.html", "policy.bundle"
EVALUATIONS, STARTS = "evaluations", "starts.json"
PROFILE = "profile"

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
