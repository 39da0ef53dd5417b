"""Figures of several runs: scores with intervals, performance profiles, learning curves."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from neorl_train.judging._tables import Estimate
from neorl_train.pages._style import CLASSICAL, MUTED, WIDTH, colours, window

COLUMNS = 3
DASHES = ((0, (4, 2)), (0, (1, 1.5)), (0, (6, 1.5, 1, 1.5)))


@dataclasses.dataclass(frozen=True)
class Dots:
    """A panel of means with their intervals, one line for each policy.

    Attributes:
        title: Title of the panel.
        unit: Quantity on the axis.
        values: Estimate of every policy.
        learners: Names of the policies that are learners.
        level: Value to compare with; NaN for none.
    """

    title: str
    unit: str
    values: Mapping[str, Estimate]
    learners: tuple[str, ...]
    level: float


@dataclasses.dataclass(frozen=True)
class Profiles:
    """A panel of the fraction of scores above each threshold.

    Attributes:
        unit: Quantity on the axis.
        thresholds: Thresholds.
        parts: Fraction of the scores above each threshold, by policy.
        learners: Names of the policies that are learners.
    """

    unit: str
    thresholds: Sequence[float]
    parts: Mapping[str, Sequence[float]]
    learners: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Curves:
    """A panel of learning curves with their intervals.

    Attributes:
        title: Title of the panel.
        unit: Quantity on the axis.
        lines: Numbers of updates and estimates, by learner.
        level: Value to compare with; NaN for none.
    """

    title: str
    unit: str
    lines: Mapping[str, tuple[Sequence[int], Sequence[Estimate]]]
    level: float


Picture = Sequence[Dots] | Sequence[Curves] | Profiles


def study_figure(pictures: Sequence[Picture], learners: Sequence[str]) -> Any:
    """All panels, one below the other."""
    from matplotlib.figure import Figure

    heights = [_height(picture) for picture in pictures]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(pictures), 1, height_ratios=heights, squeeze=False)[:, 0]
    colour_of = colours(learners)
    for part, picture in zip(parts, pictures, strict=True):
        if isinstance(picture, Profiles):
            _profiles(part, picture, colour_of)
        elif isinstance(picture[0], Dots):
            _panels(part, picture, colour_of, _dots)
        else:
            _panels(part, picture, colour_of, _curves)
    return figure


def _height(picture: Picture) -> float:
    if isinstance(picture, Profiles):
        return 3.4
    rows = math.ceil(len(picture) / COLUMNS)
    lines = [len(panel.values) for panel in picture if isinstance(panel, Dots)]
    return rows * (0.9 + 0.27 * max(lines) if lines else 2.9)


def _panels(figure: Any, panels: Sequence[Any], colour_of: Mapping[str, str], draw: Any) -> None:
    columns = min(len(panels), COLUMNS)
    rows = math.ceil(len(panels) / columns)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        draw(axis, panel, colour_of)
        axis.set_title(panel.title, loc="left", fontsize=10)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    entries = {}
    for axis in axes[: len(panels)]:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    if entries:
        figure.legend(
            list(entries.values()), list(entries), loc="outside upper left", ncols=6, fontsize=9
        )


def _dots(axis: Any, panel: Dots, colour_of: Mapping[str, str]) -> None:
    names = list(panel.values)
    for line, name in enumerate(names):
        estimate = panel.values[name]
        known = math.isfinite(estimate.low) and math.isfinite(estimate.high)
        ends = (
            [[max(estimate.value - estimate.low, 0)], [max(estimate.high - estimate.value, 0)]]
            if known
            else None
        )
        axis.errorbar(
            estimate.value,
            line,
            xerr=ends,
            fmt="o" if name in panel.learners else "D",
            color=colour_of.get(name, CLASSICAL) if name in panel.learners else CLASSICAL,
            ms=5,
            capsize=2,
        )
    if math.isfinite(panel.level):
        axis.axvline(panel.level, color=MUTED, lw=1, ls=DASHES[0])
    axis.set_yticks(range(len(names)), names, fontsize=9)
    axis.set_ylim(len(names) - 0.5, -0.5)
    ends = [
        end
        for estimate in panel.values.values()
        for end in (estimate.value, estimate.low, estimate.high)
    ]
    axis.set_xlim(*window([*ends, *[panel.level] * math.isfinite(panel.level)]))
    axis.set_xlabel(panel.unit)


def _profiles(figure: Any, panel: Profiles, colour_of: Mapping[str, str]) -> None:
    axis = figure.subplots()
    others = [name for name in panel.parts if name not in panel.learners]
    for name, parts in panel.parts.items():
        learner = name in panel.learners
        dashes = "-" if learner else DASHES[others.index(name) % len(DASHES)]
        colour = colour_of.get(name, CLASSICAL) if learner else CLASSICAL
        axis.step(panel.thresholds, parts, where="post", color=colour, ls=dashes, label=name)
    axis.set_ylim(-0.03, 1.03)
    axis.set_xlabel(panel.unit)
    axis.set_ylabel("fraction of scores above")
    axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)


def _curves(axis: Any, panel: Curves, colour_of: Mapping[str, str]) -> None:
    for name, (steps, estimates) in panel.lines.items():
        colour = colour_of.get(name, CLASSICAL)
        thousands = [step / 1000 for step in steps]
        marker = "o" if len(thousands) == 1 else None
        values = [estimate.value for estimate in estimates]
        axis.plot(thousands, values, color=colour, lw=1.8, label=name, marker=marker)
        if all(math.isfinite(estimate.low) for estimate in estimates):
            low, high = (
                [estimate.low for estimate in estimates],
                [estimate.high for estimate in estimates],
            )
            axis.fill_between(thousands, low, high, color=colour, alpha=0.15, lw=0)
    if math.isfinite(panel.level):
        axis.axhline(panel.level, color=CLASSICAL, lw=1, ls=DASHES[0])
    # The means determine the axis, because with two or three seeds Student's intervals are very
    # wide.
    shown = [estimate.value for _, estimates in panel.lines.values() for estimate in estimates]
    axis.set_ylim(*window([*shown, *[panel.level] * math.isfinite(panel.level)], margin=0.25))
    axis.set_xlabel("updates [thousands]")
    axis.set_ylabel(panel.unit)
