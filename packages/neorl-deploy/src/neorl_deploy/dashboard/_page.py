"""Renders the page, either live beside its loop or as one self-contained file."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy.audit import AuditError, records, verify_chain
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.loop._board import POINTS, channel_entries, lost_since
from neorl_deploy.loop._modes import WRITING
from neorl_deploy.runtime._decision import flag_sentences

HOLE = "/*DATA*/null/*END*/"


def live_page() -> str:
    """The page that polls its own server for ``state.json``; it loads nothing from elsewhere."""
    return (
        importlib.resources.files("neorl_deploy.dashboard").joinpath("page.html").read_text("utf-8")
    )


def still_page(folder: Path, bundle: Bundle) -> str:
    """A self-contained page of a finished or shadow loop, made from its audit log.

    Args:
        folder: The audit log.
        bundle: The bundle that made the decisions.

    Returns:
        HTML that contains the last 600 periods and 100 events.

    Raises:
        AuditError: If the log was changed, belongs to another bundle, or contains no period.
    """
    verify_chain(folder)
    cycles: list[Mapping[str, Any]] = []
    for record, _ in records(folder):
        if record["kind"] == "file" and record["bundle"] != f"sha256:{bundle.digest}":
            raise AuditError(
                f"{folder}: the decisions were made by another bundle, {record['bundle']}"
            )
        if record["kind"] == "cycle":
            cycles.append(record)
    if not cycles:
        raise AuditError(f"{folder} holds no recorded control period to show")
    # Text inside a script could close the script element, so no "<" is left in the data.
    data = json.dumps(_snapshot(bundle.manifest, cycles)).replace("<", "\\u003c")
    return live_page().replace(HOLE, data)


def _snapshot(manifest: Manifest, cycles: list[Mapping[str, Any]]) -> dict[str, Any]:
    """As :meth:`~neorl_deploy.loop.Board.snapshot`, for recorded cycles."""
    last, used = cycles[-1], manifest.flags.get("fallback_used", 0)
    changed = [cycle for cycle in cycles if cycle["mode"] != cycle["before"] or cycle["notes"]]
    numbers = np.array([cycle["number"] for cycle in cycles])
    steps = np.diff(numbers)
    lost: dict[str, float] = {}
    for cycle in cycles:
        lost = lost_since(lost, cycle["faults"], cycle["wall"])
    flags = manifest.flag_names(last["flags"])
    acts = "today's controller"
    if last["mode"] in {str(mode) for mode in WRITING}:
        acts = "the fallback" if last["flags"] & used else "the policy"
    return {
        "run": manifest.run,
        "verdict": manifest.verdict,
        "dt": manifest.dt,
        "channels": channel_entries(manifest),
        "state": {
            "mode": last["mode"],
            "acts": acts,
            "reason": last["reason"],
            "number": last["number"],
            "at": last["wall"],
            "flags": list(flags),
            "sentences": flag_sentences(flags, lost=bool(lost)),
        },
        "alarms": list(manifest.alarm_names(last["alarms"])),
        "faults": last["faults"],
        "lost": lost,
        "rollout": None,
        "points": [
            {name: cycle[name] for name in ("obs", "received", "action", "mode")}
            for cycle in cycles[-POINTS:]
        ],
        "events": [
            {"at": cycle["wall"], "text": "; ".join([*_change(cycle), *cycle["notes"]])}
            for cycle in changed[-100:]
        ],
        "counts": {
            "missed": int((steps[steps > 0] - 1).sum()),
            "fallback": sum(bool(cycle["flags"] & used) for cycle in cycles),
        },
    }


def _change(cycle: Mapping[str, Any]) -> list[str]:
    same = cycle["mode"] == cycle["before"]
    return [] if same else [f"{cycle['before']} -> {cycle['mode']}: {cycle['reason']}"]
