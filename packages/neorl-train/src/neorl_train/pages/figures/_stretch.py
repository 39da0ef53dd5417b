"""A stretch of a log in one narrow column: actions above, measurements below."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core import Spec
from neorl_core.costs import limit_kind
from neorl_train.judging._results import Band, Stretch
from neorl_train.pages.figures._style import CLASSICAL, INK, LEARNERS, MUTED, new_figure, time_axis
from neorl_train.pages.figures._style import window as window_of
from neorl_train.pages.figures._trends import panel_title, shade_forbidden

PROPOSED, LOGGED, OUTSIDE = LEARNERS[0], CLASSICAL, LEARNERS[1]
WIDTH, PANEL, HEAD = 4.6, 1.35, 0.75  # inches; the width of a phone, so that the text is readable
MAX_ACTIONS = 6


def shown_actions(stretch: Stretch, spec: Spec) -> list[int]:
    """The actions to draw: all, or if there are many, those whose proposals differ most."""
    ranges = np.array([max(channel.high - channel.low, 1e-300) for channel in spec.action])
    distance = np.abs(
        np.where(stretch.known[:, None], stretch.proposed - stretch.logged, 0.0)
    ).mean(axis=0)
    if len(ranges) <= MAX_ACTIONS:
        return list(range(len(ranges)))
    return sorted(int(i) for i in np.argsort(-distance / ranges)[:MAX_ACTIONS])


def stretch_trend(stretch: Stretch, spec: Spec, bands: Sequence[Band]) -> Any:
    """Draws logged and proposed actions, then logged measurements and costs."""
    actions = shown_actions(stretch, spec)
    costs = [j for j in range(spec.n_cost) if np.nanmax(stretch.cost[:, j], initial=0.0) > 0]
    rows = len(actions) + len(stretch.channels) + len(costs)
    figure = new_figure(PANEL * rows + HEAD, width=WIDTH)
    panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    seconds, unit = time_axis(len(stretch.known), spec.dt)
    time = np.arange(len(stretch.known)) * spec.dt / seconds
    for panel, i in zip(panels, actions, strict=False):
        _action(panel, stretch, i, time, spec)
    for panel, row in zip(panels[len(actions) :], range(len(stretch.channels)), strict=False):
        _measurement(panel, stretch, row, time, spec, bands)
    for panel, j in zip(panels[rows - len(costs) :], costs, strict=True):
        channel, kind = spec.cost[j], limit_kind(spec.cost[j].per)
        shown = kind.along(np.nan_to_num(stretch.cost[:, j]))
        panel.plot(time, shown, color=LOGGED, lw=1.2)
        panel.set_ylim(0, window_of([0.0, channel.limit, *shown])[1])
        shade_forbidden(panel, -np.inf, channel.limit)
        panel_title(panel, f"cost {channel.name} {kind.trend}, as logged", channel.unit)
    panels[-1].set_xlabel(f"time [{unit}]")
    handles, names = _legend(panels[0])
    figure.legend(
        handles, names, loc="outside upper left", ncols=2, labelcolor=INK, handlelength=1.4
    )
    return figure


def _action(panel: Any, stretch: Stretch, index: int, time: np.ndarray, spec: Spec) -> None:
    channel = spec.action[index]
    logged, proposed = (
        np.where(stretch.known, column[:, index], np.nan)
        for column in (stretch.logged, stretch.proposed)
    )
    panel.fill_between(
        time,
        np.where(stretch.known, stretch.low[:, index], np.nan),
        np.where(stretch.known, stretch.high[:, index], np.nan),
        step="post",
        color=MUTED,
        alpha=0.18,
        lw=0,
        zorder=0,
    )
    panel.step(time, logged, where="post", color=LOGGED, lw=1.2, ls=(0, (4, 2)), zorder=2)
    panel.step(time, proposed, where="post", color=PROPOSED, lw=1.5, zorder=3)
    outside = stretch.outside(stretch.proposed)[:, index]
    panel.plot(
        time[outside], proposed[outside], "o", color=OUTSIDE, ms=3.5, zorder=4, label="outside"
    )
    panel.set_ylim(*window_of([*logged, *proposed], margin=0.15))
    for end in (channel.low, channel.high):  # drawn if it lies within the axis
        panel.axhline(end, color=MUTED, lw=0.8, ls=":", zorder=1)
    panel_title(panel, channel.name, channel.unit)


def _measurement(
    panel: Any, stretch: Stretch, row: int, time: np.ndarray, spec: Spec, bands: Sequence[Band]
) -> None:
    name = stretch.channels[row]
    unit = next(channel.unit for channel in spec.obs if channel.name == name)
    values = np.where(stretch.known, stretch.obs[:, row], np.nan)
    panel.plot(time, values, color=LOGGED, lw=1.2)
    limits = [(band.low, band.high) for band in bands if band.channel == name]
    panel.set_ylim(*window_of([*values, *(end for pair in limits for end in pair)]))
    for low, high in limits:
        shade_forbidden(panel, low, high)
    panel_title(panel, f"{name}, as logged", unit)


def _legend(panel: Any) -> tuple[list[Any], list[str]]:
    logged, proposed, outside = panel.get_lines()[:3]
    (covered,) = panel.collections[:1]
    return (
        [proposed, logged, outside, covered],
        ["proposed", "logged", "outside the grey range", "range in similar situations"],
    )
