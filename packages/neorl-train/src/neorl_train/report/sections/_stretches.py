"""The candidate in shadow over the best, the median and the worst stretch of a log."""

from datetime import UTC, datetime

import numpy as np

from neorl_safety.filters import Flag
from neorl_train.report._html import Html, joined, paragraph, tag
from neorl_train.report._inputs import Inputs
from neorl_train.report.figures._stretch import MOST_ACTIONS, shown_actions, stretch_trend
from neorl_train.report.sections._pictures import picture
from neorl_train.results._stretches import BEST, MEDIAN, WORST, Stretch
from neorl_train.results._wording import listed, number, percent

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
    for place, one in enumerate(evaluation.stretches):
        words = _described(one, inputs)
        shown = picture(
            stretch_trend,
            one,
            evaluation.tables.spec,
            evaluation.bands,
            name=f"stretch{place}",
            alt=words,
            caption=words,
        )
        content = shown if shown.text else paragraph(words)
        columns.append(tag("div", tag("h3", TITLES.get(one.label, one.label)), content))
    return joined([paragraph(_introduction(inputs)), tag("div", *columns, class_="columns")])


def _introduction(inputs: Inputs) -> str:
    evaluation = inputs.evaluation
    policy, actions = evaluation.stretches[0].policy, evaluation.tables.spec.n_action
    text = (
        f"{policy} behind its guard in shadow: at each step it gets the logged measurements, and "
        "the logged action is carried out. So the measurements below are the logged ones, and what "
        "its own moves would have brought about is not shown. Grey is the range of the actions in "
        "the 50 most similar situations elsewhere in the log; where a proposal leaves it, marked "
        "by a dot, the log does not show what would have followed."
    )
    if actions > MOST_ACTIONS:
        text += (
            f" Of {actions} actions the {MOST_ACTIONS} are drawn whose proposals differ most from "
            "the log."
        )
    return text


def _described(one: Stretch, inputs: Inputs) -> str:
    tables = inputs.evaluation.tables
    spec = tables.spec
    when = f"Episode {one.episode + 1}"
    if np.isfinite(one.stamp):
        begun = datetime.fromtimestamp(one.stamp, UTC)
        when += f", from {begun:%Y-%m-%d %H:%M} UTC"
    elif one.first:
        when += f", from its step {one.first + 1}"
    unit = "" if tables.reward_unit == "reward" else f" {tables.reward_unit}"
    trained = "not trained on" if one.held_out else "trained on"
    parts = [
        f"{when}, {duration(len(one.known) * spec.dt)}, {trained}; mean logged reward "
        f"{number(one.reward)}{unit} a step."
    ]
    known = max(int(one.known.sum()), 1)
    ours, theirs = (one.outside(action).sum(axis=0) for action in (one.proposed, one.logged))
    for i in shown_actions(one, spec):
        channel = spec.action[i]
        away = float(np.abs((one.proposed - one.logged)[one.known, i]).mean())
        parts.append(
            f"{channel.name}: {away:.2g} {channel.unit} from the log on average; outside what "
            f"the log did in {percent(ours[i] / known)} of the steps (the logged action itself: "
            f"{percent(theirs[i] / known)})."
        )
    fell_back = float(((one.flags & int(Flag.FALLBACK_USED)) != 0).mean())
    if fell_back:
        parts.append(f"The fallback would have acted in {percent(fell_back)} of the steps.")
    unknown = len(one.known) - int(one.known.sum())
    if unknown:
        parts.append(f"{unknown} rows with an unknown value are left blank.")
    beyond = _beyond(one, inputs)
    if beyond:
        parts.append(f"As logged, {beyond}.")
    return " ".join(parts)


def _beyond(one: Stretch, inputs: Inputs) -> str:
    """Names the measurements that exceeded their limits, as logged."""
    words = []
    for place, name in enumerate(one.channels):
        values = one.obs[one.known, place]
        for band in inputs.evaluation.bands:
            over = ((values < band.low) | (values > band.high)) if band.channel == name else None
            if over is not None and over.any():
                limit = band.high if np.isfinite(band.high) else band.low
                words.append(
                    f"{name} was beyond its limit of {number(limit)} in "
                    f"{percent(float(over.mean()))} of the steps"
                )
    return listed(words) if words else ""


def duration(seconds: float) -> str:
    """A duration as text.

    Example:
        >>> duration(30_000)
        '8.3 h'
    """
    for least, unit, name in ((3600.0, 3600.0, "h"), (60.0, 60.0, "min")):
        if seconds >= 2 * least:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
