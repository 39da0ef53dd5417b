"""Raw results: the episodes of every policy, before any statistics."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from neorl_core import Spec
from neorl_core.costs import limit_kind
from neorl_train.judging._pool import LEARNER
from neorl_train.judging._tables import Estimate, ResultTables, Role
from neorl_train.judging._wording import (
    decimals,
    difference,
    enumeration,
    table_text,
    with_interval,
)

SMALLEST = 1e-3
"""Fraction of a channel's range below which a move does not count as a reversal."""
TYPICAL, LOWEST, HARDEST = "typical", "lowest return", "closest to the limits"


@dataclasses.dataclass(frozen=True)
class Episodes:
    """Results of one policy, one entry for each episode.

    Attributes:
        returns: Undiscounted sum of the reward, in the unit of the reward.
        length: Number of steps.
        cost_sum: Sum of every cost over the episode, in the unit of the cost.
        cost_worst: Largest cost of one step.
        steps_over: Steps with a cost above its limit per step, or above zero if the limit is per
            episode.
        violated: Whether the limit was broken, by a step or by the sum over the episode.
        success: Whether the episode ended successfully; ``None`` in a log, which does not record
            it.
        trip: Whether the plant ended the episode without success; ``None`` in a log.
        filtered: Steps in which the guard changed the action while the policy kept acting.
        fallback: Steps in which the fallback acted.
        alarms: Monitors that raised an alarm in any step, one bit each in the order of the guard.
        travel: Total travel of every actuator over the episode, in its unit.
        reversals: Number of times that every actuator reversed.
        terms: Terms of the return, each in its unit; none if none are declared.
    """

    returns: Float[np.ndarray, " episode"]
    length: Int[np.ndarray, " episode"]
    cost_sum: Float[np.ndarray, "episode cost"]
    cost_worst: Float[np.ndarray, "episode cost"]
    steps_over: Int[np.ndarray, "episode cost"]
    violated: Bool[np.ndarray, "episode cost"]
    success: Bool[np.ndarray, " episode"] | None
    trip: Bool[np.ndarray, " episode"] | None
    filtered: Int[np.ndarray, " episode"]
    fallback: Int[np.ndarray, " episode"]
    alarms: Int[np.ndarray, " episode"]
    travel: Float[np.ndarray, "episode act"]
    reversals: Int[np.ndarray, "episode act"]
    terms: Float[np.ndarray, "episode term"]

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.returns)

    def reorder(self, order: Int[np.ndarray, " episode"]) -> "Episodes":
        """The episodes in another order."""
        columns: dict[str, Any] = {
            name: None if column is None else column[order] for name, column in vars(self).items()
        }
        return Episodes(**columns)


def limited_quantity(episodes: Episodes, spec: Spec, cost: int) -> np.ndarray:
    """The quantity that the limit of a cost bounds, per episode: largest step, or sum."""
    kind = limit_kind(spec.cost[cost])
    return kind.of_episode(total=episodes.cost_sum, worst=episodes.cost_worst)[:, cost]


@dataclasses.dataclass(frozen=True)
class Trace:
    """One episode, row by row, trimmed to its length; physical units.

    Attributes:
        label: Why it was stored: ``"typical"`` (median return of the candidate), ``"lowest
            return"`` or ``"closest to the limits"``; ``"start 12"`` for one of those between the
            largest loss and the largest gain.
        policy: Name of the policy that acted.
        guarded: Whether it acted through the guard.
        start: Number of the start, which identifies the paired episodes.
        obs: Observations, the first one before the first step, shape ``(time + 1, obs)``.
        action: Requested actions, shape ``(time, act)``.
        applied: Actions that the plant received, shape ``(time, act)``.
        reward: Reward of each step, shape ``(time,)``.
        cost: Costs of each step, shape ``(time, cost)``.
        flags: Decisions of the guard, bits of ``neorl_safety.filters.Flag``, shape ``(time,)``.
    """

    label: str
    policy: str
    guarded: bool
    start: int
    obs: Float[np.ndarray, "time obs"]
    action: Float[np.ndarray, "time act"]
    applied: Float[np.ndarray, "time act"]
    reward: Float[np.ndarray, " time"]
    cost: Float[np.ndarray, "time cost"]
    flags: Int[np.ndarray, " time"]


BEST, MEDIAN, WORST = "best", "median", "worst"


