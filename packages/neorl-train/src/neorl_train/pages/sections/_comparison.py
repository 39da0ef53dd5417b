"""Figures of the candidate beside the others: by start, return against cost, who acts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core.costs import limit_kind
from neorl_train.judging._results import limited_quantity
from neorl_train.judging._tables import PolicyRow, ResultTables
from neorl_train.judging._wording import confidence, enumeration, plain
from neorl_train.pages._html import Html, paragraph
from neorl_train.pages._inputs import Inputs
from neorl_train.pages._style import (
    CLASSICAL,
    INK,
    LEARNERS,
    LIMIT,
    MUTED,
    SURFACE,
    colours,
    new_figure,
    picture,
    window,
)

LABELS = {"learner": (10, 18), "classical": (7, -4), "behaviour": (6, -5), "log": (-7, -5)}
MARKERS = {"learner": "o", "classical": "D", "behaviour": "s", "log": "^"}


def shown_rows(tables: ResultTables) -> list[PolicyRow]:
    """The rows to show: learners with their guard, all others as they run today."""
    return [row for row in tables.rows if row.guarded == (row.role == "learner")]


def costs_that_occur(tables: ResultTables) -> list[int]:
    """The costs that at least one policy caused."""
    rows = tables.rows
    return [j for j in range(tables.spec.n_cost) if any(row.costs[j].largest > 0 for row in rows)]


def return_against_cost(tables: ResultTables, costs: Sequence[int]) -> Any:
    """One panel for each cost: mean return against the mean of the limited quantity."""
    figure = new_figure(4.6)
    rows = shown_rows(tables)
    colour_of = colours([row.group for row in rows if row.role == "learner"])
    panels = figure.subplots(1, len(costs), sharey=True, squeeze=False)[0]
    for panel, j in zip(panels, costs, strict=True):
        for row in rows:
            _point(panel, row, j, colour_of.get(row.group, CLASSICAL), tables)
        cell = rows[0].costs[j]
        ends = [value for row in rows for value in (row.costs[j].limited.high, cell.limit)]
        top = max(ends) * 1.25 or 1.0
        # Linear from zero to a quarter of the limit, logarithmic above.
        panel.set_xscale("symlog", linthresh=max(cell.limit / 4, top / 1000), linscale=0.6)
        panel.set_xlim(0, top)
        panel.axvspan(cell.limit, top, color=LIMIT, alpha=0.1, lw=0, zorder=0)
        panel.axvline(cell.limit, color=LIMIT, lw=1)
        panel.annotate(
            f"limit {cell.limit:g}",
            xy=(cell.limit, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            color=LIMIT,
            fontsize=9,
        )
        _ticks(panel, cell.limit, top)
        panel.set_xlabel(f"cost {cell.name}, {limit_kind(cell.per).quantity} [{cell.unit}]")
    panels[0].margins(y=0.12)
    panels[0].set_ylabel(f"return of an episode [{tables.reward_unit}]")
    _legend(figure, colour_of)
    return figure


def _point(panel: Any, row: PolicyRow, j: int, colour: str, tables: ResultTables) -> None:
    x, y = row.costs[j].limited, row.returns
    chosen = row.name == tables.candidate and row.role == "learner"
    panel.errorbar(
        x.value,
        y.value,
        xerr=[[max(x.value - x.low, 0)], [max(x.high - x.value, 0)]],
        yerr=[[max(y.value - y.low, 0)], [max(y.high - y.value, 0)]],
        fmt=MARKERS[row.role],
        color=colour,
        ms=10 if chosen else 6,
        mec=INK if chosen else SURFACE,
        mew=1.6 if chosen else 0.6,
        elinewidth=1.0,
        capsize=2,
        zorder=4 if chosen else 3,
    )
    if row.role != "learner" or chosen:
        name = row.name
        panel.annotate(
            name,
            xy=(x.value, y.value),
            xytext=LABELS[row.role],
            textcoords="offset points",
            fontsize=9,
            ha="left" if LABELS[row.role][0] > 0 else "right",
            va="bottom" if LABELS[row.role][1] > 0 else "top",
            fontweight="bold" if chosen else "normal",
            arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.8} if chosen else None,
        )


def _ticks(panel: Any, limit: float, top: float) -> None:
    threshold = max(limit / 4, top / 1000)
    multiples = (1, 2, 5) if top < 100 * threshold else (1,)
    steps = [0.0] + [m * 10.0**e for e in range(-4, 7) for m in multiples]
    ticks = [tick for tick in steps if tick == 0 or threshold <= tick <= top]
    panel.set_xticks(ticks, [plain(tick) for tick in ticks])
    panel.minorticks_off()


def _legend(figure: Any, colour_of: dict[str, str]) -> None:
    from matplotlib.lines import Line2D

    kinds = [(f"{name}, each seed", "o", colour) for name, colour in colour_of.items()]
    kinds += [
        ("classical controller", "D", CLASSICAL),
        ("logged behaviour, re-run", "s", CLASSICAL),
        ("log", "^", CLASSICAL),
    ]
    handles = [
        Line2D([], [], ls="", marker=marker, color=colour, mec=SURFACE, ms=7, label=name)
        for name, marker, colour in kinds
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), fontsize=9)


def by_start(
    gains: np.ndarray, costs: Sequence[tuple[np.ndarray, np.ndarray, str, float]], unit: str
) -> Any:
    """The candidate in every paired episode, sorted by gain, with its costs and their limits.

    Args:
        gains: Return minus that of the reference, one for each paired episode.
        costs: For each channel, the costs of candidate and reference, the label with unit, and
            the limit.
        unit: Unit of the return.
    """
    figure = new_figure(2.9)
    panels = figure.subplots(1, 1 + len(costs), squeeze=False)[0]
    gains = np.sort(gains)
    better = gains > 0
    edges = np.arange(len(gains) + 1) + 0.5
    for mask, colour in ((better, LEARNERS[0]), (~better, LIMIT)):
        panels[0].stairs(np.where(mask, gains, 0), edges, fill=True, color=colour, lw=0)
    panels[0].axhline(0, color=INK, lw=0.8)
    panels[0].set_title(
        f"better on {better.sum()} of {len(gains)} episodes", loc="left", fontsize=10
    )
    panels[0].set_ylabel(f"gain in return\n[{unit}]")
    for panel, (candidate, reference, label, limit) in zip(panels[1:], costs, strict=True):
        count = np.arange(1, len(candidate) + 1)
        panel.plot(
            count, np.sort(reference), color=CLASSICAL, ls=(0, (4, 2)), lw=1.3, label="today's"
        )
        panel.plot(count, np.sort(candidate), color=LEARNERS[0], lw=1.8, label="candidate")
        top = window([0.0, limit, *candidate, *reference])[1]
        panel.set_ylim(0, top)
        panel.axhspan(limit, top, color=LIMIT, alpha=0.1, lw=0)
        panel.axhline(limit, color=LIMIT, lw=1)
        over = int(np.sum(~(candidate <= limit)))
        panel.set_title(f"above the limit on {over} of {len(candidate)}", loc="left", fontsize=10)
        panel.set_ylabel(label)
    if costs:
        handles, labels = panels[1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2, fontsize=9)
    for panel in panels:
        panel.set_xlim(0.5, len(gains) + 0.5)
        panel.set_xlabel("paired episodes, sorted")
    return figure


def who_acts(tables: ResultTables) -> Any:
    """Fractions of the steps in which the filter or the fallback decided, by guarded policy."""
    rows = [row for row in tables.rows if row.guarded]
    figure = new_figure(0.24 * len(rows) + 1.0)
    panel = figure.subplots()
    position = np.arange(len(rows))[::-1]
    changed = np.array([100 * row.filtered for row in rows])
    fell_back = np.array([100 * row.fallback for row in rows])
    parts = (
        ("changed by the guard", changed, LEARNERS[1], ""),
        ("the fallback", fell_back, LIMIT, "///"),
    )
    begin = np.zeros(len(rows))
    for label, width, colour, hatch in parts:
        panel.barh(
            position, width, left=begin, color=colour, hatch=hatch, ec=SURFACE, lw=0.5, label=label
        )
        begin = begin + width
    names = [row.name for row in rows]
    panel.set_yticks(position, names)
    panel.set_ylim(-0.6, len(rows) - 0.4)
    # The axis ends where the data end, so that even two per cent of the steps are visible.
    panel.set_xlim(0, min(100, max(1.0, 1.2 * float((changed + fell_back).max()))))
    panel.set_xlabel("fraction of all steps [%]; in all others the policy's own action")
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0, color=MUTED)
    figure.legend(loc="outside upper left", ncols=3, fontsize=9)
    return figure


def start_picture(inputs: Inputs) -> Html:
    """The candidate compared with the reference in every paired episode."""
    evaluation = inputs.evaluation
    tables = evaluation.tables
    episodes = {(r.name, r.guarded): r.episodes for r in evaluation.results}
    candidate, reference = episodes[tables.candidate, True], episodes[tables.reference, False]
    costs = [
        (
            limited_quantity(candidate, tables.spec, j),
            limited_quantity(reference, tables.spec, j),
            f"cost {tables.spec.cost[j].name}\n[{tables.spec.cost[j].unit}]",
            float(tables.spec.cost[j].limit),
        )
        for j in costs_that_occur(tables)
    ]
    gains = candidate.returns - reference.returns
    text = (
        f"{tables.candidate} behind its guard and {tables.reference} on the same "
        f"{len(gains)} starts. Left: difference in return, episode by episode, sorted. Right: cost "
        "of each episode, sorted, and its limit."
    )
    return picture(by_start, gains, costs, tables.reward_unit, name="starts", caption=text)


def cost_picture(inputs: Inputs) -> Html:
    """Figure of return against cost."""
    tables = inputs.evaluation.tables
    costs = costs_that_occur(tables)
    if not costs:
        return paragraph("No policy caused any cost.")
    text = (
        f"Mean return over mean cost with {confidence(tables.level)} intervals: learned policies "
        "behind their guard (the candidate outlined), the plant's controllers as they run today, "
        "and the log. Better policies lie further up and to the left; the shaded region is beyond "
        "the limit. The cost axis is logarithmic except near zero."
    )
    zero_costs = [c.name for j, c in enumerate(tables.spec.cost) if j not in costs]
    extra = f" No policy ever caused the cost {enumeration(zero_costs)}." if zero_costs else ""
    return picture(return_against_cost, tables, costs, name="costs", caption=text + extra)


def acting_picture(inputs: Inputs) -> Html:
    """Figure of who acts."""
    text = (
        "Fractions of all steps in which the policy's own action reached the plant, in which the "
        "guard changed it to keep its range and rate of change, and in which the fallback acted."
    )
    return picture(who_acts, inputs.evaluation.tables, name="acts", caption=text)
