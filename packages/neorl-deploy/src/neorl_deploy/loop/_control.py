"""Runs one control period after another: read, judge, decide, choose the mode, write, record."""

from __future__ import annotations

import collections
import math
import secrets
from collections.abc import Callable, Mapping

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle._manifest import DEPLOY, TRIAL
from neorl_deploy.loop._block import COUNTERS
from neorl_deploy.loop._contract import objection, watch_owner
from neorl_deploy.loop._cycle import Cycle, Memory
from neorl_deploy.loop._inputs import (
    Measurements,
    fault_changes,
    judge_readings,
    no_measurements,
    without_stamp,
)
from neorl_deploy.loop._locks import ActuatorLocks
from neorl_deploy.loop._modes import TARGETS, WRITING, Authority, Mode, ModeConditions, next_mode
from neorl_deploy.loop._orders import (
    ARMED,
    NOT_SHOWN,
    RELEASE,
    STOP,
    Order,
    carry_out,
    level_order,
    read_mode_tag,
)
from neorl_deploy.loop._plant import Clock, Instant, Plant, PlantError, Reading
from neorl_deploy.loop._tags import TagMap
from neorl_deploy.loop._writing import Writer, good
from neorl_deploy.runtime._decision import WITHOUT_STATE, Decision, causes_in_words, no_decision
from neorl_deploy.runtime._runtime import Runtime
from neorl_deploy.runtime._state import StateError

UNNAMED = "it runs on another machine or writes without a lock, and no tag of the plant names it"


