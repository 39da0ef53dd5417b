"""Computes the rows of a log in pieces of bounded size: first the flags, then the columns."""

import dataclasses
import datetime
from collections import Counter
from collections.abc import Iterator

import numpy as np

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.plant_logs._configuration import BEFORE, PlantLog
from neorl_envs.plant_logs._episodes import (
    Flags,
    Rules,
    Signals,
    Span,
    add_signals,
    excluded_rows,
    flags,
    look_back,
    rows_of,
)
from neorl_envs.plant_logs._exclusions import without_excluded, words_of
from neorl_envs.plant_logs._grid import Piece, TagSamples, piece
from neorl_envs.plant_logs._tables import Words
from neorl_envs.plant_logs._timeline import Timeline

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
