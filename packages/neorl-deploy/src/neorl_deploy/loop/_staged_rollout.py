"""Stages a policy into operation: shadow, turns with bounded authority, full; and roll-back."""

from __future__ import annotations

import collections
import dataclasses
import enum
import hashlib
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError
from neorl_deploy.audit._log import AuditLog
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.loop._control import ControlLoop
from neorl_deploy.loop._cycle import Cycle
from neorl_deploy.loop._modes import Authority, Mode
from neorl_deploy.loop._tags import read_row, read_toml

# Roll-out plans: reads, drafts and checks the plan file.


DEFAULT_TURNS = 10
EPISODES = re.compile(r"About (\d+) episodes of each")
"""Pattern by which a verdict "worth a trial" gives the length of the trial."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A roll-out plan, as written in its file.

    Attributes:
        limits: Lowest and highest acceptable value by observed channel; a step outside is a
            violation.
        shadow_steps: Steps in shadow before the first turn.
        turn_steps: Steps per turn.
        turns: Number of turns of the policy; the present controller has as many turns in between.
        authority: Fraction of the range of every actuator by which the policy may move it, in a
            turn, from its initial position.
        window: Number of steps over which the policy is judged once it has full authority.
        most_fallback: Largest fraction of the policy's steps in which its fallback may act.
        significance: The policy is rolled back if this many violations or more are at most this
            likely, assuming that it breaks the limits no more often than the present controller.
        full: ``"ask"``: a person grants full authority; or ``"automatic"``.
        rollback: ``"fallback"``: the bundle's fallback acts until a person requests a mode; or
            ``"shadow"``: nothing is written any more.
    """

    limits: dict[str, tuple[float, float]]
    shadow_steps: int = 100
    turn_steps: int = 50
    turns: int = DEFAULT_TURNS
    authority: float = 0.1
    window: int = 200
    most_fallback: float = 0.1
    significance: float = 0.05
    full: str = "ask"
    rollback: str = "fallback"


def draft_plan(manifest: Manifest) -> str:
    """Drafts a plan file to complete, based on the verdict and the channels of a bundle.

    A turn is one episode. There are as many turns as the verdict "worth a trial" recommends
    episodes; ten if it gives no number.
    """
    sentence = str(manifest.document["verdict"].get("sentence", ""))
    number = EPISODES.search(sentence)
    turns = int(number[1]) if number else DEFAULT_TURNS
    lines = [
        f"# Plan of a roll-out, drafted from the bundle of run {manifest.run}.",
        f"turns = {turns}           # of the policy, each followed by one of today's controller"
        + ("; as the verdict recommends" if number else ""),
        f"turn_steps = {manifest.horizon}      # steps of a turn, here one episode",
        f"shadow_steps = {2 * manifest.horizon}",
        "authority = 0.1      # fraction of an actuator's range, around its value at the start",
        "most_fallback = 0.1  # largest fraction of the policy's steps in which the fallback acts",
        'full = "ask"         # or "automatic"',
        'rollback = "fallback"  # or "shadow"',
        "",
        "# A step outside these limits is a violation. They are drafted from the measuring ranges:",
        "# narrow each to good operation, or delete its line. A plan that narrows none is refused.",
        "[limits]",
        *(f'"{c.name}" = [{c.low!r}, {c.high!r}]  # {c.unit}' for c in manifest.obs),
    ]
    return "\n".join(lines) + "\n"


def read_plan(path: Path, manifest: Manifest) -> Plan:
    """Reads a plan and checks it against the bundle.

    Args:
        path: TOML file, drafted by ``neorl-deploy init --rollout``.
        manifest: Manifest of the bundle.

    Raises:
        DeployError: If it cannot be read, or a number or a channel does not fit; one line.
    """
    document = read_toml(path, f"the plan {path}")
    limits = _limits(document.pop("limits", None), manifest, str(path))
    plan = read_row({**document, "limits": limits}, Plan, str(path))
    parts = {"authority": plan.authority, "most_fallback": plan.most_fallback}
    parts["significance"] = plan.significance
    for name, value in parts.items():
        if not 0 < value <= 1:
            raise DeployError(f"{path}: {name} must be above 0 and at most 1, got {value:g}")
    for name, choices in (("full", ("ask", "automatic")), ("rollback", ("fallback", "shadow"))):
        if getattr(plan, name) not in choices:
            raise DeployError(f"{path}: {name} must be {' or '.join(map(repr, choices))}")
    return plan


