"""The samples of a completely read log, accessed by time windows in memory or on disk."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from neorl_envs.plant_logs._grid import TagSamples
from neorl_envs.plant_logs._samples import FIRST, LAST, Samples

HELD_PARTS = 3
NONE = -(2**62)
"""Stamp of a sample that does not exist."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The samples of one part of the time axis, tag by tag, ascending.

    Attributes:
        at: Stamps, nanoseconds.
        value: Values; NaN where they contradict.
        starts: Index of the first sample of every tag, followed by the number of samples.
        conflicts: For every tag, the number of stamps with contradicting values.
    """

    at: np.ndarray
    value: np.ndarray
    starts: np.ndarray
    conflicts: np.ndarray

    def of_tag(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Stamps and values of one tag."""
        rows = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return self.at[rows], self.value[rows]


class Timeline:
    """All samples of a log, accessed by time windows.

    Args:
        samples: Thinned samples, which must be complete.
        n_tags: Number of tags.
        counted: Tags whose samples show that the plant was being logged.
        gap: A new stretch begins after more than this many periods without a sample of these tags.

    Attributes:
        stretches: Numbers of the periods of every stretch without such a gap.
        conflicts: For every tag, the number of stamps with contradicting values.
        valid: For every tag, whether it has a finite sample.
        empty: Number of periods within stretches in which none of the counted tags has a sample.
        spacing_s: Mean spacing of the samples of every tag; 0 if there is only one sample.
    """

    def __init__(
        self, samples: Samples, n_tags: int, counted: Sequence[int], *, gap: float
    ) -> None:
        self._samples, self._n_tags, self._counted = samples, n_tags, list(counted)
        self._gap = max(gap, 1)
        self.stretches: list[range] = []
        whole = samples.merged()
        self._whole = None
        if samples.spilled:
            samples.spill()
        else:
            self._whole = whole
        self.numbers = np.array(sorted(samples.spilled) or [0])
        self.conflicts = np.zeros(n_tags, np.int64)
        self.valid = np.zeros(n_tags, np.bool_)
        self._cache: collections.OrderedDict[int, Part] = collections.OrderedDict()
        # The last sample of every tag before each part, and the first one at or after its start.
        shape = (len(self.numbers) + 1, n_tags)
        self._before = np.full(shape, NONE), np.full(shape, np.nan)
        self._after = np.full(shape, NONE), np.full(shape, np.nan)
        self._n_samples = np.zeros(n_tags, np.int64)
        self._filled = 0
        self._scan()
        self.empty = sum(map(len, self.stretches)) - self._filled
        first, last = self._after[0][0], self._before[0][-1]
        several = np.maximum(self._n_samples - 1, 1)
        self.spacing_s = np.where(self._n_samples > 1, (last - first) / several / 1e9, 0.0)

    def _scan(self) -> None:
        """Makes one pass over the parts to find their first and last samples and the stretches."""
        for i in range(len(self.numbers)):
            table = self._table(i)
            self._add_stretches(table)
            part = self._part(i, table)
            self.conflicts += part.conflicts
            for array in self._before:
                array[i + 1] = array[i]
            for tag in range(self._n_tags):
                at, value = part.of_tag(tag)
                self._n_samples[tag] += len(at)
                if len(at):
                    self.valid[tag] |= bool(np.isfinite(value).any())
                    self._before[0][i + 1, tag], self._before[1][i + 1, tag] = at[-1], value[-1]
                    self._after[0][i, tag], self._after[1][i, tag] = at[0], value[0]
        for i in reversed(range(len(self.numbers))):
            absent = self._after[0][i] == NONE
            for array in self._after:
                array[i, absent] = array[i + 1, absent]

    def _add_stretches(self, table: pl.DataFrame) -> None:
        """Adds the stretches of a part, which may continue the last one across a short gap."""
        bins = np.unique(table.filter(pl.col("tag").is_in(self._counted))["bin"].to_numpy())
        if not len(bins):
            return
        self._filled += len(bins)
        cuts = np.flatnonzero(np.diff(bins) > self._gap) + 1
        starts = bins[np.append(0, cuts)]
        stops = bins[np.append(cuts - 1, len(bins) - 1)] + 1
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            if self.stretches and start - (self.stretches[-1].stop - 1) <= self._gap:
                self.stretches[-1] = range(self.stretches[-1].start, stop)
            else:
                self.stretches.append(range(start, stop))

    def window(self, first: int, last: int) -> list[TagSamples]:
        """The samples of every tag that are needed to fill a time window.

        Times are in nanoseconds. A tag has at least the last sample at or before ``first``, those
        in the window, and the first one after it.
        """
        low, high = 0, 1
        if self._whole is None:
            ends = [
                -(-at // self._samples.period) // self._samples.part_periods for at in (first, last)
            ]
            low = int(np.searchsorted(self.numbers, ends[0]))
            high = int(np.searchsorted(self.numbers, ends[1], side="right"))
        parts = [self._part(i) for i in range(low, high)]
        return [self._of_tag(tag, parts, low, high) for tag in range(self._n_tags)]

    def _of_tag(self, tag: int, parts: list[Part], low: int, high: int) -> TagSamples:
        pieces = [part.of_tag(tag) for part in parts]
        for edge, i, position in ((self._before, low, 0), (self._after, high, len(parts) + 1)):
            if edge[0][i, tag] != NONE:
                sample = edge[0][i, tag : tag + 1], edge[1][i, tag : tag + 1]
                pieces.insert(min(position, len(pieces)), sample)
        if not pieces:
            return TagSamples(np.zeros(0, np.int64), np.zeros(0))
        if len(pieces) == 1:
            return TagSamples(*pieces[0])
        at, value = zip(*pieces, strict=True)
        return TagSamples(np.concatenate(at), np.concatenate(value))

    def _table(self, i: int) -> pl.DataFrame:
        return self._whole if self._whole is not None else self._samples.part(int(self.numbers[i]))

    def _part(self, i: int, table: pl.DataFrame | None = None) -> Part:
        if i in self._cache:
            self._cache.move_to_end(i)
            return self._cache[i]
        part = self._cache[i] = _samples_of_table(
            self._table(i) if table is None else table, self._n_tags
        )
        if len(self._cache) > HELD_PARTS:
            self._cache.popitem(last=False)
        return part


def _samples_of_table(table: pl.DataFrame, n_tags: int) -> Part:
    """Builds a part from a table of thinned samples; contradicting values become NaN."""
    ends = [
        table.select(
            "tag", pl.col(at).alias("at"), pl.col(low).alias("low"), pl.col(high).alias("high")
        )
        for at, low, high in (FIRST, LAST)
    ]
    ends_of_bins = pl.concat(ends).unique(subset=["tag", "at"]).sort("tag", "at")
    tag = ends_of_bins["tag"].to_numpy()
    value, high = ends_of_bins["low"].to_numpy().copy(), ends_of_bins["high"].to_numpy()
    conflicting = value != high
    conflicts = np.bincount(tag[conflicting], minlength=n_tags)
    value[conflicting] = np.nan
    starts = np.searchsorted(tag, np.arange(n_tags + 1))
    return Part(ends_of_bins["at"].to_numpy(), value, starts, conflicts)
