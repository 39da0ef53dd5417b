"""Computes the rows of a log in pieces of bounded size: first the flags, then the columns."""

import dataclasses
import datetime
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.plant_logs._configuration import BEFORE, OBSERVED, PlantLog
from neorl_envs.plant_logs._expressions import Expression
from neorl_envs.plant_logs._tables import Words
from neorl_envs.plant_logs._timeline import (
    Period,
    Piece,
    TagSamples,
    Timeline,
    excluded_periods,
    period_of,
    piece,
    without_excluded,
    words_of,
)

# Cuts stretches of time into rows of a dataset: where episodes end, and which rows are masked.


REASONS = (
    "",
    "obs unknown",
    "action unknown",
    "next_obs unknown",
    "reward unknown",
    "cost unknown",
    "in manual",
)
"""Reasons for which a row is masked."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """The parsed expressions and excluded periods of a configuration."""

    reward: Expression
    costs: tuple[Expression, ...]
    running: Expression | None
    trip: Expression | None
    terms: tuple[Expression, ...] = ()
    excluded: tuple[Period, ...] = ()


def rules(config: PlantLog, source: str) -> Rules:
    """Parses every expression, and the times of every excluded period.

    Raises an ``InputError`` naming the file, the key and the problem.
    """
    names = [tag.name for tag in config.numbers]
    names += [BEFORE + name for name in names]

    def read(text: str, key: str) -> Expression:
        return Expression(text, names, f"{source}: {key}")

    conditions = {
        key: read(text, f"episodes.{key}") if (text := getattr(config.episodes, key)) else None
        for key in ("running", "trip")
    }
    return Rules(
        reward=read(config.reward.expression, "reward.expression"),
        costs=tuple(read(c.expression, f"cost {c.name!r}") for c in config.costs),
        terms=tuple(read(t.expression, f"term {t.name!r}") for t in config.terms),
        excluded=excluded_periods(config, source),
        **conditions,
    )


class Span(NamedTuple):
    """Some rows of a stretch, and the samples that they depend on.

    Attributes:
        begin: First sample, :func:`look_back` samples before the first row where possible.
        first: First row.
        last: One past the last row, which is also the sample that the last row leads to.
    """

    begin: int
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class Signals:
    """Signals that determine the rows of a stretch; a row leads from one sample to the next.

    Attributes:
        block: For every sample, the number of the run of the plant that it belongs to; -1 for
            none.
        tripped: For every sample, whether the plant has tripped.
        excluded: For every sample, the number of the ``[[exclude]]`` period that it lies in,
            counted from 1; 0 for none.
        cut: For every row, whether a mode or the behaviour changes after it.
        behaviour: For every row, the code of who ran the plant; -1 where that is unknown.
        unknown: For every row, the index in ``REASONS`` of its first unknown part; 0 for none.
        acted: For every row, whether the action is known.
    """

    block: Int[np.ndarray, " sample"]
    tripped: Bool[np.ndarray, " sample"]
    excluded: Int[np.ndarray, " sample"]
    cut: Bool[np.ndarray, " row"]
    behaviour: Int[np.ndarray, " row"]
    unknown: Int[np.ndarray, " row"]
    acted: Bool[np.ndarray, " row"]

    @classmethod
    def of(cls, n_samples: int) -> "Signals":
        """Signals before any row has been examined."""
        rows = max(n_samples - 1, 0)
        return cls(
            np.full(n_samples, -1, np.int32),
            np.zeros(n_samples, np.bool_),
            np.zeros(n_samples, np.int16),
            np.zeros(rows, np.bool_),
            np.full(rows, -1, np.int32),
            np.zeros(rows, np.int8),
            np.zeros(rows, np.bool_),
        )


@dataclasses.dataclass(frozen=True)
class Flags:
    """Flags of the rows of a stretch, and who ran the plant in each of them.

    Rows that are not included do not enter the dataset.
    """

    included: Bool[np.ndarray, " row"]
    terminated: Bool[np.ndarray, " row"]
    truncated: Bool[np.ndarray, " row"]
    mask: Bool[np.ndarray, " row"]
    behaviour: Int[np.ndarray, " row"]


def flags(signals: Signals, config: PlantLog, counts: Counter[str]) -> Flags:
    """Marks the ends of episodes, and the rows that are masked or left out.

    ``counts``, of masked and omitted rows by reason, is updated in place.
    """
    now, following = signals.block[:-1], signals.block[1:]
    trips = signals.tripped[1:] & (now >= 0)
    usable = (now >= 0) & ((following == now) | trips)
    out = excluded_rows(signals) > 0
    counts["rows in shutdown or between batches"] += int((~usable & ~out).sum())
    counts["excluded by plant.toml"] += int(out.sum())
    if config.of_role("behaviour"):
        nobody = usable & (signals.behaviour < 0)
        counts["left out: behaviour unknown"] += int(nobody.sum())
        usable &= ~nobody
    terminated = usable & trips
    ended = terminated | ~np.append(usable[1:], False) | signals.cut
    ended = (ended | _length_ends(ended & usable, usable, config.episodes.length)) & usable
    known = signals.unknown == 0
    included = _without_unknown_ends(usable, ended, terminated, known, counts)
    for index, reason in enumerate(REASONS[1:], 1):
        counts[f"masked: {reason}"] += int((included & (signals.unknown == index)).sum())
    # A row that is left out ends the episode of the row above it.
    ended = (ended | ~np.append(included[1:], False)) & included
    follows = ended | np.append(signals.acted[1:], False)
    counts["masked: next action unknown"] += int((included & known & ~follows).sum())
    truncated = ended & ~terminated
    return Flags(included, terminated & included, truncated, known & follows, signals.behaviour)


def excluded_rows(signals: Signals) -> Int[np.ndarray, " row"]:
    """The number of the excluded period that removes each row, counted from 1; 0 for none.

    A row that leads into a period is removed too, since its outcome must not be used.
    """
    now, following = signals.excluded[:-1], signals.excluded[1:]
    return np.where(now > 0, now, following)


def add_signals(
    signals: Signals, part: Piece, config: PlantLog, rule: Rules, span: Span, last_block: int
) -> dict[str, np.ndarray]:
    """Writes the signals of some rows; those of all earlier rows must have been written.

    ``part`` has all tags from sample ``span.begin`` to ``span.last``. ``signals`` are updated in
    place; ``last_block`` is the largest ``signals.block`` so far.
    """
    begin, first, last = span
    excluded = period_of(part.at, rule.excluded)
    alive, tripped, new = _operation(part, config, rule, excluded > 0)
    fresh = first + 1 if first else 0
    new_samples = slice(fresh - begin, None)
    signals.excluded[fresh : last + 1] = excluded[new_samples]
    numbers = last_block + np.cumsum(new[new_samples])
    signals.block[fresh : last + 1] = np.where(alive[new_samples], numbers, -1)
    signals.tripped[fresh : last + 1] = tripped[new_samples]
    columns = rows_of(part, config, rule, signals.block[begin : last + 1], first - begin)
    signals.cut[first:last] = _cuts(part, config)[first - begin :]
    for tag in config.of_role("behaviour"):
        code = np.nan_to_num(part.values[tag.name], nan=-1.0)
        signals.behaviour[first:last] = code[first - begin : -1]
    signals.unknown[first:last] = _unknown(columns, config)
    signals.acted[first:last] = np.isfinite(columns["action"]).all(axis=1)
    return columns


def look_back(config: PlantLog) -> int:
    """Number of earlier samples that a row depends on."""
    return max(config.history.steps - 1, 2)


def _operation(
    part: Piece, config: PlantLog, rule: Rules, excluded: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three flags per sample: the plant runs, it has tripped, a new run begins here."""
    conditions = part.before_and_now()
    n = len(part.at)
    alive, tripped = ~excluded, np.zeros(n, np.bool_)
    if rule.running is not None:
        alive &= rule.running.condition(conditions, part.at)
    if rule.trip is not None:
        tripped = rule.trip.condition(conditions, part.at)
        alive &= ~tripped
    new = np.zeros(n, np.bool_)
    for tag in config.of_role("batch"):
        batch = part.values[tag.name]
        alive &= ~np.isnan(batch)
        new[1:] |= batch[1:] != batch[:-1]
    new[1:] |= alive[1:] != alive[:-1]
    return alive, tripped, new


