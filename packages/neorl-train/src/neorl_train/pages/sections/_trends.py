"""Episodes as on an operator's screen, with the reference in the background."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core import InputError, Spec
from neorl_core.costs import limit_kind
from neorl_safety.filters import Flag
from neorl_train.judging._results import (
    HARDEST,
    LOWEST,
    TYPICAL,
    Band,
    Evaluation,
    Trace,
)
from neorl_train.judging._tables import ResultTables
from neorl_train.judging._wording import enumeration, with_sign
from neorl_train.pages import _style
from neorl_train.pages._html import Html, join, paragraph, tag
from neorl_train.pages._inputs import Inputs
from neorl_train.pages._style import (
    CLASSICAL,
    GRID,
    INK,
    LEARNERS,
    LIMIT,
    MUTED,
    WIDTH,
    new_figure,
    picture,
    require_matplotlib,
    time_axis,
    window,
)

TITLES = {
    TYPICAL: "A typical episode (median return)",
    LOWEST: "The worst episode (lowest return)",
    HARDEST: "The episode closest to its limits",
}
CANDIDATE_COLOUR, GUARD_COLOUR = LEARNERS[0], LEARNERS[1]
GUARD_LABELS = ("fallback", "changes", "alarm")
GUARD_ACTED = int(
    Flag.BOX_ACTIVE | Flag.RATE_ACTIVE | Flag.INTERVAL_ACTIVE | Flag.ROWS_ACTIVE | Flag.WEAR_ACTIVE
)
PANEL = 1.3  # inches
LEFT, RIGHT, TOP, BOTTOM = 0.8, 0.45, 0.6, 0.5
"""Inches around the panels: numbers of an axis, of a limit, the legend with a title, the time."""
BETWEEN_COLUMNS, BETWEEN_ROWS = 1.55, 0.36
"""Inches: the number of a limit with the names of the guard's rows; the title of a panel."""


def trends(
    shown: Trace,
    reference: Trace | None,
    spec: Spec,
    bands: Sequence[Band],
    *,
    names: tuple[str, ...] = (),
) -> Any:
    """Measurements and costs on the left, manipulated variables and the guard on the right.

    ``bands`` are soft limits of observed channels, and limits of actions that are tighter than
    their ranges; if no observed channel has limits, the first ones are shown.
    """
    left = [("obs", i) for i in _shown(spec, bands)] + [("cost", j) for j in _costs(shown, spec)]
    right = [("action", i) for i in range(spec.n_action)] + [("guard", 0)]
    rows = max(len(left), len(right))
    height = PANEL * rows + 0.7
    figure = new_figure(height, layout=None)
    axes = figure.subplots(
        rows, 2, sharex=True, squeeze=False, gridspec_kw=_places(rows, WIDTH, height)
    )
    both = [shown] if reference is None else [shown, reference]
    seconds, unit = time_axis(max(len(trace.reward) for trace in both), spec.dt)
    for column, panels in enumerate((left, right)):
        for row in range(rows):
            panel = axes[row, column]
            if row >= len(panels):
                panel.set_visible(False)
                continue
            _draw(panel, panels[row], both, spec, bands, spec.dt / seconds)
        last = axes[len(panels) - 1, column]
        last.tick_params(labelbottom=True)
        last.set_xlabel(f"time [{unit}]")
    _legend(figure, axes[0, 0], both, names)
    return figure


def _places(rows: int, width: float, height: float) -> dict[str, float]:
    """Where matplotlib is to put the panels of two columns, as fractions."""
    panel_width = (width - LEFT - RIGHT - BETWEEN_COLUMNS) / 2
    panel_height = (height - TOP - BOTTOM - (rows - 1) * BETWEEN_ROWS) / rows
    return {
        "left": LEFT / width,
        "right": 1 - RIGHT / width,
        "bottom": BOTTOM / height,
        "top": 1 - TOP / height,
        "wspace": BETWEEN_COLUMNS / panel_width,
        "hspace": BETWEEN_ROWS / panel_height,
    }


def _shown(spec: Spec, bands: Sequence[Band]) -> list[int]:
    limited = {band.channel for band in bands}
    chosen = [i for i, channel in enumerate(spec.obs) if channel.name in limited]
    return chosen or list(range(min(3, spec.n_obs)))


def _costs(trace: Trace, spec: Spec) -> list[int]:
    return [j for j in range(spec.n_cost) if np.any(trace.cost[:, j] > 0)]


def _draw(
    panel: Any,
    panel_kind: tuple[str, int],
    traces: Sequence[Trace],
    spec: Spec,
    bands: Sequence[Band],
    step: float,
) -> None:
    kind, index = panel_kind
    if kind == "obs":
        _measurement(panel, index, traces, spec, bands, step)
    elif kind == "cost":
        _cost(panel, index, traces, spec, step)
    elif kind == "action":
        _input(panel, index, traces, spec, bands, step)
    else:
        _guard(panel, traces[0], step)


