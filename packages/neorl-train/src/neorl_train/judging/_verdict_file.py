"""The verdict on disk: ``verdict.json``."""

import os
from pathlib import Path
from typing import Any

from neorl_core.infrastructure import head, write_json
from neorl_train.judging._evaluation_file import decode, from_plain, read_json, to_plain
from neorl_train.judging._verdict import Verdict
from neorl_train.runs._names import VERDICT, policy_file

VERSION = 1


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """The content of ``verdict.json``: the fields of the verdict, and the candidate's artefact."""
    artefact = policy_file(verdict.candidate)
    return {**head("verdict", VERSION), **to_plain(verdict), "artefact": artefact}


def verdict_from_json(content: dict[str, Any]) -> Verdict:
    """Inverse of :func:`verdict_to_json`, without its head."""
    return from_plain(Verdict, {k: v for k, v in content.items() if k != "artefact"})


def write_verdict(run: str | os.PathLike[str], verdict: Verdict) -> None:
    """Writes ``verdict.json`` into a run directory, completely or not at all.

    Args:
        run: The directory; it already contains the evaluation, so that no verdict exists alone.
        verdict: Verdict on the evaluation.

    Raises:
        OSError: If the file cannot be written.
    """
    write_json(Path(run) / VERDICT, verdict_to_json(verdict))


def read_verdict(run: str | os.PathLike[str]) -> Verdict:
    """The verdict of a run.

    Raises:
        InputError: If the file is missing, damaged or of another version.
    """
    path = Path(run) / VERDICT
    return decode(path, verdict_from_json, read_json(path, "verdict", VERSION))
