"""Compares a bundle in shadow with the actual actions, from the audit log of its loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy.audit import AuditError, records, verify_chain
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.loop._modes import WRITING
from neorl_deploy.shadow._log import Log
from neorl_deploy.shadow._replay import Replay, Report, Shadow, report_of

AGREES = 0.05
"""Fraction of an actuator's range within which a proposal counts as agreeing."""
BATCHES, STUDENT = 20, 2.093
"""Number of batches of consecutive steps, and the 97.5 % point of Student's t with 19 degrees."""
QUARTERS = 4
"""Drift compares the first and the last of this many parts of the log."""


def shadow_comparison(folder: Path, bundle: Bundle) -> Replay:
    """Compares every proposal that was not written with what the plant received instead.

    A proposal answers one observation, and the action taken instead is what the actuators hold one
    period later, so a row needs the record after it. Periods that the loop missed, and those in
    which it wrote to the actuators itself, are left out; the next row begins a new segment.

    Args:
        folder: The audit log.
        bundle: The bundle that made the decisions.

    Returns:
        The numbers of a replay, and additionally: ``agreement``, by channel the fraction of the
        steps within 5 % of the range, and the mean difference with its 95 % interval from the means
        of twenty batches; ``benefit``, the verdict's prediction of the return with its interval;
        ``drift``, by observation the change of the mean from the first quarter of the rows to the
        last, in standard deviations of the first.

    Raises:
        AuditError: If the log was changed, belongs to another bundle, or has no such row.
    """
    chain, manifest = verify_chain(folder), bundle.manifest
    rows, starts = _rows(folder, bundle)
    if not rows:
        raise AuditError(f"{folder} has no two periods in a row in shadow: nothing to compare")
    log = _log(folder, manifest, rows, starts, chain.head)
    proposed = Shadow(
        action=_numbers([row["action"] for row, _ in rows], np.float32),
        flags=np.array([row["flags"] for row, _ in rows], np.uint32),
        limits=np.array([row["limits"] for row, _ in rows], np.uint32),
        intervention=_numbers([row["intervention"] for row, _ in rows], np.float32),
        alarms=np.array([row["alarms"] for row, _ in rows], np.uint32),
    )
    report = {
        **report_of(bundle, log, proposed),
        "agreement": _agreement(manifest, log, proposed),
        "benefit": _benefit(manifest),
        "drift": _drift(manifest, log.obs),
    }
    return Replay(report, log, proposed)


Row = tuple[Mapping[str, Any], Sequence[float | None]]
"""A record, and the actuator values one period later."""


def _rows(folder: Path, bundle: Bundle) -> tuple[list[Row], list[int]]:
    rows: list[Row] = []
    starts: list[int] = []
    before: Mapping[str, Any] | None = None
    last = math.nan
    writing = {str(mode) for mode in WRITING}
    for record, _ in records(folder):
        if record["kind"] == "file" and record["bundle"] != f"sha256:{bundle.digest}":
            raise AuditError(
                f"{folder}: the decisions were made by another bundle, {record['bundle']}"
            )
        if record["kind"] != "cycle" or None in record["action"]:  # the bundle did not decide
            continue
        # Numbering restarts after a restart of the loop, so the clock must have advanced too.
        follows = (
            before is not None
            and record["number"] == before["number"] + 1
            and record["monotonic"] > before["monotonic"]
        )
        if before is not None and follows and before["mode"] not in writing:
            if last != before["number"] - 1:
                starts.append(len(rows))
            rows.append((before, record["received"]))
            last = before["number"]
        else:
            last = math.nan
        before = record
    return rows, starts


def _log(
    folder: Path, manifest: Manifest, rows: Sequence[Row], starts: Sequence[int], head: str
) -> Log:
    return Log(
        source=str(folder),
        obs=_numbers([row["obs"] for row, _ in rows], np.float32),
        action=_numbers([received for _, received in rows], np.float32),
        mask=np.ones(len(rows), bool),
        starts=np.array(starts, np.int64),
        obs_channels=tuple((c.name, c.unit) for c in manifest.obs),
        action_channels=tuple((c.name, c.unit) for c in manifest.action),
        content_hash=f"sha256:{head}",
        attribution="",
        dt=manifest.dt,
        ranges=np.array([[c.low, c.high] for c in (*manifest.obs, *manifest.action)]),
    )


def _numbers(values: Sequence[Sequence[float | None]], dtype: Any) -> np.ndarray:
    return np.array([[np.nan if v is None else v for v in row] for row in values], dtype)


def _agreement(manifest: Manifest, log: Log, proposed: Shadow) -> Report:
    known = np.isfinite(log.action).all(axis=1)
    difference = (proposed.action[known] - log.action[known]).astype(np.float64)
    agreement = {}
    for i, channel in enumerate(manifest.action):
        low, high = _interval(difference[:, i])
        agreement[channel.name] = {
            "within": float(
                (np.abs(difference[:, i]) <= AGREES * (channel.high - channel.low)).mean()
            ),
            "within_size": AGREES * (channel.high - channel.low),
            "mean": float(difference[:, i].mean()),
            "low": low,
            "high": high,
            "unit": channel.unit,
        }
    return agreement


def _interval(values: np.ndarray) -> tuple[float | None, float | None]:
    """95 % interval of a mean over dependent steps, by batch means."""
    if len(values) < 2 * BATCHES:
        return None, None
    means = np.array([batch.mean() for batch in np.array_split(values, BATCHES)])
    half = STUDENT * float(means.std(ddof=1)) / math.sqrt(BATCHES)
    return float(values.mean()) - half, float(values.mean()) + half


def _benefit(manifest: Manifest) -> Report | None:
    """The verdict's clause on the return; ``None`` if it has none."""
    for clause in manifest.document["verdict"].get("clauses", ()):
        if clause.get("name") == "return":
            names = ("statistic", "value", "low", "high", "bound", "unit")
            return {name: clause.get(name) for name in names}
    return None


def _drift(manifest: Manifest, obs: np.ndarray) -> Report:
    quarter = max(len(obs) // QUARTERS, 1)
    drift = {}
    for i, channel in enumerate(manifest.obs):
        first, last = (x[np.isfinite(x)] for x in (obs[:quarter, i], obs[-quarter:, i]))
        if not (len(first) > 1 and len(last)):
            drift[channel.name] = None
            continue
        # A channel that stood still in the first part would make any later movement infinite.
        spread = max(float(first.std(ddof=1)), 1e-6 * (channel.high - channel.low))
        drift[channel.name] = float(last.mean() - first.mean()) / spread
    return drift