def _line(panel: Any, position: int, time: np.ndarray, y: np.ndarray, **options: Any) -> None:
    """Draws the candidate in front as a solid line, the reference behind it dashed."""
    candidate_style = {"color": CANDIDATE_COLOUR, "lw": 1.6, "zorder": 3}
    reference_style = {"color": CLASSICAL, "lw": 1.2, "ls": (0, (4, 2)), "zorder": 2}
    draw = panel.step if options.pop("steps", False) else panel.plot
    if draw == panel.step:
        options["where"] = "post"
    style = reference_style if position else candidate_style
    draw(time, y, **style, **options)
    panel.plot(time[-1:], y[-1:], "o", ms=3.5, color=style["color"], zorder=4)


def _measurement(
    panel: Any,
    index: int,
    traces: Sequence[Trace],
    spec: Spec,
    bands: Sequence[Band],
    step: float,
) -> None:
    channel = spec.obs[index]
    for position, trace in enumerate(traces):
        _line(panel, position, np.arange(len(trace.obs)) * step, trace.obs[:, index])
    measured = [trace.obs[:, index] for trace in traces]
    limits = [(b.low, b.high) for b in bands if b.channel == channel.name]
    ends = [end for pair in limits for end in pair]
    panel.set_ylim(*window([*np.concatenate(measured), *ends]))
    for low, high in limits:
        shade_forbidden(panel, low, high)
    panel_title(panel, channel.name, channel.unit)


def panel_title(panel: Any, name: str, unit: str) -> None:
    """Writes name and unit above a panel; a log may not state its units."""
    panel.set_title(
        f"{name}  [{unit}]" if unit not in ("", "?") else name, loc="left", fontsize=10, pad=3
    )


def shade_forbidden(panel: Any, low: float, high: float) -> None:
    """Shades the area beyond limits and labels it at the side; infinite limits are ignored."""
    bottom, top = panel.get_ylim()
    for limit, end in ((low, bottom), (high, top)):
        if not np.isfinite(limit):
            continue
        panel.axhspan(min(limit, end), max(limit, end), color=LIMIT, alpha=0.12, lw=0, zorder=0)
        panel.axhline(limit, color=LIMIT, lw=1.0, zorder=1)
        panel.annotate(
            f"{limit:g}",
            xy=(1.0, limit),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            color=LIMIT,
            fontsize=9,
        )


def _cost(panel: Any, index: int, traces: Sequence[Trace], spec: Spec, step: float) -> None:
    channel = spec.cost[index]
    kind = limit_kind(channel)
    shown = [kind.along(trace.cost[:, index]) for trace in traces]
    for position, y in enumerate(shown):
        _line(panel, position, np.arange(1, len(y) + 1) * step, y)
    panel.set_ylim(0, window([0.0, channel.limit, *np.concatenate(shown)])[1])
    shade_forbidden(panel, -np.inf, channel.limit)
    panel_title(panel, f"cost {channel.name} {kind.trend}", channel.unit)


def _input(
    panel: Any,
    index: int,
    traces: Sequence[Trace],
    spec: Spec,
    bands: Sequence[Band],
    step: float,
) -> None:
    channel = spec.action[index]
    for position, trace in enumerate(traces):
        y = np.append(trace.applied[:, index], trace.applied[-1:, index])
        _line(panel, position, np.arange(len(y)) * step, y, steps=True)
    panel.set_ylim(*window([channel.low, channel.high], margin=0.06))
    for end in (channel.low, channel.high):
        panel.axhline(end, color=MUTED, lw=0.8, ls=":", zorder=1)
    for band in bands:
        if band.channel == channel.name:
            shade_forbidden(panel, band.low, band.high)
    panel_title(panel, channel.name, channel.unit)


def _guard(panel: Any, trace: Trace, step: float) -> None:
    time = np.arange(len(trace.flags)) * step
    fell_back = (trace.flags & int(Flag.FALLBACK_USED)) != 0
    acted = (trace.flags & GUARD_ACTED) != 0
    alarm = (trace.flags & int(Flag.MONITOR_ALARM)) != 0
    rows = [(1, acted & ~fell_back, GUARD_COLOUR), (0, fell_back, LIMIT)]
    rows += [(2, alarm, MUTED)] if alarm.any() else []
    for level, active, colour in rows:
        panel.hlines(level, 0, len(time) * step, color=GRID, lw=0.8, zorder=1)
        spans = [(t, step) for t in time[active]]
        panel.broken_barh(spans, (level - 0.32, 0.64), color=colour, lw=0, zorder=2)
    panel.set_ylim(-0.6, len(rows) - 0.4)
    names = [f"{GUARD_LABELS[level]} {100 * np.mean(active):.0f} %" for level, active, _ in rows]
    panel.set_yticks([level for level, _, _ in rows], names)
    panel.grid(visible=False)
    panel.spines["left"].set_visible(False)
    panel.tick_params(axis="y", length=0)
    panel_title(panel, "guard, fraction of the steps", "")


