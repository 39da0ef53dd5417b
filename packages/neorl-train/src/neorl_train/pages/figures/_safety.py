"""The figures of a safety report."""

from typing import Any

import numpy as np

from neorl_train.judging._results import Band
from neorl_train.judging._safety_findings import LOGGED, WITH, WITHOUT, Assessment, Case
from neorl_train.pages.figures._style import (
    CLASSICAL,
    GRID,
    INK,
    LEARNERS,
    LIMIT,
    SURFACE,
    new_figure,
)
from neorl_train.pages.figures._trends import trends

STYLES = {LOGGED: (CLASSICAL, "^"), WITHOUT: (LEARNERS[1], "o"), WITH: (LEARNERS[0], "D")}
MAX_CONSTRAINTS = 14


def overview(assessment: Assessment) -> Any:
    """Left: fraction of the episodes in which each constraint was broken. Right: who acts."""
    order = {"hard": 0, "soft": 1, "preference": 2}
    shown = sorted(
        assessment.constraints,
        key=lambda constraint: (
            order[constraint.tier],
            -max(part.episode_fraction.value for part in constraint.violations.values()),
        ),
    )[:MAX_CONSTRAINTS]
    figure = new_figure(0.42 * len(shown) + 1.5)
    left, right = figure.subplots(1, 2, width_ratios=(3, 1.5))
    for row, constraint in enumerate(shown):
        for offset, (label, part) in zip(
            (-0.2, 0.2, 0.0), constraint.violations.items(), strict=False
        ):
            colour, marker = STYLES[label]
            fraction, y = part.episode_fraction, len(shown) - 1 - row + offset
            left.plot([100 * fraction.low, 100 * fraction.high], [y, y], color=colour, lw=2)
            left.plot(
                100 * fraction.value, y, marker, color=colour, ms=7, mec=SURFACE, mew=0.6,
                label=label if label not in left.get_legend_handles_labels()[1] else None,
            )  # fmt: skip
    names = [f"{constraint.name}  ({constraint.tier})" for constraint in shown]
    left.set_yticks(range(len(shown))[::-1], names)
    for tick, constraint in zip(left.get_yticklabels(), shown, strict=True):
        tick.set_color(LIMIT if constraint.tier == "hard" else INK)
    left.set_ylim(-0.6, len(shown) - 0.4)
    left.set_xlim(-1, 101)
    left.set_xlabel("episodes with a violation [%], exact interval")
    _acting(right, assessment)
    figure.legend(loc="outside upper left", ncols=3)
    return figure


def _acting(panel: Any, assessment: Assessment) -> None:
    names = [intervention.channel for intervention in assessment.interventions]
    fraction = np.array([100 * intervention.changed for intervention in assessment.interventions])
    rows = np.arange(len(names))[::-1]
    panel.barh(rows, fraction, height=0.5, color=LEARNERS[0])
    for row, intervention, value in zip(rows, assessment.interventions, fraction, strict=True):
        label = f"{value:.1f} %, largest {intervention.largest:.3g} {intervention.unit}"
        panel.text(1, row + 0.36, label, fontsize=8.5, color=INK)
    panel.barh([-1], [100 * assessment.fallback], height=0.5, color=LIMIT, hatch="///", ec=GRID)
    panel.text(
        1, -1 + 0.36, f"{100 * assessment.fallback:.1f} % of the steps", fontsize=8.5, color=INK
    )
    panel.set_yticks([*rows, -1], [*names, "fallback acts"])
    panel.set_ylim(-1.6, len(names) - 0.3)
    panel.set_xlim(0, 100)
    panel.set_xlabel("steps with a move [%]")


def case_figure(case: Case, assessment: Assessment) -> Any:
    """One episode with the filter, and behind it the same start without; shaded beyond limits."""
    bands = [*assessment.bands, *_boxes(assessment)]
    names = (
        ("with the filter", "without the filter, from the same start")
        if assessment.simulated
        else ("as the filter would have passed it", "as logged")
    )
    return trends(case.guarded, case.other, assessment.spec, bands, names=names)


def _boxes(assessment: Assessment) -> list[Band]:
    """Boxes that are tighter than the range of their channel, parsed from their description."""
    boxes = []
    ends = {constraint.name: constraint.text for constraint in assessment.constraints}
    for channel in assessment.spec.action:
        text = ends.get(f"{channel.name}: range", "")
        low, _, rest = text.partition(" to ")
        if rest:
            high = rest.split(" ")[0]
            if float(low) > channel.low or float(high) < channel.high:
                boxes.append(Band(channel.name, float(low), float(high)))
    return boxes
