"""Status of a running loop with its recent periods and events, ready for JSON."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.loop._cycle import Cycle, or_null
from neorl_deploy.loop._modes import WRITING, Mode
from neorl_deploy.runtime._decision import flag_sentences

POINTS, EVENTS = 600, 100
"""Numbers of periods and events that are kept."""


class Board:
    """Keeps what a person or a monitoring system wants to see; any thread may read it.

    Args:
        manifest: Manifest of the bundle that decides.
        rollout: Returns the stage of a roll-out and the reason; ``None`` if there is no roll-out.

    Attributes:
        counts: Counts since the loop began: periods, by mode, faults, refused writes, missed.
    """

    def __init__(
        self, manifest: Manifest, rollout: Callable[[], tuple[str, str]] | None = None
    ) -> None:
        self._manifest, self._rollout = manifest, rollout
        self._lock = threading.Lock()
        self._points: collections.deque[dict[str, Any]] = collections.deque(maxlen=POINTS)
        self._events: collections.deque[dict[str, Any]] = collections.deque(maxlen=EVENTS)
        self._last: Cycle | None = None
        self._lost: dict[str, float] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    def after(self, cycle: Cycle) -> None:
        """Adds a cycle.

        Args:
            cycle: The cycle that has ended.
        """
        with self._lock:
            missed = 0 if self._last is None else cycle.number - self._last.number - 1
            fell_back = self._fell_back(cycle)
            self.counts["periods"] += 1
            self.counts[f"mode {cycle.mode}"] += 1
            self.counts["missed"] += max(missed, 0)
            self.counts["faults"] += bool(cycle.measured.faults)
            self.counts["refused"] += bool(cycle.refused)
            self.counts["alarms"] += bool(cycle.decision.alarms)
            self.counts["fallback"] += fell_back
            self._last = cycle
            self._lost = lost_since(self._lost, cycle.measured.faults, cycle.at.wall)
            self._points.append(
                {
                    "at": cycle.at.wall,
                    "obs": or_null(cycle.measured.obs),
                    "received": or_null(cycle.received),
                    "action": or_null(cycle.decision.action),
                    "mode": str(cycle.mode),
                    "fallback": fell_back,
                }
            )
            changed = cycle.mode != cycle.before
            if changed or cycle.notes:
                first = [f"{cycle.before} -> {cycle.mode}: {cycle.reason}"] if changed else []
                text = "; ".join([*first, *cycle.notes])
                self._events.append({"at": cycle.at.wall, "text": text})

    def snapshot(self) -> dict[str, Any]:
        """Everything that a page shows: state, alarms, channels, points and events."""
        with self._lock:
            last, manifest = self._last, self._manifest
            names: tuple[str, ...] = ()
            if last is not None:
                names = manifest.alarm_names(last.decision.alarms)
            return {
                "run": manifest.run,
                "verdict": manifest.verdict,
                "dt": manifest.dt,
                "channels": channel_entries(manifest),
                "state": None if last is None else self._state(last),
                "alarms": list(names),
                "faults": {} if last is None else dict(last.measured.faults),
                "lost": dict(self._lost),
                "rollout": None if self._rollout is None else list(self._rollout()),
                "points": list(self._points),
                "events": list(self._events),
                "counts": dict(self.counts),
            }

    @property
    def last(self) -> Cycle | None:
        """The last cycle."""
        return self._last

    def _state(self, last: Cycle) -> dict[str, Any]:
        fell_back = self._fell_back(last)
        acts = "today's controller"
        if last.mode in WRITING:
            acts = "the fallback" if fell_back else "the policy"
        elif last.mode is Mode.ADVISORY:
            acts = "today's controller, advised"
        flags = self._manifest.flag_names(last.decision.flags)
        lost = bool(last.measured.faults)
        return {
            "mode": str(last.mode),
            "acts": acts,
            "reason": last.reason,
            "number": last.number,
            "window": last.window,
            "at": last.at.wall,
            "flags": list(flags),
            "sentences": flag_sentences(flags, lost=lost),
        }

    def _fell_back(self, cycle: Cycle) -> bool:
        return bool(cycle.decision.flags & self._manifest.flags.get("fallback_used", 0))


def lost_since(before: Mapping[str, float], faults: Iterable[str], now: float) -> dict[str, float]:
    """When each measurement that is lost now was lost, in seconds since 1970.

    Args:
        before: The same for the period before.
        faults: Channels that are lost now.
        now: The time of this period.
    """
    return {channel: before.get(channel, now) for channel in faults}


def channel_entries(manifest: Manifest) -> dict[str, list[dict[str, Any]]]:
    """Name, unit and range of every channel, as JSON."""
    return {
        side: [{"name": c.name, "unit": c.unit, "low": c.low, "high": c.high} for c in channels]
        for side, channels in (("obs", manifest.obs), ("action", manifest.action))
    }
