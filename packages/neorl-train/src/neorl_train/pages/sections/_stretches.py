"""The candidate in shadow over the best, the median and the worst stretch of a log."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_core import Spec
from neorl_core.costs import limit_kind
from neorl_safety.filters import Flag
from neorl_train.judging._results import BEST, MEDIAN, WORST, Band, Stretch
from neorl_train.judging._wording import enumeration, number, percent, with_unit
from neorl_train.pages._html import Html, join, paragraph, tag
from neorl_train.pages._inputs import Inputs
from neorl_train.pages._style import (
    CLASSICAL,
    INK,
    LEARNERS,
    MUTED,
    duration,
    new_figure,
    picture,
    time_axis,
)
from neorl_train.pages._style import window as window_of
from neorl_train.pages.sections._trends import panel_title, shade_forbidden

TITLES = {
    BEST: "The best stretch of the log",
    MEDIAN: "A median stretch",
    WORST: "The worst stretch",
}


def stretch_pictures(inputs: Inputs) -> Html:
    """One narrow figure for each stretch, side by side if there is room."""
    evaluation = inputs.evaluation
    if not evaluation.stretches:
        return Html("")
    columns = []
    for index, stretch in enumerate(evaluation.stretches):
        text = _describe(stretch, inputs)
        shown = picture(
            stretch_trend,
            stretch,
            evaluation.tables.spec,
            evaluation.bands,
            setpoints_of(inputs.config),
            name=f"stretch{index}",
            caption=text,
        )
        content = shown if shown.text else paragraph(text)
        columns.append(tag("div", tag("h3", TITLES.get(stretch.label, stretch.label)), content))
    return join([paragraph(_introduction(inputs)), tag("div", *columns, class_="columns")])


def setpoints_of(config: str) -> dict[str, str]:
    """The channel that carries the setpoint of each controlled one, by the loops of a run.

    Args:
        config: Resolved configuration as TOML.

    Example:
        >>> setpoints_of("classical.setpoint_channel.level = 'level_sp'")
        {'level': 'level_sp'}
    """
    classical = tomllib.loads(config).get("classical", {})
    loops = [loop for one in classical.get("declared", {}).values() for loop in one]
    found = {loop["controlled"]: loop.get("setpoint_channel", "") for loop in loops}
    found |= classical.get("setpoint_channel", {})
    return {name: channel for name, channel in found.items() if channel}


def _introduction(inputs: Inputs) -> str:
    evaluation = inputs.evaluation
    policy, actions = evaluation.stretches[0].policy, evaluation.tables.spec.n_action
    text = (
        f"{policy} behind its guard in shadow: at each step it receives the logged measurements, "
        "and the logged action is carried out. The measurements below are therefore the logged "
        "ones, and the effects of its own moves are not shown. Grey is the range of the actions in "
        "the 50 most similar situations elsewhere in the log; where a proposal leaves it, marked "
        "by a dot, the log does not show what would have followed."
    )
    if actions > MAX_ACTIONS:
        text += (
            f" Of {actions} actions, the {MAX_ACTIONS} whose proposals differ most from the log "
            "are drawn."
        )
    return text


def _describe(stretch: Stretch, inputs: Inputs) -> str:
    tables = inputs.evaluation.tables
    spec = tables.spec
    when = f"Episode {stretch.episode + 1}"
    if stretch.when:
        when += f", from {stretch.when}"
    elif stretch.first:
        when += f", from its step {stretch.first + 1}"
    unit = "" if tables.reward_unit == "reward" else f" {tables.reward_unit}"
    part_of_log = "not trained on" if stretch.held_out else "trained on"
    parts = [
        f"{when}, {duration(len(stretch.known), spec.dt)}, {part_of_log}; mean logged reward "
        f"{number(stretch.reward)}{unit} a step."
    ]
    n_known = max(int(stretch.known.sum()), 1)
    proposed, logged = (
        stretch.outside(action).sum(axis=0) for action in (stretch.proposed, stretch.logged)
    )
    for i in shown_actions(stretch, spec):
        channel = spec.action[i]
        distance = float(np.abs((stretch.proposed - stretch.logged)[stretch.known, i]).mean())
        parts.append(
            f"{channel.name}: {with_unit(f'{distance:.2g}', channel.unit)} from the log on "
            f"average; outside the range of the log in {percent(proposed[i] / n_known)} of the "
            f"steps (the logged action itself: {percent(logged[i] / n_known)})."
        )
    fell_back = float(((stretch.flags & int(Flag.FALLBACK_USED)) != 0).mean())
    if fell_back:
        parts.append(f"The fallback would have acted in {percent(fell_back)} of the steps.")
    unknown = len(stretch.known) - int(stretch.known.sum())
    if unknown:
        parts.append(f"{unknown} rows with an unknown value are left blank.")
    limit_text = _beyond_limits(stretch, inputs)
    if limit_text:
        parts.append(f"In the log, {limit_text}.")
    return " ".join(parts)


def _beyond_limits(stretch: Stretch, inputs: Inputs) -> str:
    """Names the measurements that exceeded their limits, as logged."""
    texts = []
    for index, name in enumerate(stretch.channels):
        values = stretch.obs[stretch.known, index]
        for band in inputs.evaluation.bands:
            over = ((values < band.low) | (values > band.high)) if band.channel == name else None
            if over is not None and over.any():
                limit = band.high if np.isfinite(band.high) else band.low
                texts.append(
                    f"{name} was beyond its limit of {number(limit)} in "
                    f"{percent(float(over.mean()))} of the steps"
                )
    return enumeration(texts) if texts else ""


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


def stretch_trend(
    stretch: Stretch, spec: Spec, bands: Sequence[Band], setpoints: Mapping[str, str]
) -> Any:
    """Draws logged and proposed actions, then logged measurements and costs.

    A setpoint is drawn over its measurement, not in a panel of its own.
    """
    over = {
        name: stretch.channels.index(setpoint)
        for name, setpoint in setpoints.items()
        if {name, setpoint} <= {*stretch.channels}
    }
    shown_rows = [i for i in range(len(stretch.channels)) if i not in over.values()]
    actions = shown_actions(stretch, spec)
    costs = [j for j in range(spec.n_cost) if np.nanmax(stretch.cost[:, j], initial=0.0) > 0]
    rows = len(actions) + len(shown_rows) + len(costs)
    figure = new_figure(PANEL * rows + HEAD, width=WIDTH)
    panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    seconds, unit = time_axis(len(stretch.known), spec.dt)
    time = np.arange(len(stretch.known)) * spec.dt / seconds
    for panel, i in zip(panels, actions, strict=False):
        _action(panel, stretch, i, time, spec)
    for panel, row in zip(panels[len(actions) :], shown_rows, strict=False):
        _measurement(panel, stretch, row, time, spec, bands, over.get(stretch.channels[row]))
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
    panel: Any,
    stretch: Stretch,
    row: int,
    time: np.ndarray,
    spec: Spec,
    bands: Sequence[Band],
    setpoint: int | None,
) -> None:
    name = stretch.channels[row]
    unit = next(channel.unit for channel in spec.obs if channel.name == name)
    values = np.where(stretch.known, stretch.obs[:, row], np.nan)
    panel.plot(time, values, color=LOGGED, lw=1.2)
    wanted = [] if setpoint is None else np.where(stretch.known, stretch.obs[:, setpoint], np.nan)
    if setpoint is not None:
        panel.step(time, wanted, where="post", color=OUTSIDE, lw=1.2, ls=(0, (4, 2)))
    limits = [(band.low, band.high) for band in bands if band.channel == name]
    panel.set_ylim(*window_of([*values, *wanted, *(end for pair in limits for end in pair)]))
    for low, high in limits:
        shade_forbidden(panel, low, high)
    setpoint_note = "" if setpoint is None else " with its setpoint dashed"
    panel_title(panel, f"{name}{setpoint_note}, as logged", unit)


def _legend(panel: Any) -> tuple[list[Any], list[str]]:
    logged, proposed, outside = panel.get_lines()[:3]
    (covered,) = panel.collections[:1]
    return (
        [proposed, logged, outside, covered],
        ["proposed", "logged", "outside the grey range", "range in similar situations"],
    )