def _cuts(part: Piece, config: PlantLog) -> np.ndarray:
    """Rows after which a mode changed, if that ends an episode, or who ran the plant."""
    cut = np.zeros(len(part.at) - 1, np.bool_)
    ending = ("mode", "behaviour") if config.episodes.mode_change else ("behaviour",)
    for tag in config.of_role(*ending):
        word = np.nan_to_num(part.values[tag.name], nan=-1.0)
        cut |= word[1:] != word[:-1]
    return cut


def rows_of(
    part: Piece, config: PlantLog, rule: Rules, block: np.ndarray, first: int
) -> dict[str, np.ndarray]:
    """The columns of the rows of a piece, beginning with row ``first``.

    Earlier rows only supply history. ``block`` is that of :class:`Signals`.
    """
    steps = part.of_steps(config)
    obs = _observations(part, config, block)
    modes = _manual(part, config)
    setpoints = config.of_role("setpoint")
    costs = [cost(steps) for cost in rule.costs]
    optional: dict[str, np.ndarray] = {}
    if modes is not None:
        optional["mode"] = modes[:-1]
    if setpoints:
        optional["setpoint"] = _stack(part, setpoints)[:-1]
    if rule.terms:
        amounts = np.stack([term(steps) for term in rule.terms], axis=1)
        optional["term"] = np.where(np.isfinite(amounts), amounts, np.nan)
    reward = rule.reward(steps)
    columns = {
        "obs": obs[:-1],
        "action": _stack(part, config.of_role("manipulated"))[:-1],
        "reward": np.where(np.isfinite(reward), reward, np.nan),
        "cost": np.stack([np.where(np.isfinite(c), c, np.nan) for c in costs], axis=1)
        if costs
        else np.zeros((len(reward), 0)),
        "next_obs": obs[1:],
        "time": part.at[:-1] / 1e9,
        **optional,
    }
    return {name: column[first:] for name, column in columns.items()}


