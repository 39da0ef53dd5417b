"""A policy's way into the plant: shadow, turns with bounded authority, full; and back."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.loop._authority import Authority
from neorl_deploy.loop._control import ControlLoop
from neorl_deploy.loop._cycle import Cycle
from neorl_deploy.loop._modes import Mode
from neorl_deploy.loop._tags import read_row

WHO = "the roll-out"
DEFAULT_TURNS = 10
EPISODES = re.compile(r"About (\d+) episodes of each")
"""How a verdict "worth a trial" says the length of the trial."""


class Stage(enum.StrEnum):
    """Where a roll-out stands."""

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
    ROLLED_BACK = "rolled back"
    """A rule was broken, or a person has taken over: only a person begins anew."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan of a roll-out, as its file has it.

    Attributes:
        limits: Lowest and highest good value by observed channel; a step outside is a violation.
        shadow_steps: Steps in shadow before the first turn.
        turn_steps: Steps of every turn.
        turns: Turns of the policy; as many of what runs today lie between them.
        authority: Part of the range of every actuator by which the policy may lead it away, in a
            turn, from where it was.
        window: Steps over which the policy is judged once it has the full authority.
        most_fallback: Part of the policy's steps in which its fallback may act.
        chance: Largest chance, if the policy broke the limits no more often than what runs today,
            of seeing as many violations as were seen, at which it is rolled back.
        full: ``"ask"``, a person gives the full authority, or ``"automatic"``.
        rollback: ``"fallback"``: the fallback of the bundle acts until a person asks anew; or
            ``"shadow"``: nothing is written any more.
    """

    limits: dict[str, tuple[float, float]]
    shadow_steps: int = 100
    turn_steps: int = 50
    turns: int = DEFAULT_TURNS
    authority: float = 0.1
    window: int = 200
    most_fallback: float = 0.1
    chance: float = 0.05
    full: str = "ask"
    rollback: str = "fallback"


def draft_plan(manifest: Manifest) -> str:
    """A plan as a file to be completed, from the verdict and the channels of a bundle.

    A turn is one episode, and there are as many turns as the verdict "worth a trial" asks episodes
    for; ten where it says none.
    """
    sentence = str(manifest.document["verdict"].get("sentence", ""))
    found = EPISODES.search(sentence)
    turns = int(found[1]) if found else DEFAULT_TURNS
    lines = [
        f"# Plan of a roll-out, drafted from the bundle of run {manifest.run}.",
        f"turns = {turns}           # of the policy, in turns with what runs today"
        + ("; as the verdict asks" if found else ""),
        f"turn_steps = {manifest.horizon}      # an episode",
        f"shadow_steps = {2 * manifest.horizon}",
        "authority = 0.1      # part of an actuator's range, from where it was at the turn's begin",
        "most_fallback = 0.1  # part of the policy's steps",
        'full = "ask"         # or "automatic"',
        'rollback = "fallback"  # or "shadow"',
        "",
        "# A step outside is a violation: write what is good, not what can be measured.",
        "[limits]",
        *(f'"{one.name}" = [{one.low!r}, {one.high!r}]  # {one.unit}' for one in manifest.obs),
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
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DeployError(f"cannot read the plan {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise DeployError(f"the plan {path} is not valid TOML: {error}") from error
    limits = _limits(document.pop("limits", None), manifest, str(path))
    plan = read_row({**document, "limits": limits}, Plan, str(path))
    parts = {"authority": plan.authority, "most_fallback": plan.most_fallback}
    parts["chance"] = plan.chance
    for name, value in parts.items():
        if not 0 < value <= 1:
            raise DeployError(f"{path}: {name} is a part, above 0 and at most 1, got {value:g}")
    for name, words in (("full", ("ask", "automatic")), ("rollback", ("fallback", "shadow"))):
        if getattr(plan, name) not in words:
            raise DeployError(f"{path}: {name} is {' or '.join(map(repr, words))}")
    return plan


def _limits(table: Any, manifest: Manifest, source: str) -> dict[str, tuple[float, float]]:
    names = [one.name for one in manifest.obs]
    if not isinstance(table, dict) or not table:
        raise DeployError(f"{source}: [limits] says which values are good, and is missing")
    limits = {}
    for name, ends in table.items():
        if name not in names:
            raise DeployError(f"{source}, [limits]: the bundle observes no {name!r}")
        pair = isinstance(ends, list) and len(ends) == 2
        if not (pair and all(type(end) in (int, float) for end in ends) and ends[0] < ends[1]):
            raise DeployError(f"{source}, [limits]: {name} is [lowest, highest], got {ends!r}")
        limits[name] = (float(ends[0]), float(ends[1]))
    return limits


class Count(NamedTuple):
    """What was counted of somebody's steps.

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
    in the audit log as asked by the roll-out. It begins anew, in shadow, with every process.

    Args:
        plan: The plan.
        loop: The loop; its authority belongs to the roll-out.

    Attributes:
        stage: Where it stands.
        why: Why it stands there, in words.
        policy: Counts of the policy's turns.
        today: Counts of the turns, and of the shadow, of what runs today.
    """

    def __init__(self, plan: Plan, loop: ControlLoop) -> None:
        self.plan, self._loop = plan, loop
        self.stage, self.why = Stage.WAITING, "a person begins it"
        self.policy, self.today = Count(), Count()
        self._left = self._turn = 0
        self._last: collections.deque[tuple[bool, bool]] = collections.deque(maxlen=plan.window)
        channels = loop.runtime.manifest.action
        self._width = np.array([plan.authority * (c.high - c.low) for c in channels])
        names = [one.name for one in loop.runtime.manifest.obs]
        self._rules = [(names.index(name), *ends) for name, ends in plan.limits.items()]

    def begin(self, by: str) -> None:
        """A person begins it: shadow first.

        Args:
            by: Who, and why; it is recorded.
        """
        self.policy, self.today, self._turn = Count(), Count(), 0
        self._go(Stage.SHADOW, f"begun by {by}")
        self._left = self.plan.shadow_steps
        self._loop.ask(Mode.SHADOW, f"{WHO}, begun by {by}")

    def give_full(self, by: str) -> None:
        """A person gives the policy the full authority, once its turns are over.

        Args:
            by: Who, and why; it is recorded.

        Raises:
            ValueError: If the turns are not over.
        """
        if self.stage is not Stage.PASSED:
            raise ValueError(f"the roll-out stands at {self.stage}; full authority follows on it")
        self._full(by)
        self._loop.ask(Mode.CLOSED_LOOP, f"{WHO}, full authority given by {by}")

    def after(self, cycle: Cycle) -> None:
        """Counts a cycle, and goes on to the next stage, or back.

        Args:
            cycle: The cycle that has ended.
        """
        if self.stage in (Stage.WAITING, Stage.PASSED, Stage.ROLLED_BACK):
            return
        acts = self.stage in (Stage.TRIAL_TURN, Stage.FULL)
        if why := self._ended(cycle, acts=acts):
            self._loop.authority = None
            self._go(Stage.ROLLED_BACK, why)
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
        if self._loop.target is not (Mode.CLOSED_LOOP if acts else Mode.SHADOW):
            return f"{self._loop.target} was asked for, or the loop let go: {cycle.reason}"
        return ""

    def _count(self, cycle: Cycle, *, acts: bool) -> None:
        obs = cycle.measured.obs
        violation = any(not low <= obs[i] <= high for i, low, high in self._rules)
        seen = any(np.isfinite(obs[i]) for i, _, _ in self._rules)
        if acts and cycle.mode not in (Mode.CLOSED_LOOP, Mode.FALLBACK):
            return  # the loop is not closed yet
        self._left -= 1
        fallback = cycle.mode is Mode.FALLBACK
        if not seen:
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
