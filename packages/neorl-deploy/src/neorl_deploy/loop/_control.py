"""Runs one control period after another: read, judge, decide, choose the mode, write, record."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Mapping

import numpy as np

from neorl_deploy.bundle._manifest import DEPLOY
from neorl_deploy.loop._cycle import Cycle, Memory
from neorl_deploy.loop._inputs import (
    Measurements,
    fault_changes,
    judge_readings,
    no_measurements,
)
from neorl_deploy.loop._modes import TARGETS, WRITING, Authority, Mode, ModeConditions, next_mode
from neorl_deploy.loop._plant import Clock, Instant, Plant, PlantError, Quality, Reading
from neorl_deploy.loop._tags import Output, TagMap
from neorl_deploy.runtime._decision import Decision
from neorl_deploy.runtime._runtime import NO_CAUSES, Runtime

HEARTBEATS = 30_000
"""The heartbeat counter restarts at this number, so that it fits a signed 16-bit word."""

TRIAL = "worth a trial"


class ControlLoop:
    """Binds a runtime to a plant. :meth:`step` is one control period and never sleeps.

    The loop begins in manual or shadow mode, whatever it did before its process ended. It writes to
    an actuator only after a person has asked for the closed loop since the start. It releases the
    actuators, and must then be switched on again, if a person moves one by hand, if the connection
    or the writes fail for several periods, or if another client writes to them.

    Args:
        runtime: A loaded runtime.
        tags: The tag map of its bundle.
        plant: The connection.
        clock: Time source.
        start: Initial mode, manual or shadow.
        trial: Whether the loop may be closed with a policy that is only "worth a trial".
        record: Called with every cycle before anything is written to the plant. If it raises,
            nothing is written, and the loop releases the actuators.

    Attributes:
        mode: The current mode.
        target: The most recently requested mode.
        authority: Limit on how far the policy may move the actuators; with ``None`` only the
            bundle's limits apply. It does not restrict the fallback.
    """

    def __init__(
        self,
        runtime: Runtime,
        tags: TagMap,
        plant: Plant,
        clock: Clock,
        *,
        start: Mode = Mode.SHADOW,
        trial: bool = False,
        record: Callable[[Cycle], None] | None = None,
    ) -> None:
        if start in (*WRITING, Mode.ADVISORY):
            raise ValueError(f"the loop begins in manual or in shadow, not in {start}")
        self.runtime, self.tags, self._plant, self._clock = runtime, tags, plant, clock
        self._record = record
        self.authority: Authority | None = None
        verdict = runtime.manifest.verdict
        allowed = verdict == DEPLOY or (trial and verdict == TRIAL)
        self._forbidden = "" if allowed else f"the verdict of the bundle is {verdict!r}"
        width = len(tags.outputs)
        self._now = Memory(start, start, [None] * len(tags.inputs), np.full(width, np.nan))
        self._orders: collections.deque[tuple[Mode | None, str, bool]] = collections.deque()
        if runtime.stopped_without_state:  # only a person may undo a person's stop
            runtime.release(f"the loop begins in {start}: nothing is written")

    @property
    def mode(self) -> Mode:
        """The current mode."""
        return self._now.mode

    @property
    def target(self) -> Mode:
        """The most recently requested mode."""
        return self._now.target

    def ask(self, target: Mode, by: str, *, release: bool = True) -> None:
        """Requests a mode for a person, effective from the next step. Any thread may call it.

        Args:
            target: Manual, shadow, advisory or closed loop.
            by: Name of the person and the reason; both are recorded.
            release: Whether this releases an emergency stop and a latch, as a person's request
                does.

        Raises:
            ValueError: If the fallback is requested (use :meth:`stop` instead), or nobody is named.
        """
        if target not in TARGETS:
            raise ValueError(f"{target} cannot be requested; `stop` lets the fallback act")
        self._orders.append((target, _require_name(by), release))

    def stop(self, by: str) -> None:
        """Emergency stop: if the loop is closed, the fallback acts from the next step on.

        Args:
            by: Name of the person and the reason; both are recorded.
        """
        self._orders.append((None, by.strip() or "no reason given", False))

    def step(self, missed: int = 0) -> Cycle:
        """Runs one control period.

        Args:
            missed: Periods that passed without a step since the previous one.

        Returns:
            What happened.
        """
        now, settings = self._now, self.tags.loop
        at, notes = self._clock.now(), [f"after the last record: {n}" for n in now.unrecorded]
        now.unrecorded = ()
        self._note_time(at, missed, notes)
        readings, no_connection = self._read(notes)
        measured, received, loop_tags = self._measure(readings, no_connection, at, notes)
        self._carry_out_orders(loop_tags, notes)
        if now.misses >= settings.most_misses and now.mode in WRITING:
            notes.append(f"{now.misses} periods in a row were missed: stopped")
            self.runtime.stop(notes[-1])
            now.misses = 0
        give_up = self._release_reason(received, loop_tags)
        carry = self.runtime.words
        continued = now.carry is not None and np.array_equal(carry, now.carry)
        decision = self.runtime.step(measured.obs, received, ages=measured.ages)
        now.carry = self.runtime.words
        fallback = self._fallback_reason(measured, decision)
        late = self._clock.now().monotonic - at.monotonic > settings.late * self.runtime.manifest.dt
        now.misses = now.misses + 1 if late else (now.misses if missed else 0)
        fault_free = not (fallback or late or missed) and bool(np.isfinite(received).all())
        now.clean = now.clean + 1 if fault_free else 0
        conditions = ModeConditions(
            now.target, give_up, fallback, self._not_ready(measured, received, fallback, loop_tags)
        )
        before = now.mode
        now.mode, reason = next_mode(before, conditions)
        if before in WRITING and now.mode is Mode.MANUAL and now.target is Mode.CLOSED_LOOP:
            now.target = Mode.MANUAL
        action = decision.action
        if self.authority is not None and now.mode is Mode.CLOSED_LOOP:
            action = self.authority.bound(decision, received, self.runtime.manifest)
        planned = {} if late or no_connection else self._plan_writes(action, notes)
        if late:
            notes.append("the decision was late and was not written")
        cycle = Cycle(
            number=now.number,
            at=at,
            mode=now.mode,
            before=before,
            reason=reason,
            measured=measured,
            received=received,
            decision=decision,
            written=planned,
            refused={},
            notes=(),
            carry=carry,
            continued=continued,
        )
        cycle = self._record_cycle(cycle, notes)
        written, refused = self._write(cycle.written, action, notes)
        return cycle._replace(written=written, refused=refused, notes=tuple(notes))

    def _note_time(self, at: Instant, missed: int, notes: list[str]) -> None:
        now = self._now
        if now.at is not None:
            # Only a clock that is set moves against the monotonic one.
            jump = (at.wall - now.at.wall) - (at.monotonic - now.at.monotonic)
            if abs(jump) > self.tags.loop.clock_jump:
                notes.append(f"the clock of this machine was set by {jump:+.1f} s")
            now.number += 1 + missed
        if missed:
            notes.append(f"{missed} periods were missed")
            now.misses += missed
        now.at = at

    def _read(self, notes: list[str]) -> tuple[dict[str, Reading], str]:
        now, tags = self._now, self.tags.read
        try:
            readings = dict(zip(tags, self._plant.read(tags), strict=True))
        except PlantError as error:
            now.failures, now.failure, now.connected = now.failures + 1, str(error), False
            notes.append(str(error))
            return {}, f"no connection: {error}"
        if not now.connected:
            now.failures, now.failure, now.connected = 0, "", True
            notes.append("the connection is back")
        return readings, ""

    def _measure(
        self, readings: dict[str, Reading], no_connection: str, at: Instant, notes: list[str]
    ) -> tuple[Measurements, np.ndarray, dict[str, float]]:
        """Measurements, read-backs, and the loop's own tags by name (NaN if unknown)."""
        now, settings = self._now, self.tags.loop
        names = {
            "heartbeat": settings.heartbeat,
            "plant": settings.plant_heartbeat,
            "mode": settings.mode,
        }
        if no_connection:
            unknown = np.full(len(self.tags.outputs), np.nan)
            return (
                no_measurements(self.tags.inputs, no_connection),
                unknown,
                dict.fromkeys(names, math.nan),
            )
        loop_tags = {name: _good(readings[tag]) if tag else math.nan for name, tag in names.items()}
        received = np.array(
            [_good(readings[o.read_back]) * o.scale + o.offset for o in self.tags.outputs]
        )
        raw = [readings[rule.tag] for rule in self.tags.inputs]
        now.inputs, measured = judge_readings(self.tags.inputs, raw, now.inputs, at)
        now.faulty, changes = fault_changes(now.faulty, self.tags.inputs, measured)
        notes += changes
        if settings.plant_heartbeat:
            if loop_tags["plant"] != now.alive[0] and not math.isnan(loop_tags["plant"]):
                now.alive = loop_tags["plant"], at.monotonic
            since = 0.0 if math.isnan(now.alive[1]) else at.monotonic - now.alive[1]
            if since > settings.plant_silence or math.isnan(loop_tags["plant"]):
                why = f"the heartbeat of the plant has not changed for {since:.0f} s"
                notes.append(why)
                measured = no_measurements(self.tags.inputs, why)
        return measured, received, loop_tags

    def _carry_out_orders(self, loop_tags: Mapping[str, float], notes: list[str]) -> None:
        """Carries out what a person requested since the last step, by order or by the mode tag."""
        now = self._now
        value = loop_tags["mode"]
        if not math.isnan(value):
            # The first number that is read is not a request.
            if value != now.mode_number and not math.isnan(now.mode_number):
                if value in range(len(TARGETS)):
                    self.ask(TARGETS[int(value)], f"the tag {self.tags.loop.mode}")
                else:
                    self.ask(
                        Mode.MANUAL,
                        f"the tag {self.tags.loop.mode} is {value:g}; modes are 0 to "
                        f"{len(TARGETS) - 1}",
                    )
            now.mode_number = value
        while self._orders:
            target, by, release = self._orders.popleft()
            if target is None:
                self.runtime.stop(by)
                notes.append(f"emergency stop: {by}")
                continue
            notes.append(f"{target} was requested: {by}")
            now.target = target
            if target is not Mode.MANUAL:
                now.clean, now.misses = 0, 0
                if release:
                    self.runtime.release(by)

    def _release_reason(self, received: np.ndarray, loop_tags: Mapping[str, float]) -> str:
        now, settings = self._now, self.tags.loop
        if now.mode not in WRITING:
            return ""
        if now.failures >= settings.most_failures:
            return f"given up after {now.failures} periods: {now.failure}"
        beat = loop_tags["heartbeat"]
        # A heartbeat that was not written or read, NaN, is no sign of another runtime.
        if not (math.isnan(now.beat_written) or math.isnan(beat) or beat == now.beat_written):
            return f"somebody else writes the heartbeat {settings.heartbeat}: another runtime?"
        for output, value, sent in zip(self.tags.outputs, received, now.expected, strict=True):
            if abs(value - sent) > output.tolerance:
                return (
                    f"{output.channel} was moved by somebody else: {value:g} {output.unit} in "
                    f"place of {sent:g}"
                )
        return ""

    def _not_ready(
        self,
        measured: Measurements,
        received: np.ndarray,
        fallback: str,
        loop_tags: Mapping[str, float],
    ) -> str:
        now, settings = self._now, self.tags.loop
        beat, now.beat_read = now.beat_read, loop_tags["heartbeat"]
        if self._forbidden:
            return self._forbidden
        if now.mode not in WRITING and not (
            math.isnan(beat) or math.isnan(loop_tags["heartbeat"]) or beat == loop_tags["heartbeat"]
        ):
            now.clean = 0
            return f"another runtime writes the heartbeat {settings.heartbeat}"
        for output, value in zip(self.tags.outputs, received, strict=True):
            if not math.isfinite(value):
                return f"{output.channel} cannot be read back"
        if fallback:
            return fallback
        if now.clean < settings.clean:
            return f"free of faults for {now.clean} of {settings.clean} steps"
        return ""

    def _fallback_reason(self, measured: Measurements, decision: Decision) -> str:
        runtime = self.runtime
        if not decision.flags & runtime.manifest.flags.get("fallback_used", 0):
            return ""
        causes = [f"{channel}: {fault}" for channel, fault in measured.faults.items()]
        causes += [f"monitor {name}" for name in runtime.alarm_names(decision.alarms)]
        causes += [n for n in runtime.flag_names(decision.flags) if n not in NO_CAUSES]
        return "; ".join(causes) or "the guard"

    def _plan_writes(self, action: np.ndarray, notes: list[str]) -> dict[str, float]:
        """The values to write in this mode, by tag; none if a value is out of range."""
        if self._now.mode not in (*WRITING, Mode.ADVISORY):
            return {}
        planned: dict[str, float] = {}
        channels = self.runtime.manifest.action
        for output, channel, value in zip(self.tags.outputs, channels, action, strict=True):
            low, high = np.float32(channel.low), np.float32(channel.high)
            if not low <= value <= high:  # also true for NaN
                notes.append(f"{output.channel} is not written: {value} is out of its range")
                return {}
            tag = output.tag if self._now.mode in WRITING else output.advice
            if tag:
                planned[tag] = _raw(output, float(value))
        if self._now.mode in WRITING and self.tags.loop.heartbeat:
            planned[self.tags.loop.heartbeat] = float((self._now.beat + 1) % HEARTBEATS)
        return planned

    def _record_cycle(self, cycle: Cycle, notes: list[str]) -> Cycle:
        """Records before anything is written; nothing is written if recording fails."""
        if self._record is None:
            return cycle
        try:
            self._record(cycle._replace(notes=tuple(notes)))
        except OSError as error:
            notes.append(f"nothing is written, because it cannot be recorded: {error}")
            now = self._now
            if now.mode in (*WRITING, Mode.ADVISORY):
                now.mode = now.target = Mode.MANUAL
                return cycle._replace(mode=Mode.MANUAL, reason=notes[-1], written={})
            return cycle._replace(written={})
        return cycle

    def _write(
        self, planned: dict[str, float], action: np.ndarray, notes: list[str]
    ) -> tuple[dict[str, float], dict[str, str]]:
        now = self._now
        refused: dict[str, str] = {}
        if planned:
            try:
                refused = dict(self._plant.write(planned))
                now.failure = "".join(
                    f"the plant refuses to write {t}: {w}; " for t, w in refused.items()
                )
            except PlantError as error:
                refused, now.failure = dict.fromkeys(planned, str(error)), str(error)
            now.failures = now.failures + 1 if refused else 0
            if refused:
                notes.append(now.failure)
                now.unrecorded = (now.failure,)
        done = {tag: value for tag, value in planned.items() if tag not in refused}
        if now.mode not in WRITING:
            now.expected[:], now.beat_written = np.nan, math.nan
            return done, refused
        for i, output in enumerate(self.tags.outputs):
            if output.tag in planned:  # unwritten tags keep their value
                now.expected[i] = action[i] if output.tag in done else np.nan
        if self.tags.loop.heartbeat in done:
            now.beat_written = done[self.tags.loop.heartbeat]
            now.beat = int(now.beat_written)
        return done, refused


def _good(reading: Reading) -> float:
    """The value of a read-back or loop tag if its quality is good, else NaN."""
    good = reading.quality == Quality.GOOD and math.isfinite(reading.value)
    return reading.value if good else math.nan


def _raw(output: Output, value: float) -> float:
    return (value - output.offset) / output.scale


def _require_name(by: str) -> str:
    if not by.strip():
        raise ValueError("say who requests it: the name is recorded")
    return " ".join(by.split())