class ControlLoop:
    """Binds a runtime to a plant. :meth:`step` is one control period and never sleeps.

    The loop begins in manual or shadow mode, whatever it did before its process ended. It writes to
    an actuator only after a person has asked for the closed loop since the start. It releases the
    actuators, and must then be switched on again, if a person moves one by hand, if the connection
    or the writes fail for several periods, or if another client writes to them. A request for the
    closed loop that cannot be met lapses after some periods. A stop is in force until a person
    releases it, which leads to shadow mode.

    Args:
        runtime: A loaded runtime.
        tags: The tag map of its bundle.
        plant: The connection.
        clock: Time source.
        start: Initial mode, manual or shadow.
        trial: Whether the loop may be closed with a policy that is only "worth a trial".
        record: Called with every cycle before anything is written to the plant. If it raises,
            nothing is written, and the loop releases the actuators.
        unchecked: Why the tag map may not close the loop yet; empty if it may.
        held: Why the loop may be closed only after a release, such as an earlier process that may
            not have stored a stop; empty for no reason.
        locks: Locks on the actuators, for direct writing: while another loop of this machine has
            one, this one is not closed.

    Attributes:
        mode: The current mode.
        target: The most recently requested mode.
        authority: Limit on how far the policy may move the actuators; with ``None`` only the
            bundle's limits apply. It does not restrict the fallback.
        held: Why the loop may be closed only after a release; empty if it may.
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
        unchecked: str = "",
        held: str = "",
        locks: ActuatorLocks | None = None,
    ) -> None:
        if start in (*WRITING, Mode.ADVISORY):
            raise ValueError(f"the loop begins in manual or in shadow, not in {start}")
        self.runtime, self.tags, self._plant, self._clock = runtime, tags, plant, clock
        self._record, self._writer = record, Writer(tags, runtime.manifest, plant)
        self._locks = locks if tags.block is None else None
        self.authority: Authority | None = None
        self.held = held
        verdict = runtime.manifest.verdict
        allowed = verdict == DEPLOY or (trial and verdict == TRIAL)
        self._forbidden = unchecked if allowed else f"the verdict of the bundle is {verdict!r}"
        width = len(tags.outputs)
        self._now = Memory(start, start, [None] * len(tags.inputs), np.full((2, width), np.nan))
        self._now.unrecorded = (held,) if held else ()
        # At random, so that two loops in step do not take each other's heartbeat for their own.
        self._now.beat = secrets.randbelow(COUNTERS)
        self._now.owner = 1 + secrets.randbelow(COUNTERS)
        self._orders: collections.deque[Order] = collections.deque()
        if runtime.stopped.startswith(WITHOUT_STATE):  # only a person may undo a person's stop
            runtime.release(f"the loop begins in {start}: nothing is written")

    @property
    def mode(self) -> Mode:
        """The current mode."""
        return self._now.mode

    @property
    def target(self) -> Mode:
        """The most recently requested mode."""
        return self._now.target

    @property
    def stopped(self) -> str:
        """Who stopped or holds the loop and why; empty if a request may close it."""
        return self.runtime.stopped or self.held

    def ask(self, target: Mode, by: str, *, author: str = "") -> None:
        """Requests a mode for a person, effective from the next step. Any thread may call it.

        While a stop is in force, a request for the closed loop is dropped.

        Args:
            target: Manual, shadow, advisory or closed loop.
            by: Name of the person and the reason; both are recorded.
            author: What asks by itself, such as a roll-out; empty for a person.

        Raises:
            ValueError: If the fallback is requested (use :meth:`stop` instead), or nobody is named.
        """
        if target not in TARGETS:
            raise ValueError(f"{target} cannot be requested; `stop` lets the fallback act")
        self._orders.append(Order(target, _require_name(by), author))

    def stop(self, by: str) -> None:
        """Emergency stop: if the loop is closed, the fallback acts from the next step on.

        It wins over every other order of the same period, and is in force until :meth:`release`.
        Any thread and a signal handler may call it.

        Args:
            by: Name of the person and the reason; both are recorded.
        """
        self._orders.append(Order(STOP, " ".join(by.split()) or "no reason given"))

    def release(self, by: str) -> None:
        """Releases a stop and a latch for a person; the mode is then shadow.

        Args:
            by: Name of the person and the reason; both are recorded.

        Raises:
            ValueError: If nobody is named.
        """
        self._orders.append(Order(RELEASE, _require_name(by)))

    def leave(self) -> None:
        """Ends the loop, after its last step: a block hears of it, and a late stop is stored."""
        self._writer.leave(self._now)
        if self._locks is not None:
            self._locks.give()
        while self._orders:
            what, by, _ = self._orders.popleft()
            if what == STOP:
                self._keep(self.runtime.stop, by, [])

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
        if self.tags.block is not None and now.connected:
            most, closed = settings.most_failures, now.mode in WRITING
            now.claim = watch_owner(now.claim, loop_tags, now.owner, most=most, closed=closed)
        asked = self._carry_out_orders(loop_tags, notes)
        if now.misses >= settings.most_misses and now.mode in WRITING:
            notes.append(f"{now.misses} periods in a row were missed: stopped")
            self._keep(self.runtime.stop, notes[-1], notes)
            now.misses = 0
        if not self.runtime.stored and Mode.CLOSED_LOOP in (now.mode, now.target):
            measured = no_measurements(self.tags.inputs, "the state of the runtime is not stored")
        give_up = self._release_reason(received, loop_tags)
        self.runtime.authorize(None if self.authority is None else self.authority.band)
        carry = self.runtime.words
        continued = now.carry is not None and np.array_equal(carry, now.carry)
        # From the request on, so that the first action that is written starts at the plant's own.
        taking_over = now.mode not in WRITING and now.target is Mode.CLOSED_LOOP
        measured, decision = self._decide(measured, received, notes, taking_over=taking_over)
        now.carry = self.runtime.words
        fallback = self._fallback_reason(measured, decision)
        late = self._late(at)
        fault_free = not (fallback or late or missed) and bool(np.isfinite(received).all())
        now.clean = now.clean + 1 if fault_free else 0
        conditions = ModeConditions(
            now.target, give_up, fallback, self._not_ready(measured, received, fallback, loop_tags)
        )
        before = now.mode
        now.mode, reason = next_mode(before, conditions)
        if before in WRITING and now.mode is Mode.MANUAL and now.target is Mode.CLOSED_LOOP:
            now.target = Mode.MANUAL
            if self.stopped:
                notes.append(f"the stop stays, but its fallback acts no more: {self.stopped}")
        lapsed = self._lapse(no_connection, reason, notes)
        action = decision.action
        planned: dict[str, float] = {}
        if late:
            notes.append("the decision was late and was not written")
        elif not no_connection:
            planned, why = self._writer.plan(now, action, received, loop_tags)
            notes += [why] if why else []
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
            taking_over=taking_over,
            lapsed=lapsed,
            asked=asked,
        )
        cycle = self._act(cycle, action, loop_tags, notes, missed)
        if self._locks is not None and now.mode not in WRITING:
            self._locks.give()
        return cycle

    def _act(
        self,
        cycle: Cycle,
        action: np.ndarray,
        loop_tags: Mapping[str, float],
        notes: list[str],
        missed: int,
    ) -> Cycle:
        """Records a decision, looks at the plant once more, and writes it if it still may."""
        now, recorded = self._now, len(notes)
        cycle = self._record_cycle(cycle, notes)
        looked, planned = self._clock.now().monotonic, cycle.written
        why = ""
        if planned and now.mode in WRITING:
            why, order = self._writer.last_look(now, cycle, loop_tags)
            self._orders.extend([] if order is None else [order])
        overdue = self._late(cycle.at)  # also by the record and the last look
        if overdue and planned and not why:
            why = "the decision was late and was not written"
        if why:
            notes.append(why)
            planned = {}
        now.misses = now.misses + 1 if overdue else (now.misses if missed else 0)
        now.clean = 0 if overdue else now.clean
        written, refused, more = self._writer.write(now, planned, action, cycle.received)
        window = self._clock.now().monotonic - looked if planned else 0.0
        notes += more
        now.unrecorded = tuple(notes[recorded:])
        if now.mode is not cycle.mode:
            cycle = cycle._replace(mode=now.mode, reason=notes[-1])
        return cycle._replace(written=written, refused=refused, notes=tuple(notes), window=window)

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

    def _late(self, at: Instant) -> bool:
        """Whether a decision of the period that began then may no longer be written."""
        now = self._clock.now()
        # On the wall clock, too, since the other one stands still while a machine is suspended.
        passed = max(now.monotonic - at.monotonic, now.wall - at.wall)
        return passed > self.tags.loop.late * self.runtime.manifest.dt

    def _read(self, notes: list[str]) -> tuple[dict[str, Reading], str]:
        now, tags = self._now, self.tags.read
        try:
            readings = dict(zip(tags, self._plant.read(tags), strict=True))
        except PlantError as error:
            now.failures, now.failure, now.connected = now.failures + 1, str(error), False
            notes.append(str(error))
            return {}, f"no connection: {error}"
        session = getattr(self._plant, "session", 0)  # one that was made anew within the call
        if session != now.session:
            now.session, now.mode_tag = session, NOT_SHOWN
        if not now.connected:
            now.connected = True
            notes.append("the connection is back")
        if now.mode not in WRITING:  # while the loop writes, only a write shows that all is well
            now.failures, now.failure = 0, ""
        return readings, ""

    def _measure(
        self, readings: dict[str, Reading], no_connection: str, at: Instant, notes: list[str]
    ) -> tuple[Measurements, np.ndarray, dict[str, float]]:
        """Measurements, read-backs, and the loop's own tags by name (NaN if unknown)."""
        now, settings = self._now, self.tags.loop
        names = self.tags.named
        if no_connection:
            unknown = np.full(len(self.tags.outputs), np.nan)
            return (
                no_measurements(self.tags.inputs, no_connection),
                unknown,
                dict.fromkeys(names, math.nan),
            )
        loop_tags = {name: good(readings[tag]) if tag else math.nan for name, tag in names.items()}
        received = self._writer.received(readings)
        raw = [readings[rule.tag] for rule in self.tags.inputs]
        faults = zip(self.tags.inputs, map(without_stamp, self.tags.inputs, raw), strict=True)
        now.unstamped = next((f"{rule.channel}: {why}" for rule, why in faults if why), "")
        now.inputs, measured = judge_readings(
            self.tags.inputs, raw, now.inputs, at, ahead=settings.ahead
        )
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

    def _decide(
        self, measured: Measurements, received: np.ndarray, notes: list[str], *, taking_over: bool
    ) -> tuple[Measurements, Decision]:
        """The decision, and the measurements from which it was made.

        If the bundle cannot decide, because a loop of it does not end, its fallback is asked
        without any measurement. If it cannot decide even so, there is no action.
        """
        now = self._now
        for _ in range(2):
            try:
                decision = self.runtime.step(
                    measured.obs, received, ages=measured.ages, taking_over=taking_over
                )
            except BundleError as error:
                notes.append(f"the bundle did not decide: {error}")
                measured = no_measurements(self.tags.inputs, notes[-1])
            else:
                now.undecided = 0
                return measured, decision
        now.undecided += 1
        return measured, no_decision(self.runtime.manifest)

    def _carry_out_orders(
        self, loop_tags: Mapping[str, float], notes: list[str]
    ) -> tuple[str, ...]:
        """Carries out what persons ordered since the last step, by command or by a tag.

        Returns:
            Who requested a mode, oldest first.
        """
        now, settings = self._now, self.tags.loop
        orders: list[Order] = []
        now.mode_tag, order, note = read_mode_tag(
            now.mode_tag,
            loop_tags["mode"],
            now.mode,
            self._clock.now().monotonic,
            tag=settings.mode,
            armed=max(ARMED, 2 * self.runtime.manifest.dt),
        )
        notes += [note] if note else []
        stop = level_order("stop", settings.stop, loop_tags["stop"])
        orders += [order] if order and now.mode not in WRITING else []
        orders += [stop] if stop and not self.runtime.stopped else []
        while self._orders:
            orders.append(self._orders.popleft())
        orders += [order] if order and now.mode in WRITING else []  # a level, so it comes last
        outcome = carry_out(orders, now.mode, now.target, self.stopped)
        notes += outcome.notes
        now.target = outcome.target
        if outcome.release:
            self.held = ""
            self._keep(self.runtime.release, outcome.release, notes)
        if outcome.stop:
            self._keep(self.runtime.stop, outcome.stop, notes)
        if outcome.asked or outcome.release:
            now.clean, now.misses, now.waited = 0, 0, 0
        return tuple(order.by for order in orders if order.what in TARGETS)

    def _keep(self, act: Callable[[str], None], by: str, notes: list[str]) -> None:
        """Stops or releases the runtime, which takes effect even if it cannot be stored."""
        try:
            act(by)
        except StateError as error:
            notes.append(f"this is in force, but not stored: {error}")

    def _lapse(self, no_connection: str, reason: str, notes: list[str]) -> bool:
        """Drops a request for the closed loop that could not be met in time."""
        now, patience = self._now, self.tags.loop.clean + self.tags.loop.patience
        if now.target is not Mode.CLOSED_LOOP or now.mode in WRITING:
            return False
        now.waited += 1
        if not no_connection and now.waited < patience:
            return False
        now.target = now.mode
        notes.append(f"the request for the closed loop has lapsed: {reason}")
        return True

    def _release_reason(self, received: np.ndarray, loop_tags: Mapping[str, float]) -> str:
        now, settings = self._now, self.tags.loop
        if now.mode not in WRITING:
            return ""
        if now.failures >= settings.most_failures:
            return f"given up after {now.failures} periods: {now.failure}"
        if now.undecided >= settings.most_failures:
            return f"the bundle has not decided for {now.undecided} periods"
        unread = [o.read_back for o, v in zip(self.tags.outputs, received, strict=True) if v != v]
        if settings.heartbeat and math.isnan(loop_tags["heartbeat"]):
            unread.append(settings.heartbeat)
        now.blind = now.blind + 1 if unread and now.connected else 0
        if now.blind >= settings.most_failures:
            return f"not read for {now.blind} periods: {', '.join(unread)}"
        if now.connected and (why := self._objection(loop_tags)):
            return why
        for name, tag in (("mode", settings.mode), ("stop", settings.stop)):
            if tag and now.connected and math.isnan(loop_tags[name]):
                return f"the tag {tag} cannot be read"
        beat = loop_tags["heartbeat"]
        # A heartbeat that was not written or read, NaN, is no sign of another runtime.
        if not (math.isnan(now.beat_written) or math.isnan(beat) or beat == now.beat_written):
            more = "" if self.tags.block is not None else f" {UNNAMED}"
            return (
                f"somebody else writes the heartbeat {settings.heartbeat}: another runtime?{more}"
            )
        return self._writer.moved(received, now.expected)

    def _objection(self, loop_tags: Mapping[str, float]) -> str:
        now = self._now
        closed = now.mode in WRITING
        return objection(self.tags, loop_tags, now.claim, now.owner, closed=closed)

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
        if now.mode not in WRITING and (why := self._objection(loop_tags)):
            return why
        if (
            now.mode not in WRITING
            and self.tags.block is None
            and not (
                math.isnan(beat)
                or math.isnan(loop_tags["heartbeat"])
                or beat == loop_tags["heartbeat"]
            )
        ):
            now.clean = 0
            return f"another runtime writes the heartbeat {settings.heartbeat}: {UNNAMED}"
        if why := self._tag_against(loop_tags) or now.unstamped or self._unfit(received):
            return why
        if fallback:
            return fallback
        if now.clean < settings.clean:
            return f"free of faults for {now.clean} of {settings.clean} steps"
        if self._locks is not None and now.target is Mode.CLOSED_LOOP and now.mode not in WRITING:
            return self._locks.take()
        return ""

    def _tag_against(self, loop_tags: Mapping[str, float]) -> str:
        """Which tag of the loop keeps it from being closed; empty if none."""
        settings = self.tags.loop
        if settings.mode and loop_tags["mode"] != TARGETS.index(Mode.CLOSED_LOOP):
            return f"the tag {settings.mode} shows {loop_tags['mode']:g}, and 3 is needed"
        for name, tag in (("heartbeat", settings.heartbeat), ("stop", settings.stop)):
            if tag and math.isnan(loop_tags[name]):
                return f"the {name} {tag} cannot be read"
        return ""

    def _unfit(self, received: np.ndarray) -> str:
        """Why an actuator cannot be taken over; empty if all can."""
        channels = self.runtime.manifest.action
        for output, channel, value in zip(self.tags.outputs, channels, received, strict=True):
            if not math.isfinite(value):
                return f"{output.channel} cannot be read back"
            slack = output.tolerance
            if not channel.low - slack <= value <= channel.high + slack:
                return (
                    f"{output.channel} holds {value:g} {output.unit}, and its range is "
                    f"{channel.low:g} to {channel.high:g}"
                )
        return ""

    def _fallback_reason(self, measured: Measurements, decision: Decision) -> str:
        runtime = self.runtime
        if not decision.flags & runtime.manifest.flags.get("fallback_used", 0):
            return ""
        stop = [f"stopped by {runtime.stopped}"] if runtime.stopped else []
        causes = [f"{channel}: {fault}" for channel, fault in measured.faults.items()]
        causes += causes_in_words(runtime.manifest, decision, lost=bool(measured.faults))
        return "; ".join([*stop, *dict.fromkeys(causes)]) or "the guard"

    def _record_cycle(self, cycle: Cycle, notes: list[str]) -> Cycle:
        """Records before anything is written; only a stop's fallback acts without a record."""
        if self._record is None:
            return cycle
        try:
            self._record(cycle._replace(notes=tuple(notes)))
        except OSError as error:
            now = self._now
            if now.mode is Mode.FALLBACK and self.stopped:
                notes.append(f"not recorded: {error}; the fallback acts, because of the stop")
                return cycle
            notes.append(f"nothing is written, because it cannot be recorded: {error}")
            if now.mode in (*WRITING, Mode.ADVISORY):
                now.mode = now.target = Mode.MANUAL
                return cycle._replace(mode=Mode.MANUAL, reason=notes[-1], written={})
            return cycle._replace(written={})
        return cycle


def _require_name(by: str) -> str:
    if not by.strip():
        raise ValueError("say who requests it: the name is recorded")
    return " ".join(by.split())