@dataclasses.dataclass(frozen=True)
class Stretch:
    """At most a day of a log: the actions, a policy's proposals, and the coverage of the log.

    Attributes:
        label: ``"best"``, ``"median"`` or ``"worst"``, by the mean logged reward per step.
        policy: Name of the policy that made the proposals.
        episode: Number of the episode in the log.
        first: Number of its first row within the episode.
        stamp: Time of its first row in seconds since 1970 UTC; NaN if the log has no time stamps.
        held_out: Whether the policy was not trained on the episode.
        reward: Mean logged reward per step.
        channels: Names of the observations to show.
        obs: Their logged values, shape ``(time, channel)``.
        logged: Actions that the plant received, shape ``(time, act)``.
        proposed: Actions that the guarded policy proposed in the logged situations, shape ``(time,
            act)``.
        low: Smallest action of the log in similar situations, shape ``(time, act)``.
        high: Largest action of the log in similar situations, shape ``(time, act)``.
        cost: Logged costs, shape ``(time, cost)``.
        flags: Decisions of the guard, bits of ``neorl_safety.filters.Flag``, shape ``(time,)``.
        known: Rows without an unknown value, shape ``(time,)``.
    """

    label: str
    policy: str
    episode: int
    first: int
    stamp: float
    held_out: bool
    reward: float
    channels: tuple[str, ...]
    obs: Float[np.ndarray, "time channel"]
    logged: Float[np.ndarray, "time act"]
    proposed: Float[np.ndarray, "time act"]
    low: Float[np.ndarray, "time act"]
    high: Float[np.ndarray, "time act"]
    cost: Float[np.ndarray, "time cost"]
    flags: Int[np.ndarray, " time"]
    known: Bool[np.ndarray, " time"]

    def outside(self, action: Float[np.ndarray, "time act"]) -> Bool[np.ndarray, "time act"]:
        """Where actions lie outside the range of the log's actions in similar situations.

        Args:
            action: :attr:`proposed` or :attr:`logged`.
        """
        slack = 1e-6 * (1 + np.abs(self.high) + np.abs(self.low))  # of single precision
        beyond = (action < self.low - slack) | (action > self.high + slack)
        return beyond & self.known[:, None]


LOG = "log"
BEHAVIOUR = "logged behaviour"
"""The policies that generated the log, which take turns in paired episodes."""
MEAN, LINE = "mean action", "linear feedback"
"""Policies fitted without learning: a constant, and least squares on the observation."""


@dataclasses.dataclass(frozen=True)
class PolicyResult:
    """Episodes of one policy, with or without guard.

    Attributes:
        name: Name of the policy, for example ``"iql-0"``.
        group: Name of the learner of which it is one seed, for example ``"iql"``; otherwise its own
            name.
        role: ``"learner"``; ``"classical"``, a controller of the plant; ``"behaviour"``, the
            policies that generated the log, in paired episodes; ``"log"``, the recorded episodes,
            which have their own starts.
        guarded: Whether it acted through the guard.
        episodes: Results of each paired or recorded episode.
        seeds: Seeds of its training; none for a controller.
    """

    name: str
    group: str
    role: Role
    guarded: bool
    episodes: Episodes
    seeds: tuple[int, ...] = ()

    @property
    def paired(self) -> bool:
        """Whether its episodes are paired with those of other policies."""
        return self.role != LOG


@dataclasses.dataclass(frozen=True)
class Band:
    """Soft limits of one observed channel, in its unit; infinite if there is none.

    Attributes:
        channel: Name of the channel.
        low: Lower limit.
        high: Upper limit.
    """

    channel: str
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class ChannelExcitation:
    """Movements of one manipulated variable while the log was recorded.

    Attributes:
        channel: Name of the variable.
        unit: Unit of ``signal`` and ``deviation``.
        signal: Amplitude of the test signal.
        manual: Fraction of the steps in manual mode.
        deviation: Standard deviation of the action that the plant received.
    """

    channel: str
    unit: str
    signal: float
    manual: float
    deviation: float


@dataclasses.dataclass(frozen=True)
class LogDescription:
    """The log that was used for training.

    Attributes:
        name: Name of the data.
        rows: Number of transitions.
        episodes: Number of episodes.
        content_hash: Hash of the file's content.
        attribution: Owner and licence of the data; empty for a log of the simulator.
        excitation: Excitation of each manipulated variable, if the log states it.
    """

    name: str
    rows: int
    episodes: int
    content_hash: str
    attribution: str
    excitation: tuple[ChannelExcitation, ...]


