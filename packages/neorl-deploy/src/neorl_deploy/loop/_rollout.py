"""A policy's way into the plant: shadow, turns with bounded authority, full; and back."""

from __future__ import annotations

import collections
import enum
import hashlib
import logging
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.audit._log import AuditLog
from neorl_deploy.loop._authority import Authority
from neorl_deploy.loop._control import ControlLoop
from neorl_deploy.loop._cycle import Cycle
from neorl_deploy.loop._modes import Mode
from neorl_deploy.loop._plan import Plan

LOGGER = logging.getLogger("neorl_deploy.loop")
WHO = "the roll-out"
RECORD = "rollout"
"""Kind of the records of the audit log that say where a roll-out stands."""


class Stage(enum.StrEnum):
    """Stage of a roll-out."""

    WAITING = "waiting"
    """Nobody has begun it yet."""
    SHADOW = "shadow"
    """The policy is watched; what runs today acts."""
    TRIAL_TURN = "turn of the policy"
    """The policy acts, with bounded authority."""
    OWN_TURN = "turn of what runs today"
    """What runs today acts, to be compared with."""
    PASSED = "passed"
    """The turns are over and no rule was broken: a person decides on the rest."""
    FULL = "full"
    """The policy acts within the limits of its bundle, and is still watched."""
    INTERRUPTED = "interrupted"
    """The process ended in a stage: nothing is written until a person lets it go on."""
    ROLLED_BACK = "rolled back"
    """A rule was broken, or a person has taken over: only a person begins anew."""


class Count(NamedTuple):
    """Counts over the steps of one controller.

    Attributes:
        steps: Steps.
        violations: Steps in which a limit of the plan was broken.
        fallback: Steps in which the fallback acted.
    """

    steps: int = 0
    violations: int = 0
    fallback: int = 0

    def with_step(self, *, violation: bool, fallback: bool) -> Count:
        """One step more."""
        return Count(self.steps + 1, self.violations + violation, self.fallback + fallback)


def chance_of_more(mine: Count, other: Count) -> float:
    """The chance of as many violations of mine, or more, if both rates were equal.

    Given all violations of both, mine are binomial with the share of my steps. Steps follow one
    another, so violations come in groups: the chance is too small then, and a roll-out ends rather
    too early than too late.

    Args:
        mine: Counts of the policy.
        other: Counts of what runs today.

    Returns:
        A number in [0, 1]; one where neither has a violation.

    Source: Przyborowski and Wilenski, Biometrika 31 (1940) 313.
    """
    total, steps = mine.violations + other.violations, mine.steps + other.steps
    if not total:
        return 1.0
    share = mine.steps / steps
    return min(
        1.0,
        math.fsum(
            math.comb(total, k) * share**k * (1 - share) ** (total - k)
            for k in range(mine.violations, total + 1)
        ),
    )


