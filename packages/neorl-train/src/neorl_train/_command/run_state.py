"""Status of a run in one word, and its verdict."""

import json
from typing import Any

from neorl_core import InputError
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import RUNNING, STOPPED, VERDICT


def state_of(record: dict[str, Any], process: str | None) -> str:
    """The status in one word; "running" is reported only while the run's lock is held."""
    if process is not None:
        return RUNNING
    return STOPPED if record["status"] == RUNNING else record["status"]


def verdict_of(run: RunDirectory) -> dict[str, Any] | None:
    """Answer and sentence of a run's verdict; ``None`` if there is none yet."""
    path = run.path / VERDICT
    if not path.exists():
        return None
    try:
        verdict = json.loads(path.read_text(encoding="utf-8"))
        return {name: str(verdict[name]) for name in ("answer", "sentence")}
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is damaged; `neorl-train resume` writes it again") from None
