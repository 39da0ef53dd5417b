"""Writes to the plant: what is planned, the last look before it, and what is taken back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

import numpy as np

from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.loop._block import COUNTERS, LEAVING, STATES
from neorl_deploy.loop._cycle import Cycle, Memory
from neorl_deploy.loop._modes import WRITING, Mode
from neorl_deploy.loop._orders import Order, level_order
from neorl_deploy.loop._plant import Plant, PlantError, Quality, Reading
from neorl_deploy.loop._tags import Output, TagMap

LIVELY = ("plant", "active", "reason")
"""Tags of the loop that may change between two readings: what voids a decision is the sequence."""


class Writer:
    """Writes the actions of a loop; its memory between two periods is that of the loop.

    Args:
        tags: The tag map.
        manifest: Manifest of the bundle.
        plant: The connection.
    """

    def __init__(self, tags: TagMap, manifest: Manifest, plant: Plant) -> None:
        self._tags, self._manifest, self._plant = tags, manifest, plant

    def received(self, readings: Mapping[str, Reading]) -> np.ndarray:
        """Values of the actuators according to their read-backs; NaN if unknown."""
        return np.array(
            [good(readings[o.read_back]) * o.scale + o.offset for o in self._tags.outputs]
        )

    def moved(self, values: np.ndarray, expected: np.ndarray) -> str:
        """Which actuator somebody else has moved; empty if none.

        Args:
            values: What the actuators hold.
            expected: Lowest and highest value that each may hold by the loop's own writes, shape
                ``(2, act)``; NaN if unknown.
        """
        rows = zip(self._tags.outputs, values, *expected, strict=True)
        for output, value, low, high in rows:
            if value < low - output.tolerance or value > high + output.tolerance:
                own = f"{low:g}" if low == high else f"{low:g} to {high:g}"
                return (
                    f"{output.channel} was moved by somebody else: {value:g} {output.unit} in "
                    f"place of {own}"
                )
        return ""

    def plan(
        self,
        now: Memory,
        action: np.ndarray,
        received: np.ndarray,
        loop_tags: Mapping[str, float],
    ) -> tuple[dict[str, float], str]:
        """The values to write in this mode, by tag; none, and why, if one may not be written.

        A block on the plant's side hears of owner, state and beat in every mode, and of a decision
        together with the plant's sequence number from which it was made.
        """
        if now.mode not in (*WRITING, Mode.ADVISORY):
            return self._signs(now, loop_tags), ""
        if now.mode in WRITING and not np.isfinite(received).all():
            # Nobody could tell whether a person has moved it.
            return {}, "nothing is written, because an actuator cannot be read back"
        planned: dict[str, float] = {}
        for output, channel, value in zip(
            self._tags.outputs, self._manifest.action, action, strict=True
        ):
            low, high = np.float32(channel.low), np.float32(channel.high)
            if not low <= value <= high:  # also true for NaN
                return {}, f"{output.channel} is not written: {value} is out of its range"
            tag = output.tag if now.mode in WRITING else output.advice
            number = raw(output, float(value))
            if not output.raw_low <= number <= output.raw_high:
                return {}, f"{output.channel} is not written: {number:g} is outside its raw limits"
            if tag:
                planned[tag] = number
        if self._tags.block is not None:
            planned |= self._signs(now, loop_tags)
        elif now.mode in WRITING and self._tags.loop.heartbeat:
            planned[self._tags.loop.heartbeat] = float((now.beat + 1) % COUNTERS)
        return planned, ""

    def _signs(self, now: Memory, loop_tags: Mapping[str, float]) -> dict[str, float]:
        """What the block hears beside the values; nothing while another loop has it."""
        block = self._tags.block
        if block is None or now.claim.other:
            return {}
        signs = {block.owner: float(now.owner), block.state: float(STATES[now.mode])}
        if now.mode in WRITING:
            signs[block.decided] = loop_tags["sequence"]
        return {**signs, self._tags.loop.heartbeat: float((now.beat + 1) % COUNTERS)}

    def leave(self, now: Memory) -> None:
        """Tells a block that the loop ends."""
        block = self._tags.block
        if block is None or now.claim.other or not now.connected:
            return
        beat = float((now.beat + 1) % COUNTERS)
        with contextlib.suppress(PlantError):
            self._plant.write({block.state: float(LEAVING), self._tags.loop.heartbeat: beat})

    def last_look(
        self, now: Memory, cycle: Cycle, loop_tags: Mapping[str, float]
    ) -> tuple[str, Order | None]:
        """Why nothing may be written although it is planned, by a reading directly before.

        A hand on an actuator since the last own write, or for the first write since the reading
        from which it was decided, ends in manual mode.

        Returns:
            The reason, empty if there is none; and what a tag of the loop that has changed orders
            for the next period, whatever it shows then.
        """
        watched = self._tags.watched
        try:
            readings = dict(zip(watched, self._plant.read(watched), strict=True))
        except PlantError as error:
            now.failures, now.failure, now.connected = now.failures + 1, str(error), False
            return f"nothing is written: {error}", None
        received = self.received(readings)
        expected = np.where(np.isfinite(now.expected), now.expected, cycle.received)
        if hand := self.moved(received, expected):
            now.mode = now.target = Mode.MANUAL
            return f"{hand}, after it was read: nothing is written", None
        if not np.isfinite(received).all():
            return "nothing is written, because an actuator cannot be read back", None
        for name, tag in self._tags.named.items():
            shown = good(readings[tag]) if tag else math.nan
            if tag and name not in LIVELY and shown != loop_tags[name]:
                why = f"nothing is written, because {tag} has changed since it was read"
                return why, level_order(name, tag, shown)
        return "", None

    def write(
        self, now: Memory, planned: dict[str, float], action: np.ndarray, received: np.ndarray
    ) -> tuple[dict[str, float], dict[str, str], list[str]]:
        """Writes one action: every actuator, or none.

        Args:
            now: Memory of the loop; the mode is manual afterwards if an action stays half written.
            planned: Number by tag.
            action: The action, in the units of the channels.
            received: What the actuators held before.

        Returns:
            What was written, what was refused and why, and notes.
        """
        refused, notes = self._attempt(now, planned)
        done = {tag: value for tag, value in planned.items() if tag not in refused}
        beat = self._tags.loop.heartbeat
        if beat in done:
            now.beat = int(done[beat])
        if now.mode not in WRITING:
            now.expected[:], now.beat_written = np.nan, math.nan
            return done, refused, notes
        outputs = [output.tag for output in self._tags.outputs if output.tag in planned]
        parts = [tag for tag in outputs if tag in done]
        back = 0 < len(parts) < len(outputs) and self._tags.block is None
        ends = np.sort([received, action], axis=0)
        if back:
            failed = self._take_back(outputs, parts, received, ends)
            notes.append("the other actuators have their values of before again")
            if failed:
                notes[-1] = f"the action could not be taken back ({failed}): manual"
                now.mode = now.target = Mode.MANUAL
        for i, output in enumerate(self._tags.outputs):
            if output.tag not in planned:
                continue  # it keeps its value
            now.expected[:, i] = ends[:, i]  # nobody knows how much of a refused write arrived
            if output.tag in done and (self._tags.block is None or beat in done):
                now.expected[:, i] = received[i] if back else action[i]
        if back:
            done = {tag: value for tag, value in done.items() if tag not in parts}
        if beat in planned:
            now.beat_written = done.get(beat, math.nan)
        return done, refused, notes

    def _attempt(
        self, now: Memory, planned: Mapping[str, float]
    ) -> tuple[dict[str, str], list[str]]:
        if not planned:
            return {}, []
        try:
            refused = self._in_order(planned)
            now.failure = "".join(
                f"the plant refuses to write {t}: {w}; " for t, w in refused.items()
            )
        except PlantError as error:
            refused, now.failure = dict.fromkeys(planned, str(error)), str(error)
        now.failures = now.failures + 1 if refused else 0
        return refused, [now.failure] if refused else []

    def _in_order(self, planned: Mapping[str, float]) -> dict[str, str]:
        """Writes, for a block the beat last: without it, the block does not take the rest."""
        beat = self._tags.loop.heartbeat
        if self._tags.block is None or beat not in planned:
            return dict(self._plant.write(planned))
        refused = dict(self._plant.write({t: v for t, v in planned.items() if t != beat}))
        if refused:
            return {**refused, beat: "held back, so that the block takes no part of the action"}
        return dict(self._plant.write({beat: planned[beat]}))

    def _take_back(
        self, outputs: list[str], parts: list[str], received: np.ndarray, ends: np.ndarray
    ) -> str:
        """Writes the values of before to every actuator, because some were refused.

        One action is one decision: its parts may violate a constraint that the whole satisfies. A
        refusal may be a hand on the actuator since the write. What lies outside the values of
        before and the action is left as it is.

        Returns:
            Why this failed; empty if it did not.
        """
        tags = [output.read_back for output in self._tags.outputs]
        try:
            held = self.received(dict(zip(tags, self._plant.read(tags), strict=True)))
            old = {
                output.tag: raw(output, float(before))
                for output, value, before, (low, high) in zip(
                    self._tags.outputs, held, received, ends.T, strict=True
                )
                if output.tag in outputs and low <= value + output.tolerance
                and value - output.tolerance <= high
            }  # fmt: skip
            refused = self._plant.write(old)
        except PlantError as error:
            return str(error)
        left = [f"{tag} cannot be read back" for tag in parts if tag not in old]
        if hand := self.moved(held, ends):
            left = [hand]
        return "; ".join(
            [*left, *(f"{tag}: {why}" for tag, why in refused.items() if tag in parts)]
        )


def good(reading: Reading) -> float:
    """The value of a read-back or loop tag if its quality is good, else NaN."""
    trusted = reading.quality == Quality.GOOD and math.isfinite(reading.value)
    return reading.value if trusted else math.nan


def raw(output: Output, value: float) -> float:
    """The number of a tag for a value in the unit of its channel."""
    return (value - output.offset) / output.scale