class Rollout:
    """Leads a loop through the stages of a plan; hand its :meth:`after` to :func:`serve`.

    A person begins it, and a person ends it by asking for any mode. What it asks for itself stands
    in the audit log as asked by the roll-out.

    With an audit log it also records there, after every step that counts, where it stands, and the
    next process takes it up from there, at most at the same stage. A stage that was under way is
    interrupted until a person lets it go on, with its counts; full authority must be given anew;
    rolled back stays rolled back. Of another bundle or plan nothing is taken up, except that a
    roll-out of the same bundle that was rolled back stays so.

    Args:
        plan: The plan.
        loop: The loop; its authority belongs to the roll-out.
        log: The audit log of the loop; ``None`` to begin anew with every process.

    Attributes:
        stage: Present stage.
        why: Why it stands there, in words.
        policy: Counts of the policy's turns.
        today: Counts of the turns, and of the shadow, of what runs today.
    """

    def __init__(self, plan: Plan, loop: ControlLoop, log: AuditLog | None = None) -> None:
        self.plan, self._loop = plan, loop
        self.stage, self.why = Stage.WAITING, "a person begins it"
        self.policy, self.today = Count(), Count()
        self._left = self._turn = 0
        self._last: collections.deque[tuple[bool, bool]] = collections.deque(maxlen=plan.window)
        channels = loop.runtime.manifest.action
        self._width = np.array([plan.authority * (c.high - c.low) for c in channels])
        names = [one.name for one in loop.runtime.manifest.obs]
        self._rules = [(names.index(name), *ends) for name, ends in plan.limits.items()]
        self._log, self._interrupted, self._first = log, Stage.WAITING, loop.target
        self._of = {
            "bundle": f"sha256:{loop.runtime.bundle.digest}",
            "plan": hashlib.sha256(repr(plan).encode()).hexdigest(),
        }
        self._recorded: dict[str, Any] = {}
        if log is not None and (last := log.standing(RECORD)) is not None:
            self._take_up(last)

    def begin(self, by: str) -> None:
        """A person begins it, shadow first, or lets it go on where it was interrupted.

        Args:
            by: Name of the person, and the reason; both are recorded.
        """
        if self.stage is Stage.INTERRUPTED:
            self._go_on(by)
        else:
            self.policy, self.today, self._turn = Count(), Count(), 0
            self._left = self.plan.shadow_steps
            self._go(Stage.SHADOW, f"begun by {by}")
        self._loop.ask(Mode.SHADOW, f"{WHO}, {self.why}")
        self._record()

    def give_full(self, by: str) -> None:
        """A person gives the policy the full authority, once its turns are over.

        Args:
            by: Name of the person, and the reason; both are recorded.

        Raises:
            ValueError: If the turns are not over.
        """
        if self.stage is not Stage.PASSED:
            raise ValueError(f"the roll-out stands at {self.stage}; full authority follows on it")
        self._full(by)
        self._loop.ask(Mode.CLOSED_LOOP, f"{WHO}, full authority given by {by}")
        self._record()

    def after(self, cycle: Cycle) -> None:
        """Counts a cycle, goes on to the next stage, or back, and records where it stands.

        Args:
            cycle: The cycle that has ended.
        """
        self._follow(cycle)
        self._record()

    def _follow(self, cycle: Cycle) -> None:
        if self.stage in (Stage.WAITING, Stage.PASSED, Stage.ROLLED_BACK):
            return
        acts = self.stage in (Stage.TRIAL_TURN, Stage.FULL)
        if why := self._ended(cycle, acts=acts):
            self._loop.authority = None
            self._go(Stage.ROLLED_BACK, why)
            return
        if self.stage is Stage.INTERRUPTED:
            return
        self._count(cycle, acts=acts)
        if acts and (why := self._broken()):
            self._roll_back(why)
        elif self.stage is not Stage.FULL and self._left <= 0:
            self._next(cycle)

    def _ended(self, cycle: Cycle, *, acts: bool) -> str:
        """Who ended it: whoever stops, asks for another mode or takes an actuator."""
        manifest = self._loop.runtime.manifest
        if cycle.decision.flags & manifest.flags.get("emergency_stop", 0):
            return "somebody pressed the emergency stop"
        expected = Mode.CLOSED_LOOP if acts else Mode.SHADOW
        if self.stage is Stage.INTERRUPTED:
            expected = self._first
        if self._loop.target is not expected:
            return f"{self._loop.target} was asked for, or the loop let go: {cycle.reason}"
        return ""

    def _count(self, cycle: Cycle, *, acts: bool) -> None:
        obs = cycle.measured.obs
        violation = any(not low <= obs[i] <= high for i, low, high in self._rules)
        measured = any(np.isfinite(obs[i]) for i, _, _ in self._rules)
        if acts and cycle.mode not in (Mode.CLOSED_LOOP, Mode.FALLBACK):
            return  # the loop is not closed yet
        self._left -= 1
        fallback = cycle.mode is Mode.FALLBACK
        if not measured:
            return
        if acts:
            self.policy = self.policy.with_step(violation=violation, fallback=fallback)
            self._last.append((violation, fallback))
        else:
            self.today = self.today.with_step(violation=violation, fallback=False)

    def _broken(self) -> str:
        """Which rule the policy has broken; empty where none."""
        judged = self.policy
        if self.stage is Stage.FULL:
            violations, fallback = zip(*self._last, strict=True) if self._last else ((), ())
            judged = Count(len(self._last), sum(violations), sum(fallback))
        chance = chance_of_more(judged, self.today)
        if chance < self.plan.chance:
            return (
                f"the limits were broken in {judged.violations} of {judged.steps} steps of the "
                f"policy and in {self.today.violations} of {self.today.steps} of what runs today "
                f"(chance {chance:.3f})"
            )
        most = self.plan.most_fallback * max(self.plan.turn_steps, judged.steps)
        if judged.fallback > most:
            return f"the fallback acted in {judged.fallback} of {judged.steps} steps of the policy"
        return ""

    def _roll_back(self, why: str) -> None:
        self._loop.authority = None
        self._go(Stage.ROLLED_BACK, why)
        if self.plan.rollback == "fallback":
            self._loop.stop(f"{WHO} is rolled back: {why}")
        else:
            self._ask(Mode.SHADOW, f"rolled back: {why}")

    def _next(self, cycle: Cycle) -> None:
        """The stage after one that has lasted long enough."""
        if self.stage in (Stage.SHADOW, Stage.OWN_TURN):
            if not np.isfinite(cycle.received).all():
                return  # it begins where the actuators are, so they must be known
            self._turn += 1
            self._left = self.plan.turn_steps
            self._go(Stage.TRIAL_TURN, f"turn {self._turn} of {self.plan.turns}")
            self._loop.authority = Authority(cycle.received.copy(), self._width)
            self._ask(Mode.CLOSED_LOOP, self.why)
            return
        self._loop.authority = None
        if self._turn < self.plan.turns:
            self._left = self.plan.turn_steps
            self._go(Stage.OWN_TURN, f"after turn {self._turn} of {self.plan.turns}")
            self._ask(Mode.SHADOW, self.why)
            return
        self._go(Stage.PASSED, f"no rule was broken in {self.plan.turns} turns")
        if self.plan.full == "automatic":
            self._full("the plan")
            self._ask(Mode.CLOSED_LOOP, self.why)
        else:
            self._ask(Mode.SHADOW, self.why)

    def _full(self, by: str) -> None:
        self._go(Stage.FULL, f"full authority, given by {by}")
        self._last.clear()
        self._loop.authority = None

    def _ask(self, target: Mode, why: str) -> None:
        """Asks as no person does: a stop that somebody has pressed stays."""
        self._loop.ask(target, f"{WHO}, {why}", release=False)

    def _go(self, stage: Stage, why: str) -> None:
        self.stage, self.why = stage, why

    def _take_up(self, last: Mapping[str, Any]) -> None:
        """Where the process before this one left it, or below."""
        stage, turn = Stage(last["stage"]), last["turn"]
        back = stage is Stage.ROLLED_BACK
        if last["bundle"] != self._of["bundle"] or not (back or last["plan"] == self._of["plan"]):
            self.why = f"the one before it, of another bundle or plan, stood at {stage}: begin anew"
            return
        self.policy, self.today = Count(*last["policy"]), Count(*last["today"])
        self._turn, self._left, self._interrupted = turn, last["left"], stage
        if back:
            self._go(stage, last["why"])
        elif stage in (Stage.PASSED, Stage.FULL):
            self._go(Stage.PASSED, f"the process ended at {stage}: a person gives full authority")
        elif stage is not Stage.WAITING:
            self._go(Stage.INTERRUPTED, f"the process ended in {stage}, {self._left} steps left")

    def _go_on(self, by: str) -> None:
        """On where it was interrupted; a turn of the policy is run again whole, its counts stay."""
        stage = self._interrupted
        if stage is Stage.TRIAL_TURN:
            self._turn, self._left, stage = self._turn - 1, 0, Stage.OWN_TURN
        self._go(stage, f"gone on by {by}")

    def _record(self) -> None:
        """Where it stands, for the next process; a roll-out that cannot be recorded ends."""
        full = self.stage is Stage.FULL and self._recorded.get("stage") == self.stage
        if self._log is None or full or self.stage is Stage.INTERRUPTED:
            return  # with full authority the counts begin anew after a restart
        record = {"kind": RECORD, **self._of, "stage": str(self.stage), "why": self.why}
        record |= {"policy": list(self.policy), "today": list(self.today)}
        record |= {"turn": self._turn, "left": self._left}
        if record == self._recorded or (not self._recorded and self.stage is Stage.WAITING):
            return
        try:
            changed = record["stage"] != self._recorded.get("stage")
            self._log.append(record, durable=changed, standing=True)
        except OSError as error:
            LOGGER.error("%s cannot be recorded: %s", WHO, error)
            if self.stage is not Stage.ROLLED_BACK:
                self._loop.authority = None
                self._go(Stage.ROLLED_BACK, f"it cannot be recorded: {error}")
                self._ask(Mode.SHADOW, self.why)
        else:
            self._recorded = record
