"""Trends of one episode as on an operator's screen, with the reference in the background."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core import Spec
from neorl_core.costs import limit_kind
from neorl_safety.filters import Flag
from neorl_train.judging._results import Band, Trace
from neorl_train.pages.figures._style import (
    CLASSICAL,
    GRID,
    INK,
    LEARNERS,
    LIMIT,
    MUTED,
    WIDTH,
    new_figure,
    time_axis,
    window,
)

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
    """Writes name and unit above a panel."""
    panel.set_title(f"{name}  [{unit}]" if unit else name, loc="left", fontsize=10, pad=3)


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
