"""Converts a cycle to an audit record: the inputs of its decision and the outcome."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy.audit._log import AuditLog
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.loop._cycle import Cycle
from neorl_deploy.runtime._forms import FormName


def audit_log(
    folder: Path, bundle: Bundle, *, form: FormName = "stablehlo", **settings: Any
) -> AuditLog:
    """The audit log of a loop, continued or newly created.

    Args:
        folder: Folder of the log.
        bundle: The bundle that makes the decisions.
        form: The form that makes the decisions; another form may round differently.
        settings: Settings of :class:`~neorl_deploy.audit.AuditLog`: ``largest``, ``files``.
    """

    def opening() -> dict[str, Any]:
        return {"bundle": f"sha256:{bundle.digest}", "form": form}

    return AuditLog(folder, opening, **settings)


def recorder(log: AuditLog) -> Callable[[Cycle], None]:
    """Returns the ``record`` argument of a :class:`ControlLoop`.

    The policy's state is written when a person or a restart changed it, and with the first cycle of
    every file; between two such records it follows from the inputs.
    """
    fresh = [True]

    def record(cycle: Cycle) -> None:
        with_carry = fresh[0] or log.full or not cycle.continued
        important = bool(cycle.notes) or cycle.mode != cycle.before
        fresh[0] = True  # until the write succeeds, because a lost record breaks the sequence
        log.append(cycle_record(cycle, cycle.carry if with_carry else None), durable=important)
        fresh[0] = False

    return record


def cycle_record(cycle: Cycle, carry: np.ndarray | None) -> dict[str, Any]:
    """One cycle as JSON: numbers in full precision, ``null`` for NaN and infinity."""
    decision, measured = cycle.decision, cycle.measured
    words = None if carry is None else base64.b64encode(carry.astype("<u4").tobytes()).decode()
    return {
        "kind": "cycle",
        "number": cycle.number,
        "monotonic": cycle.at.monotonic,
        "wall": cycle.at.wall,
        "mode": str(cycle.mode),
        "before": str(cycle.before),
        "reason": cycle.reason,
        "obs": _json(measured.obs),
        "ages": _json(measured.ages),
        "faults": measured.faults,
        "received": _json(cycle.received),
        "taking_over": cycle.taking_over,
        "action": _json(decision.action),
        "flags": decision.flags,
        "intervention": _json(decision.intervention),
        "limits": [int(bits) for bits in decision.limits],
        "alarms": decision.alarms,
        "planned": cycle.written,
        "notes": list(cycle.notes),
        "carry": words,
    }


def _json(values: Iterable[Any]) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]