def _limits(table: Any, manifest: Manifest, source: str) -> dict[str, tuple[float, float]]:
    names = [channel.name for channel in manifest.obs]
    if not isinstance(table, dict) or not table:
        raise DeployError(f"{source}: [limits] is missing; it says which values are good")
    limits = {}
    for name, ends in table.items():
        if name not in names:
            raise DeployError(f"{source}, [limits]: the bundle observes no {name!r}")
        pair = isinstance(ends, list) and len(ends) == 2
        if not (pair and all(type(end) in (int, float) for end in ends) and ends[0] < ends[1]):
            raise DeployError(f"{source}, [limits]: {name} must be [lowest, highest], got {ends!r}")
        limits[name] = (float(ends[0]), float(ends[1]))
    ranges = {channel.name: (channel.low, channel.high) for channel in manifest.obs}
    if all(
        low <= ranges[name][0] and high >= ranges[name][1] for name, (low, high) in limits.items()
    ):
        raise DeployError(
            f"{source}, [limits]: every limit is as wide as the measuring range, so that no "
            "violation could be seen; narrow those of the channels that tell good from bad"
        )
    return limits


LOGGER = logging.getLogger("neorl_deploy.loop")
AUTHOR = "the roll-out"
RECORD = "rollout"
"""Kind of the audit records that hold the state of a roll-out."""


class Stage(enum.StrEnum):
    """Stage of a roll-out."""

    WAITING = "waiting"
    """Nobody has started it yet."""
    SHADOW = "shadow"
    """The policy is observed; the present controller acts."""
    TRIAL_TURN = "turn of the policy"
    """The policy acts with bounded authority."""
    INCUMBENT_TURN = "turn of today's controller"
    """The present controller acts, for comparison."""
    PASSED = "passed"
    """The turns are over and no rule was broken: a person decides whether to continue."""
    FULL = "full"
    """The policy acts within the limits of its bundle and is still monitored."""
    INTERRUPTED = "interrupted"
    """The process ended during a stage, or the loop could not be closed for a turn: nothing is
    written until a person continues it."""
    ROLLED_BACK = "rolled back"
    """A rule was broken or a person has taken over: only a person can start again."""


class Count(NamedTuple):
    """Counts over the steps of one controller.

    Attributes:
        steps: Number of steps.
        violations: Steps in which a limit of the plan was broken.
        fallback: Steps in which the fallback acted.
    """

    steps: int = 0
    violations: int = 0
    fallback: int = 0

    def with_step(self, *, violation: bool, fallback: bool) -> Count:
        """The counts after one more step."""
        return Count(self.steps + 1, self.violations + violation, self.fallback + fallback)


def probability_of_more(policy: Count, incumbent: Count) -> float:
    """The probability of at least this many violations by the policy if both rates were equal.

    Given the total number of violations, those of the policy are binomial with its share of the
    steps. Successive steps are dependent, so violations come in groups. The probability is then too
    small, which means that a roll-out ends too early rather than too late.

    Args:
        policy: Counts of the policy.
        incumbent: Counts of the present controller.

    Returns:
        A number in [0, 1]; one if there are no violations.

    Source: Przyborowski and Wilenski, Biometrika 31 (1940) 313.
    """
    total, k = policy.violations + incumbent.violations, policy.violations
    fraction = policy.steps / max(1, policy.steps + incumbent.steps)
    if k == 0 or fraction == 1.0:
        return 1.0
    # The tail away from the mean is summed, where the terms fall; the other one is its complement.
    if k > total * fraction:
        return min(1.0, _tail(total, k, fraction))
    return max(0.0, 1.0 - _tail(total, total - k + 1, 1 - fraction))


