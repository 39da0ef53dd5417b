"""Results of an evaluation, and their files ``evaluation.json`` and ``traces.json``."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from neorl_core import InputError, Spec
from neorl_core.costs import limit_kind
from neorl_core.infrastructure import Binder, check_head, head, write_text
from neorl_core.infrastructure.command_line import one_line
from neorl_train.judging._pool import LEARNER
from neorl_train.judging._tables import Estimate, ResultTables, Role
from neorl_train.judging._wording import (
    decimals,
    difference,
    enumeration,
    table_text,
    with_interval,
    with_unit,
)
from neorl_train.runs._directory import EVALUATION, TRACES

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
        when: Time of its first row on the clock of the log, with its zone; empty if unknown.
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
    when: str = ""

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
    distance = with_unit(with_interval(fit.difference, decimals([fit.difference])), fit.unit)
    return (
        f"{fit.policy} on held-out rows, {fit.channel}: {distance} from the log's "
        f"action on average (R2 {fit.explained:z.2f})"
    )


def line_warnings(fits: Sequence[ActionFit], candidate: str = "") -> list[str]:
    """Warns about every learner that linear feedback beats at reproducing the logged actions.

    Controllers are left out: a retuned one is meant to act otherwise, and one that was fitted to
    the log is described where it is fitted.

    Each sentence has the numbers of one policy, the first seed that is worse.

    Args:
        fits: Actions of all policies beside the logged ones.
        candidate: Policy of the verdict. If it is a controller, the learners beside it concern
            nobody, and nothing is said of them.
    """
    if any(fit.policy == candidate and fit.family != LEARNER for fit in fits):
        return []
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
        amount = with_unit(difference(fit.beyond_line, digits), fit.unit)
        amounts.append(f"{amount} of {fit.channel}")
    return (
        "its action is farther from the logged one than a linear function of the same "
        f"measurements, by {enumeration(amounts)}. Either it was trained too briefly, or it "
        "deliberately acts differently, and nothing in the log shows that this is better"
    )


T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Converts dataclasses, tuples and arrays to JSON data.

    NaN becomes ``null``, and infinities become ``"inf"`` and ``"-inf"``, because JSON has no such
    numbers.
    """
    return _BINDER.plain(value)


def from_plain(kind: type[T], plain: Any) -> T:
    """Inverse of :func:`to_plain` for a type made of dataclasses, tuples, arrays and scalars.

    Raises:
        InputError: If a field is missing, unknown or of another type; the message names its path.
    """
    return _BINDER.bound(kind, plain)


def _array(hint: Any, plain: Any, where: str) -> Any:
    """Reads a value that is annotated as an array of a known rank."""
    if not hasattr(hint, "dtypes"):
        return NotImplemented
    dtype_name = str(hint.dtypes[0])
    dtype = np.float64 if "float" in dtype_name else np.bool_ if "bool" in dtype_name else np.int64
    try:
        array = np.array(_numbers(plain), dtype)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where} must be an array of numbers with rows of equal length"
        ) from error
    rank = len(hint.dim_str.split())
    if not isinstance(plain, list) or (array.ndim != rank and array.size > 0):
        raise InputError(f"{where} must be an array with {rank} axes, got {array.ndim} axes")
    return array


def _numbers(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_numbers(entry) for entry in plain]
    if plain is None:
        return math.nan
    return float(plain) if plain in ("inf", "-inf") else plain


_BINDER = Binder(complete=True, number=_numbers, special=_array)


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The object in a file, whose head must be as given, without that head."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no such file, because the run was not evaluated; resume the run"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({one_line(error)}); `neorl-train resume` evaluates the run again"
        ) from None
    return check_head(content, kind, version, str(path))


def decode(path: Path, decode: Callable[..., T], *content: dict[str, Any]) -> T:
    """Applies ``decode`` to the content of a file; its errors name the file."""
    try:
        return decode(*content)
    except InputError as error:
        raise InputError(f"{path}: {error}; `neorl-train resume` evaluates the run again") from None


VERSION = 1
"""Version of both files."""


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of ``evaluation.json``: tables, episodes and units; rows are left out."""
    plain = to_plain(evaluation)
    del plain["traces"], plain["stretches"]
    spec = evaluation.tables.spec
    units = {
        "return": evaluation.tables.reward_unit,
        "length": f"steps of {spec.dt:g} s",
        "cost": {channel.name: channel.unit for channel in spec.cost},
        "action": {channel.name: channel.unit for channel in spec.action},
        "fraction": "1",
    }
    return {**head("evaluation", VERSION), "units": units, **plain}


def traces_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of ``traces.json``: episodes and stretches of a log, row by row."""
    spec = evaluation.tables.spec
    units = {
        field: {channel.name: channel.unit for channel in getattr(spec, field)}
        for field in ("obs", "action", "cost")
    }
    return {
        **head("traces", VERSION),
        "units": {**units, "reward": evaluation.tables.reward_unit},
        "period_s": spec.dt,
        "traces": to_plain(evaluation.traces),
        "stretches": to_plain(evaluation.stretches),
    }


def evaluation_from_json(evaluation: dict[str, Any], traces: dict[str, Any]) -> Evaluation:
    """Inverse of :func:`evaluation_to_json` and :func:`traces_to_json`, without their heads."""
    plain = {name: value for name, value in evaluation.items() if name != "units"}
    # Older files of this version have no scores in a Gymnasium environment, and keep nothing.
    plain["tables"] = {"judge": "", "scores": [], "kept": "", **plain["tables"]}
    rows = {name: traces[name] for name in ("traces", "stretches") if name in traces}
    return from_plain(Evaluation, {**plain, **rows})


def write_evaluation(run: str | os.PathLike[str], evaluation: Evaluation) -> None:
    """Writes both files into a run directory, each completely or not at all.

    Args:
        run: Run directory.
        evaluation: Results of the evaluation.

    Raises:
        OSError: If a file cannot be written.
    """
    for name, content in (
        (EVALUATION, evaluation_to_json(evaluation)),
        (TRACES, traces_to_json(evaluation)),
    ):
        write_text(
            Path(run) / name, json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
        )


def read_evaluation(run: str | os.PathLike[str]) -> Evaluation:
    """The evaluation of a run.

    Raises:
        InputError: If a file is missing, damaged or of another version; the message names it.
    """
    path = Path(run) / EVALUATION
    evaluation = read_json(path, "evaluation", VERSION)
    traces = read_json(path.with_name(TRACES), "traces", VERSION)
    return decode(path, evaluation_from_json, evaluation, traces)
