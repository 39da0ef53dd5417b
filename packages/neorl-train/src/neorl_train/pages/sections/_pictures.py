"""The figures with their captions; a line of text instead if they cannot be drawn."""

from typing import Any

import numpy as np

from neorl_core.costs import limit_kind
from neorl_train.judging._results import HARDEST, LOWEST, TYPICAL, Trace, limited_quantity
from neorl_train.judging._tables import ResultTables
from neorl_train.judging._wording import confidence, enumeration, with_sign
from neorl_train.pages._html import Html, figure, join, paragraph, tag
from neorl_train.pages._inputs import Inputs
from neorl_train.pages.figures import _style
from neorl_train.pages.figures._learning import Panel, learning_curves, single_validation
from neorl_train.pages.figures._results import (
    by_start,
    costs_that_occur,
    return_against_cost,
    who_acts,
)
from neorl_train.pages.figures._trends import trends

TITLES = {
    TYPICAL: "A typical episode (median return)",
    LOWEST: "The worst episode (lowest return)",
    HARDEST: "The episode closest to its limits",
}


def missing() -> Html:
    """What to install to get figures."""
    return paragraph(
        "Pictures need matplotlib: ",
        tag("code", f'python -m pip install "{_style.EXTRA}"'),
        ", then write the report again. All numbers are in the tables.",
        class_="note",
    )


def picture(draw: Any, *arguments: Any, name: str, alt: str, caption: str | Html) -> Html:
    """A figure with its caption, or nothing if it cannot be drawn."""
    if not _style.installed():
        return Html("")
    svg = Html(_style.svg_figure(draw, *arguments, name=name, alt=alt))
    return figure(svg, caption)


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
            alt=text,
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
    return picture(
        by_start, gains, costs, tables.reward_unit, name="starts", alt=text, caption=text
    )


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
    return picture(return_against_cost, tables, costs, name="costs", alt=text, caption=text + extra)


def acting_picture(inputs: Inputs) -> Html:
    """Figure of who acts."""
    text = (
        "Fractions of all steps in which the policy's own action reached the plant, in which the "
        "guard changed it to keep its range and rate of change, and in which the fallback acted."
    )
    return picture(who_acts, inputs.evaluation.tables, name="acts", alt=text, caption=text)


def learning_picture(inputs: Inputs) -> Html:
    """Figure of the learning curves of every seed."""
    panels = learning_panels(inputs)
    if not panels:
        return paragraph("The run has no records of its training, so there are no learning curves.")
    if single := single_validation(inputs.validations, panels):
        return paragraph(single)
    text = (
        "Thin lines are seeds, thick ones their mean. "
        + (
            "Return and cost are means over a few starts that the verdict does not use; dashed "
            "lines are the reference and the log; the horizontal line of a cost is its limit. "
            if inputs.simulated
            else ""
        )
        + "Held-out distance is the mean squared distance to the logged action on episodes that "
        "were not trained on, in units of half the range."
    )
    return picture(
        learning_curves, inputs.validations, panels, name="learning", alt=text, caption=text
    )


def learning_panels(inputs: Inputs) -> list[Panel]:
    """The panels for which the records of a run have data."""
    tables = inputs.evaluation.tables
    recorded_metrics = {curve.metric for curve in inputs.validations}
    panels = []
    if "plant_return" in recorded_metrics:
        levels = {tables.reference: tables.row(tables.reference, guarded=False)}
        levels |= {row.name: row for row in tables.rows if row.role == "log"}
        lines = {name: row.returns.value for name, row in levels.items()}
        label = f"return [{tables.reward_unit}]"
        panels.append(Panel("plant_return", label, lines, float("nan"), logarithmic=False))
    for channel in tables.spec.cost:
        metric = f"plant_cost_{channel.name}"
        metric_curves = [curve for curve in inputs.validations if curve.metric == metric]
        if any((curve.value > 0).any() for curve in metric_curves):
            label = f"cost {channel.name} [{channel.unit}]"
            # The curve shows sums over an episode, to which a limit per step does not apply.
            limit = limit_kind(channel).of_episode(total=channel.limit, worst=float("nan"))
            panels.append(Panel(metric, label, {}, limit, logarithmic=False))
    if "held_out_distance" in recorded_metrics:
        panels.append(
            Panel("held_out_distance", "held-out distance", {}, float("nan"), logarithmic=True)
        )
    return panels
