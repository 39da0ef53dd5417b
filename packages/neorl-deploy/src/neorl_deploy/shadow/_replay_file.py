"""Writes the results of a replay without overwriting any other file."""

import json
import os
import secrets
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._document_heads import head
from neorl_deploy.bundle._files import MIB, is_in_bundle
from neorl_deploy.shadow._log import Log
from neorl_deploy.shadow._replay import KIND, VERSION
from neorl_deploy.training_run._names import REPLAY

LARGEST_REPORT = 16 * MIB
ADVICE = "choose a place with --json"


def replay_path(bundle: Path) -> Path:
    """Default file for the results: ``replay.json`` beside the bundle."""
    return bundle.resolve().parent / REPLAY


def require_place(path: Path) -> None:
    """Refuses an unsuitable output path before any computing time is spent."""
    reason = ""
    if path.is_dir():
        reason = "it is a folder"
    elif not path.parent.is_dir():
        reason = f"there is no folder {path.parent}"
    elif is_in_bundle(path):
        reason = "it lies in a bundle, which a further or changed file would break"
    elif not os.access(path.parent, os.W_OK):
        reason = "permission denied"
    elif os.path.lexists(path) and _earlier(path) is None:
        reason = "it exists and is not an earlier replay"
    if reason:
        raise DeployError(f"cannot write {path}: {reason}; {ADVICE}")


def require_same_log(path: Path, log: Log) -> None:
    """Refuses to replace the results of another log; those of the same log are recomputed."""
    earlier = _earlier(path) if path.exists() else None
    if earlier is None:
        return
    content_hash = earlier.get("content_hash")
    if content_hash and log.content_hash:
        same = content_hash == log.content_hash
    else:
        same = Path(str(earlier.get("path"))).resolve() == Path(log.source).resolve()
    if not same:
        raise DeployError(
            f"cannot write {path}: it holds the replay of another log, {earlier.get('path')}; "
            f"{ADVICE}, or remove it"
        )


def write_replay(path: Path, value: object) -> None:
    """Writes the results as JSON, completely or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DeployError(f"cannot write {path}: {error.strerror}; {ADVICE}") from error


def _earlier(path: Path) -> dict[str, Any] | None:
    """What an earlier replay states about its log; ``None`` if the file is not a replay."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_REPORT:
            return None
        report = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or report.get("format") != head(KIND, VERSION)["format"]:
        return None
    return report["log"] if isinstance(report.get("log"), dict) else None