def _tail(total: int, k: int, fraction: float) -> float:
    """The probability of at least ``k`` of ``total``, for a ``k`` above the mean."""
    log_term = math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1)
    term = math.exp(log_term + k * math.log(fraction) + (total - k) * math.log1p(-fraction))
    terms = [term]
    while k < total and term > 1e-17 * terms[0]:
        term *= (total - k) / (k + 1) * fraction / (1 - fraction)
        terms.append(term)
        k += 1
    return math.fsum(terms)


class StagedRollout:
    """Takes a loop through the stages of a plan; pass its :meth:`after` to :func:`serve`.

    A person starts it, and a person ends it by requesting any mode. The audit log names the
    roll-out as the author of its own requests.

    With an audit log, it also records its state there after every step that counts, and the next
    process continues from that state, at most at the same stage. A stage in progress is
    interrupted, with its counts, until a person continues it; full authority must be granted again;
    a roll-back remains in force. The state of another bundle or plan is not used, except that a
    roll-back of the same bundle remains in force.

    Args:
        plan: The plan.
        loop: The loop; the roll-out controls its authority.
        log: The audit log of the loop; with ``None`` every process starts from the beginning.

    Attributes:
        stage: Current stage.
        why: Reason for the current stage, as text.
        policy: Counts of the policy's turns.
        incumbent: Counts of the present controller, in its turns and in shadow.
    """

    def __init__(self, plan: Plan, loop: ControlLoop, log: AuditLog | None = None) -> None:
        self.plan, self._loop = plan, loop
        self.stage, self.why = Stage.WAITING, "a person has to start it"
        self.policy, self.incumbent = Count(), Count()
        self._steps_left = self._turn = 0
        self._recent: collections.deque[tuple[bool, bool]] = collections.deque(maxlen=plan.window)
        channels = loop.runtime.manifest.action
        self._width = np.array([plan.authority * (c.high - c.low) for c in channels])
        names = [channel.name for channel in loop.runtime.manifest.obs]
        self._rules = [(names.index(name), *ends) for name, ends in plan.limits.items()]
        self._log, self._interrupted, self._first = log, Stage.WAITING, loop.target
        self._identity = {
            "bundle": f"sha256:{loop.runtime.bundle.digest}",
            "plan": hashlib.sha256(repr(plan).encode()).hexdigest(),
        }
        self._recorded: dict[str, Any] = {}
        if log is not None and (last := log.standing(RECORD)) is not None:
            self._restore(last)

    def begin(self, by: str) -> None:
        """Starts the roll-out for a person, in shadow, or continues an interrupted one.

        Args:
            by: Name of the person and the reason; both are recorded.

        Raises:
            ValueError: If the loop is stopped; a person must release it first.
        """
        self._require_no_stop()
        if self.stage is Stage.INTERRUPTED:
            self._resume(by)
        else:
            self.policy, self.incumbent, self._turn = Count(), Count(), 0
            self._steps_left = self.plan.shadow_steps
            self._enter(Stage.SHADOW, f"started by {by}")
        self._ask(Mode.SHADOW, self.why)
        self._record()

    def grant_full(self, by: str) -> None:
        """Grants the policy full authority for a person, once its turns are over.

        Args:
            by: Name of the person and the reason; both are recorded.

        Raises:
            ValueError: If the turns are not over, or the loop is stopped.
        """
        self._require_no_stop()
        if self.stage is not Stage.PASSED:
            raise ValueError(
                f"the roll-out is at stage {self.stage}; full authority can be given only once "
                "its turns have passed"
            )
        self._grant_full(by)
        self._ask(Mode.CLOSED_LOOP, f"full authority given by {by}")
        self._record()

    def after(self, cycle: Cycle) -> None:
        """Counts a cycle, moves to the next stage or back, and records the state.

        Args:
            cycle: The cycle that has ended.
        """
        self._follow(cycle)
        self._record()

    def _follow(self, cycle: Cycle) -> None:
        if self.stage in (Stage.WAITING, Stage.PASSED, Stage.ROLLED_BACK):
            return
        policy_acts = self.stage in (Stage.TRIAL_TURN, Stage.FULL)
        if policy_acts and cycle.lapsed:
            self._loop.authority = None
            self._interrupted, self._first = self.stage, self._loop.target
            stage = Stage.PASSED if self.stage is Stage.FULL else Stage.INTERRUPTED
            self._enter(stage, f"the loop could not be closed: {cycle.reason}")
            return
        if why := self._why_ended(cycle, policy_acts=policy_acts):
            self._loop.authority = None
            self._enter(Stage.ROLLED_BACK, why)
            return
        if self.stage is Stage.INTERRUPTED:
            return
        self._count(cycle, policy_acts=policy_acts)
        if policy_acts and (why := self._broken_rule()):
            self._roll_back(why)
        elif self.stage is not Stage.FULL and self._steps_left <= 0:
            self._next(cycle)

    def _why_ended(self, cycle: Cycle, *, policy_acts: bool) -> str:
        """Why it ended: somebody stopped it, requested another mode or took over an actuator."""
        manifest = self._loop.runtime.manifest
        if cycle.decision.flags & manifest.flags.get("emergency_stop", 0):
            return f"stopped by {self._loop.stopped}"
        expected = Mode.CLOSED_LOOP if policy_acts else Mode.SHADOW
        if self.stage is Stage.INTERRUPTED:
            expected = self._first
        if self._loop.target is not expected:
            return (
                f"{self._loop.target} was requested, or the loop released the plant: {cycle.reason}"
            )
        if expected is not Mode.CLOSED_LOOP and cycle.asked and AUTHOR not in cycle.asked[-1]:
            return f"{expected} was requested: {cycle.asked[-1]}"  # else it would close again
        return ""

    def _count(self, cycle: Cycle, *, policy_acts: bool) -> None:
        obs = cycle.measured.obs
        violation = any(not low <= obs[i] <= high for i, low, high in self._rules)
        measured = all(np.isfinite(obs[i]) for i, _, _ in self._rules)
        if policy_acts and cycle.mode not in (Mode.CLOSED_LOOP, Mode.FALLBACK):
            return  # the loop is not closed yet
        self._steps_left -= 1
        fallback = cycle.mode is Mode.FALLBACK
        if not measured:
            return
        if policy_acts:
            self.policy = self.policy.with_step(violation=violation, fallback=fallback)
            self._recent.append((violation, fallback))
        else:
            self.incumbent = self.incumbent.with_step(violation=violation, fallback=False)

    def _broken_rule(self) -> str:
        """The rule that the policy has broken; empty if none."""
        counts = self.policy
        if self.stage is Stage.FULL:
            violations, fallback = zip(*self._recent, strict=True) if self._recent else ((), ())
            counts = Count(len(self._recent), sum(violations), sum(fallback))
        probability = probability_of_more(counts, self.incumbent)
        if probability < self.plan.significance:
            return (
                f"the limits were broken in {counts.violations} of {counts.steps} steps of the "
                f"policy and in {self.incumbent.violations} of {self.incumbent.steps} of today's "
                f"controller (probability {probability:.3f} at equal rates)"
            )
        allowed = self.plan.most_fallback * max(self.plan.turn_steps, counts.steps)
        if counts.fallback > allowed:
            return f"the fallback acted in {counts.fallback} of {counts.steps} steps of the policy"
        return ""

    def _roll_back(self, why: str) -> None:
        self._loop.authority = None
        self._enter(Stage.ROLLED_BACK, why)
        if self.plan.rollback == "fallback":
            self._loop.stop(f"{AUTHOR} is rolled back: {why}")
        else:
            self._ask(Mode.SHADOW, f"rolled back: {why}")

    def _next(self, cycle: Cycle) -> None:
        """The stage that follows one that has lasted long enough."""
        if self.stage in (Stage.SHADOW, Stage.INCUMBENT_TURN):
            if not np.isfinite(cycle.received).all():
                return  # the band needs an anchor
            self._turn += 1
            self._steps_left = self.plan.turn_steps
            self._enter(Stage.TRIAL_TURN, f"turn {self._turn} of {self.plan.turns}")
            self._loop.authority = Authority(cycle.received.copy(), self._width)
            self._ask(Mode.CLOSED_LOOP, self.why)
            return
        self._loop.authority = None
        if self._turn < self.plan.turns:
            self._steps_left = self.plan.turn_steps
            self._enter(Stage.INCUMBENT_TURN, f"after turn {self._turn} of {self.plan.turns}")
            self._ask(Mode.SHADOW, self.why)
            return
        self._enter(Stage.PASSED, f"no rule was broken in {self.plan.turns} turns")
        if self.plan.full == "automatic":
            self._grant_full("the plan")
            self._ask(Mode.CLOSED_LOOP, self.why)
        else:
            self._ask(Mode.SHADOW, self.why)

    def _grant_full(self, by: str) -> None:
        self._enter(Stage.FULL, f"full authority, given by {by}")
        self._recent.clear()
        self._loop.authority = None

    def _ask(self, target: Mode, why: str) -> None:
        self._loop.ask(target, f"{AUTHOR}, {why}", author=AUTHOR)

    def _require_no_stop(self) -> None:
        if self._loop.stopped:
            raise ValueError(f"the loop is stopped ({self._loop.stopped}); release it first")

    def _enter(self, stage: Stage, why: str) -> None:
        self.stage, self.why = stage, why

    def _restore(self, last: Mapping[str, Any]) -> None:
        """Restores the state that the previous process left, or an earlier stage."""
        stage, turn = Stage(last["stage"]), last["turn"]
        rolled_back = stage is Stage.ROLLED_BACK
        if last["bundle"] != self._identity["bundle"] or not (
            rolled_back or last["plan"] == self._identity["plan"]
        ):
            self.why = f"an earlier one, of another bundle or plan, ended at {stage}: start again"
            return
        self.policy, self.incumbent = Count(*last["policy"]), Count(*last["incumbent"])
        self._turn, self._steps_left, self._interrupted = turn, last["left"], stage
        if rolled_back:
            self._enter(stage, last["why"])
        elif stage in (Stage.PASSED, Stage.FULL):
            self._enter(
                Stage.PASSED, f"the process ended at {stage}: a person has to give full authority"
            )
        elif stage is not Stage.WAITING:
            self._enter(
                Stage.INTERRUPTED, f"the process ended in {stage}, {self._steps_left} steps left"
            )

    def _resume(self, by: str) -> None:
        """Continues after an interruption; an interrupted turn of the policy runs again in full."""
        stage = self._interrupted
        if stage is Stage.TRIAL_TURN:
            self._turn, self._steps_left, stage = self._turn - 1, 0, Stage.INCUMBENT_TURN
        self._enter(stage, f"continued by {by}")

    def _record(self) -> None:
        """Records the state for the next process; a roll-out that cannot be recorded ends."""
        full = self.stage is Stage.FULL and self._recorded.get("stage") == self.stage
        if self._log is None or full or self.stage is Stage.INTERRUPTED:
            return  # with full authority, the counts restart from zero after a restart
        record = {"kind": RECORD, **self._identity, "stage": str(self.stage), "why": self.why}
        record |= {"policy": list(self.policy), "incumbent": list(self.incumbent)}
        record |= {"turn": self._turn, "left": self._steps_left}
        if record == self._recorded or (not self._recorded and self.stage is Stage.WAITING):
            return
        try:
            changed = record["stage"] != self._recorded.get("stage")
            self._log.append(record, durable=changed, standing=True)
        except OSError as error:
            LOGGER.error("%s cannot be recorded: %s", AUTHOR, error)
            if self.stage is not Stage.ROLLED_BACK:
                self._loop.authority = None
                self._enter(Stage.ROLLED_BACK, f"it cannot be recorded: {error}")
                self._ask(Mode.SHADOW, self.why)
        else:
            self._recorded = record
