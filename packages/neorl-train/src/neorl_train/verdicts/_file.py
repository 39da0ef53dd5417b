"""The verdict on the disk: ``verdict.json``."""

from pathlib import Path
from typing import Any

from neorl_core.boundary import write_json
from neorl_train.results._json import decoded, from_plain, read_json, to_plain
from neorl_train.runs._names import VERDICT, policy_file
from neorl_train.verdicts._rule import Verdict

SCHEMA = "neorl.verdict/1"


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """The content of ``verdict.json``; ``candidate`` is the artefact of the policy."""
    plain = to_plain(verdict)
    return {
        "schema": SCHEMA,
        "verdict": plain.pop("answer"),
        "sentence": plain.pop("sentence"),
        "candidate": policy_file(verdict.candidate),
        "policy": plain.pop("candidate"),
        "guarded": True,
        **plain,
    }


def verdict_from_json(content: dict[str, Any]) -> Verdict:
    """Inverse of :func:`verdict_to_json`, without its schema.

    Raises:
        InputError: If a field is missing, unknown or of another type; it is named.
    """
    renamed = {"answer": content.get("verdict"), "candidate": content.get("policy")}
    left_out = ("verdict", "candidate", "policy", "guarded")
    plain = {name: value for name, value in content.items() if name not in left_out}
    return from_plain(Verdict, {**plain, **renamed}, "")


def write_verdict(run: Path, verdict: Verdict) -> None:
    """Writes ``verdict.json`` into a run directory, completely or not at all.

    Args:
        run: The directory; its evaluation is there already, so that no verdict stands alone.
        verdict: What follows from the evaluation.

    Raises:
        OSError: If the file cannot be written.
    """
    write_json(run / VERDICT, verdict_to_json(verdict))


def read_verdict(run: Path) -> Verdict:
    """The verdict of a run.

    Raises:
        InputError: If the file is missing, damaged or of another schema.
    """
    path = run / VERDICT
    return decoded(path, verdict_from_json, read_json(path, SCHEMA))