def _legend(figure: Any, panel: Any, traces: Sequence[Trace], names_given: Sequence[str]) -> None:
    lines = [
        line for line in panel.get_lines() if line.get_color() in (CANDIDATE_COLOUR, CLASSICAL)
    ]
    handles = [line for line in lines if len(line.get_xdata()) > 1]
    names = [f"{traces[0].policy} behind its guard"]
    names += [f"{trace.policy} on the same start" for trace in traces[1:]]
    names = list(names_given) or names
    figure.legend(handles[: len(names)], names, loc="upper left", ncols=2, labelcolor=INK)


def trend_pictures(inputs: Inputs) -> Html:
    """One figure for each stored episode."""
    evaluation = inputs.evaluation
    tables = evaluation.tables
    parts, further = [], []
    own = [trace for trace in evaluation.traces if trace.policy == tables.candidate]
    for number, trace in enumerate(own):
        reference = other_policy(evaluation.traces, trace)
        text = _describe(trace, reference, inputs)
        shown = picture(
            trends,
            trace,
            reference,
            tables.spec,
            evaluation.bands,
            name=f"trend{number}",
            caption=text,
        )
        if trace.label in TITLES:
            parts += [tag("h3", TITLES[trace.label]), shown]
        elif shown.text:
            gain = trace.reward.sum() - (0 if reference is None else reference.reward.sum())
            further.append((float(gain), trace.start, shown))
    if further:
        parts.append(_choice(further, tables))
    zero_costs = _zero_costs(inputs)
    if zero_costs:
        parts.append(
            paragraph(f"The cost {enumeration(zero_costs)} stayed at zero in every episode shown.")
        )
    return join(parts)


def _choice(further: list[tuple[float, int, Html]], tables: ResultTables) -> Html:
    """Selectable episodes; opening one closes the others, and none is printed."""
    further = sorted(further, key=lambda entry: entry[:2])
    digits = 1 if max(abs(gain) for gain, _, _ in further) >= 1 else 3
    entries = [
        tag(
            "details",
            tag("summary", f"start {start}: {with_sign(gain, digits)} {tables.reward_unit}"),
            shown,
            class_="more",
            name_="episode",
        )
        for gain, start, shown in further
    ]
    return tag(
        "div",
        tag("h3", "Choose an episode"),
        paragraph(
            f"These starts cover the range of gains of {tables.candidate} over {tables.reference}; "
            "the largest loss comes first.",
            class_="note",
        ),
        *entries,
        class_="more",
    )


def other_policy(traces: tuple[Trace, ...], one: Trace) -> Trace | None:
    """The episode of another policy from the same start, if one was stored."""
    for trace in traces:
        if trace.start == one.start and trace.policy != one.policy:
            return trace
    return None


def _describe(trace: Trace, reference: Trace | None, inputs: Inputs) -> str:
    tables = inputs.evaluation.tables
    unit, dt = tables.reward_unit, tables.spec.dt
    longest = max(len(one.reward) for one in (trace, reference) if one is not None)
    text = (
        f"Start {trace.start}: {trace.policy} behind its guard, return {trace.reward.sum():.1f} "
        f"{unit} in {_style.duration(len(trace.reward), dt, axis=longest)}"
    )
    if reference is not None:
        text += (
            f"; {reference.policy} on the same start, {reference.reward.sum():.1f} {unit} in "
            f"{_style.duration(len(reference.reward), dt, axis=longest)}"
        )
    return f"{text}. Shaded: beyond a limit. Dotted: ends of the actuator."


def _zero_costs(inputs: Inputs) -> list[str]:
    spec, traces = inputs.evaluation.tables.spec, inputs.evaluation.traces
    return [
        channel.name
        for j, channel in enumerate(spec.cost)
        if traces and not any(np.any(trace.cost[:, j] > 0) for trace in traces)
    ]


def plot_episode(evaluation: Evaluation, label: str = TYPICAL) -> Any:
    """One episode of the guarded candidate, with the reference controller in the background.

    Args:
        evaluation: Evaluation on a plant.
        label: Which of the stored episodes: ``"typical"``, ``"lowest return"`` or ``"closest to the
            limits"``, or one of those between the largest loss and the largest gain, such as
            ``"start 12"``.

    Returns:
        A ``matplotlib.figure.Figure``.

    Raises:
        InputError: If no episode with that label was stored, or matplotlib is missing.
    """
    require_matplotlib()
    candidate = evaluation.tables.candidate
    traces = {trace.label: trace for trace in evaluation.traces if trace.policy == candidate}
    if label not in traces:
        labels = ", ".join(traces) or "none, because there was no simulator to run a policy in"
        raise InputError(f"no episode {label!r} was stored; stored episodes: {labels}")
    trace = traces[label]
    reference = other_policy(evaluation.traces, trace)
    return _style.draw_styled(trends, trace, reference, evaluation.tables.spec, evaluation.bands)
