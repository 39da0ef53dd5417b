"""One control period: its record in memory, and as a record of the audit log."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import getpass
import importlib.metadata
import math
import os
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.audit._log import AuditLog
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.loop._contract import NO_CLAIM, Claim
from neorl_deploy.loop._inputs import Measurements, TagMemory
from neorl_deploy.loop._modes import Mode
from neorl_deploy.loop._orders import NOT_SHOWN, ModeTag
from neorl_deploy.loop._plant import Instant
from neorl_deploy.loop._tags import TagMap
from neorl_deploy.runtime._decision import Decision
from neorl_deploy.runtime._forms import FormName

# Record of one control period, and the memory of the loop.


class Cycle(NamedTuple):
    """Record of one control period.

    Attributes:
        number: Number of the period since the loop began, including missed periods.
        at: Time at which it began.
        mode: Mode of this period.
        before: Mode of the previous period.
        reason: Reason for the mode.
        measured: The measurements, with the reasons for any that may not be trusted.
        received: Values of the actuators according to their read-backs; NaN if unknown.
        decision: Decision of the bundle.
        written: Number written to each tag.
        refused: For each tag that was not written, the reason.
        notes: Other events, one line each.
        carry: State of the bundle before the decision, as 32-bit words.
        continued: Whether that state is the one left by the last decision; false after a stop, a
            release or a restart.
        taking_over: Whether the decision starts from the action of another controller, because the
            closed loop is requested.
        window: Seconds from the last look at the actuators to the end of the write, in which a hand
            on an actuator would be overwritten; zero if nothing was written.
        lapsed: Whether a request for the closed loop has lapsed in this period.
        asked: Who has requested a mode since the last period, oldest first.
    """

    number: int
    at: Instant
    mode: Mode
    before: Mode
    reason: str
    measured: Measurements
    received: np.ndarray
    decision: Decision
    written: dict[str, float]
    refused: dict[str, str]
    notes: tuple[str, ...]
    carry: np.ndarray
    continued: bool
    taking_over: bool = False
    lapsed: bool = False
    window: float = 0.0
    asked: tuple[str, ...] = ()


@dataclasses.dataclass
class Memory:
    """Memory of the loop between two periods.

    Attributes:
        mode: Mode of the last period.
        target: Most recently requested mode.
        inputs: The last value and time stamp of every input.
        expected: Lowest and highest value that the read-backs may show by the loop's own writes,
            shape ``(2, act)``; they differ after a refused write. NaN if nothing was written.
        at: Time at which the last period began.
        number: Number of the last period.
        clean: Number of consecutive steps without a fault.
        misses: Number of consecutive periods that were missed or late.
        failures: Number of consecutive periods without a connection or with a refused write.
        undecided: Number of consecutive periods in which the bundle could not decide.
        blind: Number of consecutive periods in which a read-back or the heartbeat was unreadable
            although the loop writes.
        failure: The last of these failures; empty if there is none.
        connected: Whether the last reading succeeded.
        faulty: Channels that could not be trusted in the last period with a connection, and whether
            their last good value was held.
        unrecorded: Events since the last recorded cycle.
        carry: State of the bundle after the last decision.
        beat: Heartbeat counter.
        beat_written: Number that was written to the heartbeat tag; NaN if none was.
        beat_read: Number that the heartbeat tag showed.
        owner: Session number by which a block on the plant's side knows the loop.
        claim: What was seen of the block's owner.
        alive: Value of the plant's heartbeat, and when it last changed, monotonic.
        session: Number of the connection, for one that counts them.
        mode_tag: What the mode tag has shown since the connection was made.
        waited: Number of periods for which a request for the closed loop has waited.
        unstamped: Which measurement has no time stamp although the tag map limits its age.
    """

    mode: Mode
    target: Mode
    inputs: list[TagMemory | None]
    expected: np.ndarray
    at: Instant | None = None
    number: int = 0
    clean: int = 0
    misses: int = 0
    failures: int = 0
    undecided: int = 0
    blind: int = 0
    failure: str = ""
    connected: bool = True
    faulty: dict[str, bool] = dataclasses.field(default_factory=dict)
    unrecorded: tuple[str, ...] = ()
    carry: np.ndarray | None = None
    beat: int = 0
    beat_written: float = math.nan
    beat_read: float = math.nan
    owner: int = 0
    claim: Claim = NO_CLAIM
    alive: tuple[float, float] = (math.nan, math.nan)
    session: int = 0
    mode_tag: ModeTag = NOT_SHOWN
    waited: int = 0
    unstamped: str = ""


# Converts a cycle to an audit record: the inputs of its decision and the outcome.


def audit_log(
    folder: Path,
    bundle: Bundle,
    *,
    tags: TagMap | None = None,
    form: FormName = "stablehlo",
    **settings: Any,
) -> AuditLog:
    """The audit log of a loop, continued or newly created.

    The first record of every file names the bundle and who signed it, the digest of the tag map,
    versions of the software, the machine, and the account of the process.

    Args:
        folder: Folder of the log.
        bundle: The bundle that makes the decisions.
        tags: The tag map that binds it to the plant; ``None`` if there is none.
        form: The form that makes the decisions; another form may round differently.
        settings: Settings of :class:`~neorl_deploy.audit.AuditLog`: ``largest``, ``files``.

    Returns:
        The log, open for writing.
    """

    def opening() -> dict[str, Any]:
        return {
            "bundle": f"sha256:{bundle.digest}",
            "signed_by": bundle.signed_by,
            "tags": None if tags is None else f"sha256:{tags.digest}",
            "form": form,
            "versions": _versions(),
            "machine": f"{platform.node()}, {platform.machine()}, {platform.system()}",
            "account": _account(),
        }

    return AuditLog(folder, opening, **settings)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("neorl-deploy", "numpy", "jax", "jaxlib"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # JAX is an extra
            found[name] = importlib.metadata.version(name)
    return found


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may know no name for its user
        return f"user {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def recorder(log: AuditLog) -> Callable[[Cycle], None]:
    """Returns the ``record`` argument of a :class:`ControlLoop`.

    The policy's state is written when a person or a restart changed it, and with the first cycle of
    every file; between two such records it follows from the inputs.

    Args:
        log: The audit log, from :func:`audit_log`.

    Returns:
        A function that appends the record of one cycle, and raises what the log raises.
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
        "obs": or_null(measured.obs),
        "ages": or_null(measured.ages),
        "faults": measured.faults,
        "received": or_null(cycle.received),
        "taking_over": cycle.taking_over,
        "action": or_null(decision.action),
        "flags": decision.flags,
        "intervention": or_null(decision.intervention),
        "limits": [int(bits) for bits in decision.limits],
        "alarms": decision.alarms,
        "planned": cycle.written,
        "notes": list(cycle.notes),
        "carry": words,
    }


def or_null(values: Iterable[Any]) -> list[float | None]:
    """Numbers as JSON holds them: null for one that is not finite."""
    return [float(value) if math.isfinite(value) else None for value in values]
