"""Raw results: the episodes of every policy, before any statistics."""

import dataclasses
from collections.abc import Sequence

from neorl_train.judging._episodes import Episodes, Trace
from neorl_train.judging._pool import LEARNER
from neorl_train.judging._stretches import Stretch
from neorl_train.judging._table_text import table_text
from neorl_train.judging._tables import Estimate, ResultTables, Role
from neorl_train.judging._wording import decimals, difference, listed, with_interval

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
class Excitation:
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
class Source:
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
    excitation: tuple[Excitation, ...]


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
class Score:
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
    score: Score | None
    source: Source
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

    Args:
        fits: Results of an evaluation on a log.

    Returns:
        The sentences, each with the numbers of one policy, the first seed that is worse; empty if
        there is none.
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
        f"measurements, by {listed(amounts)}. Either it was trained too briefly, or it "
        "deliberately acts differently, and nothing in the log shows that this is better"
    )