def _stack(part: Piece, tags: Any) -> np.ndarray:
    return np.stack([part.values[tag.name] for tag in tags], axis=1)


def _observations(part: Piece, config: PlantLog, block: np.ndarray) -> np.ndarray:
    """Observed tags now and at earlier times of the same run of the plant."""
    now = _stack(part, config.of_role(*OBSERVED))
    actions = _stack(part, config.of_role("manipulated"))
    parts = [now]
    for back in range(1, config.history.steps):
        same = np.zeros(len(now), np.bool_)
        same[back:] = block[back:] == block[:-back]
        for column in (now, actions) if config.history.actions else (now,):
            earlier = np.full_like(column, np.nan)
            earlier[back:] = column[:-back]
            parts.append(np.where(same[:, None], earlier, np.nan))
    return np.concatenate(parts, axis=1)


def _manual(part: Piece, config: PlantLog) -> np.ndarray | None:
    """Which manipulated variables are in manual; an unknown mode counts as manual."""
    modes = config.of_role("mode")
    if not modes:
        return None
    actions = [tag.name for tag in config.of_role("manipulated")]
    manual = np.zeros((len(part.at), len(actions)), np.bool_)
    for tag in modes:
        automatic = part.values[f"{tag.name} is automatic"] == 1
        for i, name in enumerate(actions):
            if not tag.of or name in tag.of:
                manual[:, i] |= ~automatic
    return manual


def _unknown(columns: dict[str, np.ndarray], config: PlantLog) -> np.ndarray:
    """The first unknown part of every row, as an index in ``REASONS``."""
    unknown = np.zeros(len(columns["reward"]), np.int8)
    for index, name in enumerate(("obs", "action", "next_obs", "reward", "cost"), 1):
        good = np.isfinite(columns[name].reshape(len(unknown), -1)).all(axis=1)
        unknown[(unknown == 0) & ~good] = index
    if config.episodes.manual == "mask" and "mode" in columns:
        unknown[(unknown == 0) & columns["mode"].any(axis=1)] = len(REASONS) - 1
    return unknown


def _length_ends(ended: np.ndarray, usable: np.ndarray, length: int) -> np.ndarray:
    """Additional ends, one after every ``length`` rows of an episode."""
    if not length:
        return np.zeros(len(ended), np.bool_)
    starts = np.append(True, ended[:-1] | ~usable[:-1])
    first = np.maximum.accumulate(np.where(starts, np.arange(len(ended)), 0))
    return usable & ((np.arange(len(ended)) - first) % length == length - 1)


