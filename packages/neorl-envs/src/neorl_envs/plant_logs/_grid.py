"""Samples of every tag on a common time grid; an unknown value is NaN and remains so."""

import dataclasses
import math

import numpy as np

from neorl_envs.plant_logs._configuration import BEFORE, WORDS, PlantLog, Tag


@dataclasses.dataclass(frozen=True)
class TagSamples:
    """Ascending stamps of one tag, nanoseconds, and its values; contradicting values are NaN."""

    at: np.ndarray
    value: np.ndarray


def values_at(tag: Tag, samples: TagSamples, times: np.ndarray, gap: float) -> np.ndarray:
    """The values of a tag at given times.

    Times are in nanoseconds. ``gap`` is the longest time for which a sample is held, or between
    samples that are interpolated; in longer gaps and without a sample the value is NaN.
    """
    n = len(samples.at)
    if n == 0:
        return np.full(len(times), np.nan)
    before = np.searchsorted(samples.at, times, side="right") - 1
    age = times - samples.at[np.maximum(before, 0)]
    values = np.where((before >= 0) & (age <= gap), samples.value[np.maximum(before, 0)], np.nan)
    if tag.fill == "hold":
        return values
    after = np.minimum(before + 1, n - 1)
    start, end = samples.at[np.maximum(before, 0)], samples.at[after]
    spacing = np.maximum(end - start, 1)
    weight = (times - start) / spacing
    first, second = samples.value[np.maximum(before, 0)], samples.value[after]
    line = first + weight * (second - first)
    inside = (before >= 0) & (before + 1 < n) & (spacing <= gap)
    exact = (before >= 0) & (times == start)
    return np.where(exact, first, np.where(inside, line, np.nan))


def largest_gap(tag: Tag, config: PlantLog) -> float:
    """Nanoseconds for which a sample of a tag is held; a word is held until the next one."""
    seconds = tag.largest_gap_s
    if math.isnan(seconds):
        seconds = math.inf if tag.role in WORDS else config.sampling.largest_gap_s
    return max(seconds, config.sampling.period_s) * 1e9


@dataclasses.dataclass(frozen=True)
class Piece:
    """The tags at some consecutive times of the grid.

    Attributes:
        at: Times, nanoseconds.
        values: Values of every tag known at these times.
        shifted: Values for expressions, measured one transport delay later.
    """

    at: np.ndarray
    values: dict[str, np.ndarray]
    shifted: dict[str, np.ndarray]

    def before_and_now(self) -> dict[str, np.ndarray]:
        """Columns for a condition: every tag now, and one period earlier as ``before_...``."""
        return {**self.shifted, **{BEFORE + n: _earlier(v) for n, v in self.shifted.items()}}

    def of_steps(self, config: PlantLog) -> dict[str, np.ndarray]:
        """Columns for a reward; a step leads from one time of the grid to the next.

        A manipulated variable holds the action of the step, and with ``before_`` the action of the
        previous step. Any other tag holds the value after the step, and with ``before_`` the value
        at its beginning.
        """
        actions = {tag.name for tag in config.of_role("manipulated")}
        columns = {}
        for name, value in self.shifted.items():
            if name in actions:
                columns[name], columns[BEFORE + name] = value[:-1], _earlier(value)[:-1]
            else:
                columns[name], columns[BEFORE + name] = value[1:], value[:-1]
        return columns


def piece(times: np.ndarray, samples: dict[str, TagSamples], config: PlantLog) -> Piece:
    """All tags at some consecutive times of the grid."""
    values, shifted = {}, {}
    for tag in config.tags:
        gap = largest_gap(tag, config)
        values[tag.name] = values_at(tag, samples[tag.name], times, gap)
        delay = round(tag.delay_s * 1e9)
        shifted[tag.name] = (
            values_at(tag, samples[tag.name], times + delay, gap) if delay else values[tag.name]
        )
    numbers = {tag.name for tag in config.numbers}
    return Piece(times, values, {name: v for name, v in shifted.items() if name in numbers})


def _earlier(value: np.ndarray) -> np.ndarray:
    return np.append(np.nan, value[:-1])
