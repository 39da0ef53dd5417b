"""The candidate in shadow over the best, the median and the worst stretch of a log."""

from datetime import UTC, datetime

import numpy as np

from neorl_safety.filters import Flag
from neorl_train.judging._results import BEST, MEDIAN, WORST, Stretch
from neorl_train.judging._wording import enumeration, number, percent
from neorl_train.pages._html import Html, join, paragraph, tag
from neorl_train.pages._inputs import Inputs
from neorl_train.pages.figures._stretch import MAX_ACTIONS, shown_actions, stretch_trend
from neorl_train.pages.figures._style import duration
from neorl_train.pages.sections._pictures import picture

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
            name=f"stretch{index}",
            alt=text,
            caption=text,
        )
        content = shown if shown.text else paragraph(text)
        columns.append(tag("div", tag("h3", TITLES.get(stretch.label, stretch.label)), content))
    return join([paragraph(_introduction(inputs)), tag("div", *columns, class_="columns")])


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
    if np.isfinite(stretch.stamp):
        started = datetime.fromtimestamp(stretch.stamp, UTC)
        when += f", from {started:%Y-%m-%d %H:%M} UTC"
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
            f"{channel.name}: {distance:.2g} {channel.unit} from the log on average; outside the "
            f"range of the log in {percent(proposed[i] / n_known)} of the steps (the logged action "
            f"itself: {percent(logged[i] / n_known)})."
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