@dataclasses.dataclass(frozen=True)
class ActionFit:
    """One action channel of one policy compared with the logged action.

    Attributes:
        policy: Name of the policy.
        channel: Name of the action channel.
        unit: Unit of ``difference`` and ``deviation``.
        difference: Mean over the episodes of the mean absolute difference.
        deviation: Standard deviation of the logged action, as a scale for ``difference``.
        explained: Fraction of the variance of the logged action that the policy's action explains:
            1 for the same action in every step, 0 if it is no better than the mean action.
        n_episodes: Number of episodes.
        n_rows: Number of rows.
        beyond_line: Paired difference between ``difference`` and that of linear feedback, per
            episode; ``None`` for linear feedback itself, and if it was not fitted.
        group: What the seeds of one learner have in common; otherwise the name of the policy.
        family: Family of the candidate; empty for a controller that is only compared.
    """

    policy: str
    channel: str
    unit: str
    difference: Estimate
    deviation: float
    explained: float
    n_episodes: int
    n_rows: int
    beyond_line: Estimate | None = None
    group: str = ""
    family: str = ""

    @property
    def worse_than_line(self) -> bool:
        """Whether linear feedback is closer to the logged action; the whole interval is above 0."""
        return self.beyond_line is not None and self.beyond_line.low > 0


@dataclasses.dataclass(frozen=True)
class LogScore:
    """``100 (return - low) / (high - low)`` of the mean return of a log.

    Attributes:
        benchmark: Name of the benchmark that defines the formula and the references.
        low: Return that scores 0.
        high: Return that scores 100.
        log: Score of the log, in points.
    """

    benchmark: str
    low: float
    high: float
    log: Estimate


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation.

    Attributes:
        tables: Means with intervals: everything on which the verdict depends.
        results: Episodes behind them, by policy and guard.
        traces: A few episodes row by row, of the guarded candidate and of the reference.
        bands: Limits of observed channels to draw in trends.
        imitation: How each learner's actions compare with the logged ones on episodes not used for
            training; empty if there was a simulator.
        score: Score of the log by the published formula, if one is known.
        source: Description of the log.
        stretches: Best, median and worst stretch of the log with the candidate's proposals there;
            empty if there was a simulator.
    """

    tables: ResultTables
    results: tuple[PolicyResult, ...]
    traces: tuple[Trace, ...]
    bands: tuple[Band, ...]
    imitation: tuple[ActionFit, ...]
    score: LogScore | None
    source: LogDescription
    stretches: tuple[Stretch, ...] = ()

    def __repr__(self) -> str:
        """The tables as aligned text: every policy with its return, gain and costs."""
        return "\n".join([table_text(self.tables), *map(fit_line, self.imitation)])


def fit_line(fit: ActionFit) -> str:
    """Describes one action of one policy compared with the logged action."""
    difference = with_interval(fit.difference, decimals([fit.difference]))
    return (
        f"{fit.policy} on held-out rows, {fit.channel}: {difference} {fit.unit} from the log's "
        f"action on average (R2 {fit.explained:.2f})"
    )


def line_warnings(fits: Sequence[ActionFit]) -> list[str]:
    """Warns about every learner that linear feedback beats at reproducing the logged actions.

    Controllers are left out: a retuned one is meant to act otherwise, and one that was fitted to
    the log is described where it is fitted.

    Each sentence has the numbers of one policy, the first seed that is worse.
    """
    worse: dict[str, dict[str, list[ActionFit]]] = {}
    for fit in fits:
        if fit.worse_than_line and fit.family == LEARNER:
            worse.setdefault(fit.group, {}).setdefault(fit.policy, []).append(fit)
    first = [next(iter(policies.items())) for policies in worse.values()]
    return [f"{policy} is worse than a straight line: {_beyond(of)}" for policy, of in first]


def _beyond(fits: Sequence[ActionFit]) -> str:
    """Describes the shortfall, channel by channel, and its consequence."""
    amounts = []
    for fit in fits:
        assert fit.beyond_line is not None
        digits = decimals([fit.beyond_line])
        amounts.append(f"{difference(fit.beyond_line, digits)} {fit.unit} of {fit.channel}")
    return (
        "its action is farther from the logged one than a linear function of the same "
        f"measurements, by {enumeration(amounts)}. Either it was trained too briefly, or it "
        "deliberately acts differently, and nothing in the log shows that this is better"
    )
