"""Everything that the rows of a loop say: its health in words, the model, and what ails it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from neorl_agents.loops._cause import Cause, loop_cause
from neorl_agents.loops._health import LoopFigures, loop_figures, shared_swings
from neorl_agents.loops._model import LoopModel, loop_model
from neorl_agents.loops._record import LoopRecord, without_spikes


class LoopReport(NamedTuple):
    """One loop.

    Attributes:
        record: Its rows, without spikes of the measurement.
        figures: Its health.
        model: What the rows show of its process.
        cause: What ails it.
    """

    record: LoopRecord
    figures: LoopFigures
    model: LoopModel
    cause: Cause


class Figure(NamedTuple):
    """One line of a loop's health.

    Attributes:
        name: What it is, such as ``"time in automatic"``.
        value: The figure with its unit.
        word: What an engineer would say of it, such as ``"good"`` or ``"high"``; empty where there
            is nothing to say.
    """

    name: str
    value: str
    word: str


def loop_reports(records: Sequence[LoopRecord]) -> Iterator[LoopReport]:
    """Judges the loops of one log, each as soon as it is done.

    Which loops oscillate together takes all of them, so that comes first.

    Args:
        records: The loops, their rows at the same times.
    """
    records = [without_spikes(record) for record in records]
    for record, swing in zip(records, shared_swings(records), strict=True):
        model = loop_model(record)
        dead_time = model.dead_time.value if model.members else None
        figures = loop_figures(record, dead_time=dead_time, swing=swing)
        yield LoopReport(record, figures, model, loop_cause(record, figures, model))


def health_figures(report: LoopReport) -> tuple[Figure, ...]:
    """The health of a loop in lines, each with its figure and one word."""
    record, figures = report.record, report.figures
    use, swing, harris = figures.figures, figures.swing, figures.harris
    unit, output = record.measurement_unit, record.output_unit
    low, high = record.measurement_range
    travel = float(use.travel) / (record.output_range[1] - record.output_range[0])
    noise = float(use.noise) / (high - low)
    fit, shift = figures.stiction
    mean, deviation = float(use.mean_error), float(use.error_deviation)
    used = float(np.mean(record.valid))
    return (
        Figure(
            "rows that can be used",
            f"{used:.1%} of {len(record.measurement)}",
            _word(used, (0.8, "few"), (0.99, "fair"), (np.inf, "good")),
        ),
        Figure(
            "time in automatic",
            f"{float(use.automatic):.1%}" if record.mode_known else "100.0% (no mode was given)",
            _word(float(use.automatic), (0.5, "low"), (0.9, "fair"), (np.inf, "good")),
        ),
        Figure(
            "output at a limit",
            f"{float(use.saturation):.1%}",
            _word(float(use.saturation), (0.01, "good"), (0.2, "fair"), (np.inf, "high")),
        ),
        Figure(
            "service factor",
            f"{float(use.service_factor):.1%}",
            _word(float(use.service_factor), (0.5, "low"), (0.9, "fair"), (np.inf, "good")),
        ),
        Figure(
            "setpoint minus measurement",
            f"mean {mean:.3g}, deviation {deviation:.3g} {unit}".rstrip(),
            "offset" if abs(mean) > deviation else "centred",
        ),
        Figure("variability", _number(float(use.variability), "{:.1%}"), ""),
        Figure(
            "Harris index",
            _number(float(harris.index), "{:.2f}")
            + f" [{_number(float(harris.low), '{:.2f}')}, {_number(float(harris.high), '{:.2f}')}]"
            f" with a dead time of {figures.harris_delay} rows"
            + ("" if report.model.members else ", which is assumed"),
            _word(float(harris.index), (0.3, "low"), (0.7, "fair"), (np.inf, "good")),
        ),
        Figure(
            "oscillation",
            f"every {swing.period / 60:.3g} min, regularity {swing.regularity:.1f}"
            + (f", with {', '.join(swing.shared)}" if swing.shared else "")
            if swing.regular
            else "none",
            ("lasting" if swing.lasts else "damped") if swing.regular else "good",
        ),
        Figure(
            "stiction",
            f"shape {_number(fit, '{:.2f}')}, phase {_number(shift, '{:.2f}')}",
            "suspect" if figures.stiction.agree and swing.regular else "not shown",
        ),
        Figure(
            "travel of the output",
            f"{float(use.travel):.4g} {output} a day, {float(use.reversals):.0f} reversals".strip(),
            _word(travel, (20, "good"), (100, "fair"), (np.inf, "high")),
        ),
        Figure(
            "resolution",
            _number(float(use.resolution), "{:.3g} " + unit),
            "coarse" if float(use.resolution) > 3 * max(float(use.noise), 1e-30) else "fine",
        ),
        Figure(
            "noise",
            f"{float(use.noise):.3g} {unit}".rstrip()
            + (f", {noise:.2%} of the range" if record.ranges_known else ""),
            _word(noise, (0.003, "low"), (0.01, "fair"), (np.inf, "high"))
            if record.ranges_known
            else "",
        ),
        Figure(
            "setpoint crossings",
            f"{float(use.crossings):.0f} a day, and {figures.moves} moves of the setpoint",
            "" if record.has_setpoint else "no setpoint was given",
        ),
    )


def _number(value: float, form: str) -> str:
    return form.format(value).rstrip() if np.isfinite(value) else "not known"


def _word(value: float, *bounds: tuple[float, str]) -> str:
    """The word of the first bound above a value; not known for NaN."""
    return next((word for bound, word in bounds if value < bound), "not known")