def _without_unknown_ends(
    usable: np.ndarray,
    ended: np.ndarray,
    terminated: np.ndarray,
    known: np.ndarray,
    counts: Counter[str],
) -> np.ndarray:
    """Drops unknown rows from both ends of every episode, except a row that ends in a trip."""
    included = usable.copy()
    starts = np.append(True, ended[:-1] | ~usable[:-1]) & usable
    bounds = np.append(np.flatnonzero(starts), len(usable))
    for start, end in itertools.pairwise(bounds):
        rows = np.arange(start, end)[usable[start:end]]
        if not known[rows].any():
            included[rows] = False
            continue
        informative = np.flatnonzero(known[rows] | terminated[rows])
        included[rows[: informative[0]]] = False
        included[rows[informative[-1] + 1 :]] = False
    counts["left out: unknown at an end of an episode"] += int((usable & ~included).sum())
    return included


MOST_ROWS = 200_000_000


@dataclasses.dataclass
class Stretch:
    """A stretch of the log without a gap that ends an episode.

    Attributes:
        periods: Numbers of the grid periods that it covers.
        signals: Signals that determine its rows; needed until the rows are written.
        flags: Flags of its rows.
        columns: Columns of its rows if they are few enough to keep, otherwise ``None``.
    """

    periods: range
    signals: Signals
    flags: Flags
    columns: dict[str, np.ndarray] | None


