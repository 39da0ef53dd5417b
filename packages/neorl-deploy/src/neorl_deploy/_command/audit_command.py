"""``verify`` for an audit log: every byte, and every decision if its bundle is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neorl_deploy._command.switches import prepare_jax
from neorl_deploy._command.text import one_line
from neorl_deploy._errors import DeployError
from neorl_deploy.audit._chain import NAME, AuditError, records, verify_chain
from neorl_deploy.bundle._strict_json import head as document_head


def audit_of(path: Path) -> Path | None:
    """The audit log at a path (the log or a loop's folder); ``None`` if the path is neither."""
    for folder in (path, path / "audit"):
        try:
            if any(NAME.fullmatch(path.name) for path in folder.iterdir()):
                return folder
        except (OSError, ValueError):
            continue
    return None


def verify_audit(
    folder: Path,
    bundle: Path | None,
    head: str | None,
    *,
    trusted_key: str | None = None,
    show: bool = False,
    as_json: bool = False,
) -> int:
    """Verifies a log, which must contain a record of the hash ``head``, and prints the result.

    With ``trusted_key``, that key must have signed every removal of old files.
    """
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise DeployError(f"--head takes the whole hash of a record (64 digits), got {head!r}")
    chain = verify_chain(folder, head=head, trusted_key=trusted_key)
    events = [one_line(line) for line in event_lines(folder)] if show else []
    decisions = None if bundle is None else _recompute(folder, bundle)
    if as_json:
        document = {
            **document_head("audit-verification", 1),
            "log": str(folder),
            "records": chain.records,
            "files": len(chain.files),
            "first": chain.first,
            "decisions_recomputed": decisions,
            "in_use": chain.in_use,
            "head": chain.head,
            "compared_with": head,
        }
        print(json.dumps({**document, "events": events} if show else document))
        return 0
    for line in events:
        print(line)
    files = f"{len(chain.files)} file{'s' * (len(chain.files) != 1)}"
    print(one_line(f"Audit log {folder}: {chain.records} records in {files}"))
    if chain.first:
        print(f"  it begins at record {chain.first}; rotation removed the records before it")
    if decisions is not None:
        print(f"  {decisions} decisions were computed again and are identical")
    if chain.in_use:
        print("  a loop writes to it now: in use, good so far")
    print(f"  head {chain.head}")
    if head is None:
        print("No record was changed since it was written. This does not rule out a forger who")
        print("rewrote the whole log: note the head elsewhere, and compare it with --head.")
    else:
        print("No record was changed, neither up to the record that you noted nor after it.")
    return 0


def _recompute(folder: Path, bundle: Path) -> int:
    """Computes every decision again and returns their number; raises if one differs."""
    prepare_jax()
    from neorl_deploy.audit._replay import replay_decisions
    from neorl_deploy.bundle._read import read_bundle

    result = replay_decisions(folder, read_bundle(bundle))
    if result.differ:
        numbers = ", ".join(map(str, result.differ[:5]))
        raise AuditError(
            f"{folder}: at least {len(result.differ)} of {result.decisions} decisions differ "
            f"when computed again, first in the records {numbers}; run this check on the machine "
            "that made them"
        )
    return result.decisions


def event_lines(folder: Path) -> Iterator[str]:
    """Describes what happened in a loop, one line for each event: when, by whom and why.

    An event is a change of mode, a fault, an order, another bundle, another stage of a roll-out, or
    the removal of old records. Periods without an event are counted.
    """
    quiet, mode, wall, stage = 0, "", 0.0, ("", "")
    opening: dict[str, Any] = {}
    for record, _ in records(folder):
        kind, event = record["kind"], ""
        if kind == "cycle":
            wall = record["wall"]
            event = _cycle_event(record)
            if not event:
                quiet, mode = quiet + 1, record["mode"]
        elif kind == "file":
            event = "; ".join(_file_events(record, opening))
            opening = record
        elif kind == "rollout" and (record["stage"], record["why"]) != stage:
            stage = record["stage"], record["why"]
            event = f"roll-out: {record['stage']}, {record['why']}"
        elif kind == "forgotten":
            event = f"rotation removed the records before {record['before']}"
        if event:
            if quiet:
                yield f"  {quiet} period{'s' * (quiet != 1)} in {mode} without an event"
            quiet = 0
            when = f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%d %H:%M:%S} UTC  " if wall else ""
            yield f"{when}record {record['n']}: {event}"
    if quiet:
        yield f"  {quiet} period{'s' * (quiet != 1)} in {mode} without an event"


CHANGES = {
    "bundle": "decisions are made by the bundle {}",
    "tags": "the tag map is {}",
    "versions": "the software is {}",
    "machine": "the machine is {}",
    "account": "the account is {}",
}


def _file_events(record: dict[str, Any], before: dict[str, Any]) -> Iterator[str]:
    """What changed with a new file: what decides, or the end of the log while no loop ran."""
    for name, text in CHANGES.items():
        value = record.get(name)
        if value is not None and value != before.get(name):
            named = isinstance(value, dict)
            yield text.format(", ".join(" ".join(p) for p in value.items()) if named else value)
    found = record.get("head_found")
    if found is not None:
        named = f"named record {found['n']}" if found else "could not be read"
        yield (
            f"head.json {named} at this start, while the log ended with record {record['n'] - 1}: "
            "a crash, or a person"
        )


def _cycle_event(record: dict[str, Any]) -> str:
    """What was out of the ordinary in a period; empty if nothing was."""
    parts = []
    if record["mode"] != record["before"]:
        parts.append(f"from {record['before']} to {record['mode']}: {record['reason']}")
    shown = record["reason"] if parts else ""
    parts += [note for note in record["notes"] if note not in shown and note != record["reason"]]
    return "; ".join(parts)
