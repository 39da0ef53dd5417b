"""Learning curves: the policies as they were validated during training."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_core.costs import limit_kind
from neorl_train.judging._pool import LEARNER
from neorl_train.judging._wording import enumeration, number, plain
from neorl_train.pages import _style
from neorl_train.pages._html import Html, paragraph
from neorl_train.pages._inputs import Curve, Inputs, read_inputs
from neorl_train.pages._style import (
    CLASSICAL,
    LIMIT,
    colours,
    new_figure,
    picture,
    require_matplotlib,
)

DASHES = ((0, (4, 2)), (0, (1, 1.5)))


@dataclasses.dataclass(frozen=True)
class Panel:
    """One metric and the levels to compare it with.

    Attributes:
        metric: Name of the metric in the records.
        label: Title of the panel, with the unit.
        lines: Levels for comparison, by name.
        limit: A level that must not be exceeded; NaN for none.
        logarithmic: Whether the axis is logarithmic.
    """

    metric: str
    label: str
    lines: Mapping[str, float]
    limit: float
    logarithmic: bool


def single_validation(curves_to_draw: Sequence[Curve], panels: Sequence[Panel]) -> str:
    """Describes the values if every policy was validated only once, so that there is no curve.

    Returns:
        One sentence with the values and one on how to get a curve; empty if there is a curve.
    """
    shown = [curve for panel in panels for curve in curves_to_draw if curve.metric == panel.metric]
    steps = {int(step) for curve in shown for step in curve.step}
    if any(len(curve.step) > 1 for curve in shown):
        return ""
    texts = []
    for panel in panels:
        by_learner: dict[str, list[float]] = {}
        for curve in (curve for curve in shown if curve.metric == panel.metric):
            by_learner.setdefault(curve.algorithm, []).append(float(curve.value[0]))
        means = [f"{name} {number(float(np.mean(v)))}" for name, v in by_learner.items()]
        texts.append(f"{panel.label}: {', '.join(means)}")
    updates = enumeration([str(step) for step in sorted(steps)])
    return (
        f"Every policy was validated only once, after {updates} updates, so there is no curve to "
        f"draw. Means over the seeds are: {'; '.join(texts)}. For a curve, set "
        "checkpoints.interval to a tenth of training.updates."
    )


def learning_curves(curves_to_draw: Sequence[Curve], panels: Sequence[Panel]) -> Any:
    """One panel per metric: a thin line for each seed, a thick line for the mean."""
    figure = new_figure(3.4)
    colour_of = colours([curve.algorithm for curve in curves_to_draw])
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        for algorithm, colour in colour_of.items():
            own_curves = [
                c for c in curves_to_draw if c.metric == panel.metric and c.algorithm == algorithm
            ]
            _seeds(axis, own_curves, algorithm, colour)
        for (name, level), dashes in zip(panel.lines.items(), DASHES, strict=False):
            axis.axhline(level, color=CLASSICAL, lw=1.2, ls=dashes, label=name)
        if np.isfinite(panel.limit):
            axis.axhline(panel.limit, color=LIMIT, lw=1.2, label="limit")
        if panel.logarithmic:
            _logarithmic(axis)
        axis.set_xlabel("updates [thousands]")
        axis.set_title(panel.label, loc="left", fontsize=10)
    entries = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside upper left",
        ncols=len(entries),
        fontsize=9,
    )
    return figure


def _logarithmic(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _seeds(axis: Any, own_curves: Sequence[Curve], algorithm: str, colour: str) -> None:
    if not own_curves:
        return
    for curve in own_curves:
        marks = _marks(len(curve.step), 3)
        axis.plot(curve.step / 1000, curve.value, color=colour, lw=0.8, alpha=0.45, **marks)
    shortest = min(len(curve.step) for curve in own_curves)
    mean = np.mean([curve.value[:shortest] for curve in own_curves], axis=0)
    label = f"{algorithm}, mean of {len(own_curves)} seeds" if len(own_curves) > 1 else algorithm
    steps = own_curves[0].step[:shortest] / 1000
    axis.plot(steps, mean, color=colour, lw=2, label=label, **_marks(shortest, 6))


def _marks(points: int, size: float) -> dict[str, Any]:
    """A line through a single point is invisible, so it is drawn as a dot."""
    return {"marker": "o", "markersize": size} if points == 1 else {}


def learning_picture(inputs: Inputs) -> Html:
    """Figure of the learning curves of every seed."""
    panels = learning_panels(inputs)
    trained = [one for one in inputs.record.get("candidates", ()) if one["family"] == LEARNER]
    if not panels and inputs.record.get("candidates") and not trained:
        return Html("")
    if not panels:
        return paragraph("The run has no records of its training, so there are no learning curves.")
    if single := single_validation(inputs.validations, panels):
        return paragraph(single)
    text = (
        "Thin lines are seeds, thick ones their mean. "
        + (
            "Return and cost are means over a few starts that the verdict does not use; dashed "
            "lines are today's controller and the log; the horizontal line of a cost is its limit. "
            if inputs.simulated
            else "Return is the mean over a few episodes whose seeds the scores do not use; the "
            "dashed line is the log. "
            if inputs.evaluation.tables.judge
            else ""
        )
        + "Held-out distance is the mean squared distance to the logged action on episodes that "
        "were not trained on, in units of half the range."
    )
    return picture(learning_curves, inputs.validations, panels, name="learning", caption=text)


def learning_panels(inputs: Inputs) -> list[Panel]:
    """The panels for which the records of a run have data."""
    tables = inputs.evaluation.tables
    recorded_metrics = {curve.metric for curve in inputs.validations}
    panels = []
    if "plant_return" in recorded_metrics:
        levels = {}
        if tables.reference:
            levels[tables.reference] = tables.row(tables.reference, guarded=False)
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


def plot_learning(run: str | os.PathLike[str]) -> Any:
    """Validation results of a run's policies during training, by algorithm and seed.

    Args:
        run: Directory of an evaluated run.

    Returns:
        A ``matplotlib.figure.Figure``.

    Raises:
        InputError: If a file is missing or damaged, nothing was recorded, or matplotlib is missing.
    """
    require_matplotlib()
    inputs = read_inputs(Path(run))
    panels = learning_panels(inputs)
    if not panels:
        raise InputError(
            f"{run} has no records of its training, so there is no learning curve to draw"
        )
    return _style.draw_styled(learning_curves, inputs.validations, panels)