class Rows:
    """All rows of a log.

    Args:
        config: The configuration.
        rule: Expressions of the configuration.
        timeline: Samples of the log.
        words: Words of the modes, batches and behaviours.
        period: Period of the grid, nanoseconds.
        at_once: Number of rows in a piece.
        source: Name of the configuration in error messages.

    Attributes:
        counts: Number of rows masked or left out, by reason.
        unknown: For every tag that a row needs, the rows of a running plant in which it is unknown.
        alone: The same, counting only rows in which no other tag is unknown.
        excluded: Number of rows removed by each ``[[exclude]]`` period.
        stretches: Stretches with at least one row that is kept, in order of time.

    Raises:
        DatasetError: If there are implausibly many rows, or an excluded period contains no sample.
    """

    def __init__(
        self,
        config: PlantLog,
        rule: Rules,
        timeline: Timeline,
        words: dict[str, Words],
        *,
        period: int,
        at_once: int,
        source: str,
    ) -> None:
        self._config, self._rule, self._timeline = config, rule, timeline
        self._words, self._period, self._at_once = words, period, at_once
        self._delay = max((round(tag.delay_s * 1e9) for tag in config.tags), default=0)
        n_rows = sum(map(len, timeline.stretches))
        if n_rows > MOST_ROWS:
            raise DatasetError(
                f"{source}: {n_rows} rows of {config.sampling.period_s:g} s; look for "
                "a timestamp far from the others, or choose a longer sampling.period_s"
            )
        self.counts: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.alone: Counter[str] = Counter()
        used = set(rule.reward.roots).union(*(cost.roots for cost in rule.costs))
        self._needed = [
            tag
            for tag in config.numbers
            if tag.role != "auxiliary" or {tag.name, BEFORE + tag.name} & used
        ]
        self.excluded = np.zeros(len(config.excludes), np.int64)
        self._has_samples = np.zeros(len(config.excludes), np.bool_)
        self.stretches: list[Stretch] = []
        # So many rows are kept in memory, so that they need not be computed a second time.
        remaining = at_once
        for periods in timeline.stretches:
            stretch = self._stretch(periods, remaining)
            if stretch is not None and stretch.flags.included.any():
                remaining -= len(periods) if stretch.columns else 0
                self.stretches.append(stretch)
        self.counts["stretches without a gap"] = len(timeline.stretches)
        self._require_samples(source)

    @property
    def n_rows(self) -> int:
        """Number of rows that are kept."""
        return sum(int(stretch.flags.included.sum()) for stretch in self.stretches)

    def flag(self, name: str) -> np.ndarray:
        """The named flag of all rows that are kept."""
        parts = [getattr(s.flags, name)[s.flags.included] for s in self.stretches]
        return np.concatenate(parts) if parts else np.zeros(0, np.bool_)

    def columns(self) -> Iterator[dict[str, np.ndarray]]:
        """Yields the columns of the rows that are kept, piece by piece, in order of time."""
        for stretch in self.stretches:
            included = stretch.flags.included
            if stretch.columns is not None:
                yield {name: column[included] for name, column in stretch.columns.items()}
                continue
            for span in self._pieces(len(stretch.periods)):
                used = included[span.first : span.last]
                if used.any():
                    part = self._piece(stretch.periods, span)
                    block = stretch.signals.block[span.begin : span.last + 1]
                    first = span.first - span.begin
                    columns = rows_of(part, self._config, self._rule, block, first)
                    yield {name: column[used] for name, column in columns.items()}

    def _stretch(self, periods: range, remaining: int) -> Stretch | None:
        if len(periods) < 2:
            self.counts["samples without a successor"] += len(periods)
            return None
        signals, last_block, columns = Signals.of(len(periods)), 0, None
        for span in self._pieces(len(periods)):
            part = self._piece(periods, span)
            columns = add_signals(signals, part, self._config, self._rule, span, last_block)
            self._count_unknown(part, signals, span)
            last_block = int(signals.block[span.first : span.last + 1].max(initial=last_block))
        self._count_excluded(signals)
        whole = len(periods) <= min(remaining, self._at_once)
        row_flags = flags(signals, self._config, self.counts)
        return Stretch(periods, signals, row_flags, columns if whole else None)

    def _count_excluded(self, signals: Signals) -> None:
        """Records which excluded periods contain samples, and how many rows each removes."""
        n = len(self.excluded)
        if n:
            self._has_samples |= np.bincount(signals.excluded, minlength=n + 1)[1:] > 0
            self.excluded += np.bincount(excluded_rows(signals), minlength=n + 1)[1:]

    def _require_samples(self, source: str) -> None:
        """Raises for an excluded period without samples, whose times are probably wrong."""
        for one, has_samples in zip(self._config.excludes, self._has_samples, strict=True):
            if not has_samples:
                reach = ""
                if self._timeline.stretches:
                    ends = self._timeline.stretches[0].start, self._timeline.stretches[-1].stop - 1
                    begin, end = (_utc(period * self._period) for period in ends)
                    reach = f"; its rows reach from {begin} to {end}"
                raise DatasetError(
                    f"{source}: [[exclude]] {words_of(one)}: the log has no row in it{reach}; "
                    "correct from and to, or take the table out"
                )

    def _count_unknown(self, part: Piece, signals: Signals, span: Span) -> None:
        """Counts the unknown tags at the beginning of each row."""
        rows = slice(span.first - span.begin, span.last - span.begin)
        running = signals.block[span.first : span.last] >= 0
        values = [
            part.shifted[tag.name] if tag.role == "auxiliary" else part.values[tag.name]
            for tag in self._needed
        ]
        absent = np.isnan([column[rows] for column in values]) & running
        alone = absent & (absent.sum(axis=0) == 1)
        self.counts["of the running plant"] += int(running.sum())
        for tag, absent_rows, alone_rows in zip(self._needed, absent, alone, strict=True):
            self.unknown[tag.name] += int(absent_rows.sum())
            self.alone[tag.name] += int(alone_rows.sum())

    def _pieces(self, n_samples: int) -> Iterator[Span]:
        for first in range(0, n_samples - 1, self._at_once):
            last = min(first + self._at_once, n_samples - 1)
            yield Span(max(first - look_back(self._config), 0), first, last)

    def _piece(self, periods: range, span: Span) -> Piece:
        numbers = np.arange(periods.start + span.begin, periods.start + span.last + 1)
        times = numbers * self._period
        window = self._timeline.window(int(times[0]), int(times[-1]) + self._delay)
        samples = {tag.name: one for tag, one in zip(self._config.tags, window, strict=True)}
        part = without_excluded(
            piece(times, samples, self._config), self._config, self._rule.excluded
        )
        for tag in self._config.of_role("mode"):
            known = self._words.get(tag.name, Words()).known
            automatic = [code for word, code in known.items() if word in tag.automatic]
            mode = samples[tag.name]
            is_automatic = np.isin(mode.value, automatic) * 1.0
            part.values[f"{tag.name} is automatic"] = _in_force(
                times, TagSamples(mode.at, is_automatic)
            )
        return part


def _utc(nanoseconds: int) -> str:
    stamp = datetime.datetime.fromtimestamp(nanoseconds / 1e9, datetime.UTC)
    return f"{stamp:%Y-%m-%d %H:%M:%S} UTC"


def _in_force(times: np.ndarray, samples: TagSamples) -> np.ndarray:
    """Whether a mode was automatic; NaN before its first word."""
    before = np.searchsorted(samples.at, times, side="right") - 1
    if not len(samples.at):
        return np.full(len(times), np.nan)
    return np.where(before >= 0, samples.value[np.maximum(before, 0)], np.nan)
