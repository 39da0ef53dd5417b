"""Samples of every tag on one grid of times; what is not known is NaN, and stays it."""

import dataclasses
import math

import numpy as np

from neorl_envs.plant_logs._configuration import BEFORE, WORDS, PlantLog, Tag


@dataclasses.dataclass(frozen=True)
class TagSamples:
    """Ascending stamps of one tag in nanoseconds, and its values; NaN where they contradict."""

    at: np.ndarray
    value: np.ndarray


def values_at(tag: Tag, samples: TagSamples, times: np.ndarray, gap: float) -> np.ndarray:
    """A tag at given times.

    Args:
        tag: Says how the time between samples is filled.
        samples: Samples of the tag.
        times: Ascending, nanoseconds.
        gap: Largest age of a sample that is held, and largest distance of two samples between
            which a line is drawn, nanoseconds.

    Returns:
        The last value, or that on the line; NaN where the gap is larger or there is no sample.
    """
    n = len(samples.at)
    if n == 0:
        return np.full(len(times), np.nan)
    before = np.searchsorted(samples.at, times, side="right") - 1
    age = times - samples.at[np.maximum(before, 0)]
    held = np.where((before >= 0) & (age <= gap), samples.value[np.maximum(before, 0)], np.nan)
    if tag.fill == "hold":
        return held
    behind = np.minimum(before + 1, n - 1)
    start, end = samples.at[np.maximum(before, 0)], samples.at[behind]
    apart = np.maximum(end - start, 1)
    weight = (times - start) / apart
    first, second = samples.value[np.maximum(before, 0)], samples.value[behind]
    line = first + weight * (second - first)
    inside = (before >= 0) & (before + 1 < n) & (apart <= gap)
    exact = (before >= 0) & (times == start)
    return np.where(exact, first, np.where(inside, line, np.nan))


def largest_gap(tag: Tag, config: PlantLog) -> float:
    """Nanoseconds for which a sample of a tag holds; words hold until the next one."""
    own = tag.largest_gap_s
    if math.isnan(own):
        own = math.inf if tag.role in WORDS else config.sampling.largest_gap_s
    return max(own, config.sampling.period_s) * 1e9


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some consecutive times of the grid.

    Attributes:
        at: Times, nanoseconds.
        values: Every tag at these times, as it was known then.
        shifted: The same for expressions: what was measured one transport delay later.
    """

    at: np.ndarray
    values: dict[str, np.ndarray]
    shifted: dict[str, np.ndarray]

    def before_and_now(self) -> dict[str, np.ndarray]:
        """Columns of a condition: every tag now, and as ``before_...`` one period earlier."""
        return {**self.shifted, **{BEFORE + n: _earlier(v) for n, v in self.shifted.items()}}

    def of_steps(self, config: PlantLog) -> dict[str, np.ndarray]:
        """Columns of a reward: a step leads from one time of the grid to the next.

        A manipulated variable is the action of the step, and ``before_`` it that of the step
        before; every other tag is what the step led to, and ``before_`` it where it began.
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
