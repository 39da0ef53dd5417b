"""Writes compared runs and benchmarks: tables in every format, pages and figures."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import replacing, write_text
from neorl_train.judging._results import LOG
from neorl_train.judging._tables import Estimate
from neorl_train.judging._wording import confidence
from neorl_train.pages import _style
from neorl_train.pages._html import (
    Column,
    Html,
    bullets,
    document,
    figure,
    join,
    paragraph,
    table,
    tag,
)
from neorl_train.studies._benchmark import PROFILE, Benchmark
from neorl_train.studies._comparison import THRESHOLDS, ComparedRow, Comparison, LearnerAggregate
from neorl_train.studies._figures import Curves, Dots, Picture, Profiles, study_figure
from neorl_train.studies._tables import (
    SUFFIXES,
    Table,
    benchmark_tables,
    benchmark_text,
    benchmark_to_json,
    check_output,
    comparison_csv,
    comparison_tables,
    comparison_to_json,
    notes,
    render,
    rows_csv,
)

DOTS_PER_INCH = 150


@dataclasses.dataclass(frozen=True)
class ShownPicture:
    """One figure with its text.

    Attributes:
        heading: Heading of its section.
        caption: Description of it.
        picture: The figure.
    """

    heading: str
    caption: str
    picture: Picture


def write_benchmark(folder: Path, benchmark: Benchmark) -> list[Path]:
    """Writes the tables as text, Markdown, LaTeX, CSV and JSON, and a page with figures.

    The figures are also written as PNG if matplotlib is installed.

    Args:
        folder: Folder of the benchmark.
        benchmark: Results of the benchmark.

    Returns:
        The files.

    Raises:
        OSError: If one cannot be written.
    """
    tables, note_lines = benchmark_tables(benchmark), notes(benchmark)
    content = {
        ".txt": benchmark_text(benchmark) + "\n",
        ".md": "\n".join([render(tables, ".md"), *(f"- {note}" for note in note_lines), ""]),
        ".tex": "\n".join([render(tables, ".tex"), *(f"% {note}" for note in note_lines), ""]),
        ".csv": rows_csv(benchmark.rows),
        ".json": json.dumps(benchmark_to_json(benchmark), indent=1) + "\n",
    }
    for suffix, text in content.items():
        write_text(folder / f"benchmark{suffix}", text)
    files = [folder / f"benchmark{suffix}" for suffix in content]
    shown, page = _benchmark_figures(benchmark), folder / "benchmark.html"
    learners = _learners(benchmark.rows)
    write_text(page, _page("Benchmark", tables, note_lines, shown, learners))
    if not _style.installed() or not shown:
        return [*files, page]
    picture = folder / "benchmark.png"
    _write_png(picture, shown, learners)
    return [*files, page, picture]


def write_comparison(
    path: Path, comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> None:
    """Writes compared runs in the format given by the suffix of the file.

    Args:
        path: File with one of :data:`SUFFIXES`. A CSV file contains only the rows of the runs.
        comparison: The compared runs.
        aggregates: Learners over several plants.

    Raises:
        InputError: If the suffix is unknown, its folder is missing, or a figure cannot be drawn.
        OSError: If the file cannot be written.
    """
    check_output(path, SUFFIXES)
    if path.suffix in (".html", ".png"):
        _write_comparison_picture(path, comparison, aggregates)
        return
    if path.suffix == ".csv":
        text = comparison_csv(comparison)
    elif path.suffix == ".json":
        text = json.dumps(comparison_to_json(comparison, aggregates), indent=1) + "\n"
    else:
        text = render(comparison_tables(comparison, aggregates), path.suffix)
    write_text(path, text)


def _write_comparison_picture(
    path: Path, comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> None:
    """Writes compared runs as a page (``.html``) or as a single figure (``.png``).

    Raises:
        InputError: If a PNG is requested and matplotlib is missing, or there is nothing to draw
            because no policy was run on a plant.
        OSError: If it cannot be written.
    """
    shown = _comparison_figures(comparison, aggregates)
    panels = [
        entry.picture if isinstance(entry.picture, list) else [entry.picture] for entry in shown
    ]
    names_of_pictures = [
        picture.learners
        for panel in panels
        for picture in panel
        if isinstance(picture, Dots | Profiles)
    ]
    learners = tuple(dict.fromkeys(name for names in names_of_pictures for name in names))
    if path.suffix == ".html":
        tables = comparison_tables(comparison, aggregates)
        write_text(path, _page("Runs side by side", tables, [], shown, learners))
        return
    _style.require_matplotlib()
    if not shown:
        raise InputError(
            f"{path}: no policy was run on a plant and no gain is predicted, so there is nothing "
            "to draw"
        )
    _write_png(path, shown, learners)


def _learners(rows: Sequence[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.policy for row in rows if row.role == "learner"))


def _write_png(path: Path, shown: Sequence[ShownPicture], learners: Sequence[str]) -> None:
    image = _style.draw_styled(study_figure, [entry.picture for entry in shown], learners)
    with replacing(path) as partial:
        image.savefig(partial, format="png", dpi=DOTS_PER_INCH, facecolor="white")


def _page(
    title: str,
    tables: Sequence[Table],
    note_lines: Sequence[str],
    shown: Sequence[ShownPicture],
    learners: Sequence[str],
) -> str:
    header = [tag("p", "neorl", class_="over"), tag("h1", title)]
    pictures = []
    for number, entry in enumerate(shown):
        caption, name = entry.caption, f"picture{number}"
        if _style.installed():
            svg = _style.svg_figure(study_figure, [entry.picture], learners, name=name, alt=caption)
            pictures.append((name, entry.heading, figure(Html(svg), caption)))
    missing = []
    if not _style.installed():
        missing = [paragraph(f"Pictures need matplotlib: {_style.INSTALL}", class_="note")]
    remarks = [bullets(list(note_lines))] if note_lines else []
    content = join([*missing, *(_table(content) for content in tables), *remarks])
    return document(title, header, [*pictures, ("tables", "Tables", content)])


def _table(content: Table) -> Html:
    heads, *rows = content.cells
    columns = [Column(head, align="left" if i == 0 else "right") for i, head in enumerate(heads)]
    return table(content.title, columns, rows)


def _benchmark_figures(benchmark: Benchmark) -> list[ShownPicture]:
    level, unit = confidence(benchmark.level), "score (0 random, 100 reference)"
    tasks = list(dict.fromkeys((row.plant, row.quality) for row in benchmark.rows))
    learners = _learners(benchmark.rows)
    panels = []
    for task in tasks:
        values = {
            row.policy: row.last
            for row in benchmark.rows
            if (row.plant, row.quality) == task and row.last is not None
        }
        panels.append(Dots(f"{task[0]}, {task[1]} log", unit, values, learners, 100.0))
    shown = [
        ShownPicture(
            "Scores",
            f"Score after the last update with its {level} interval: learners behind their guard "
            "(dots), controllers as they are (diamonds).",
            panels,
        )
    ]
    if len(tasks) > 1 and benchmark.overall:
        means = {entry.policy: entry.last for entry in benchmark.overall}
        parts = {entry.policy: entry.profile for entry in benchmark.overall}
        shown += [
            ShownPicture(
                "Over all tasks",
                f"Interquartile mean over plants, qualities and seeds with its {level} interval; "
                "without an interval for controllers, of which there is one per task.",
                [Dots("interquartile mean", unit, means, learners, 100.0)],
            ),
            ShownPicture(
                "Performance profiles",
                "Fraction of the scores of all tasks and seeds above each threshold; a seed that "
                "failed counts as the worst of its task.",
                Profiles(unit, PROFILE, parts, learners),
            ),
        ]
    curves = []
    for task in tasks:
        task_curves = [
            entry for entry in benchmark.learning if (entry.plant, entry.quality) == task
        ]
        lines = {entry.policy: (entry.steps, entry.score) for entry in task_curves}
        if lines:
            curves.append(Curves(f"{task[0]}, {task[1]} log", "score", lines, 100.0))
    if curves:
        text = (
            f"Mean over seeds during training, with Student's {level} interval where there are "
            "several; measured on a few separate starts, without guard."
        )
        shown.append(ShownPicture("Learning curves", text, curves))
    return shown


def _comparison_figures(
    comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> list[ShownPicture]:
    level, panels = confidence(comparison.level), []
    for source in dict.fromkeys(row.source for row in comparison.rows):
        rows = [r for r in comparison.rows if r.source == source and r.returns is not None]
        # A log has a return, but nothing to compare it with.
        if any(row.role != LOG for row in rows):
            today = [r.returns.value for r in rows if r.policy == r.incumbent and r.returns]
            values = _policy_estimates(rows, "returns")
            line = today[0] if today else math.nan
            panels.append(
                Dots(source, f"return [{rows[0].unit}]", values, _learners_of(rows), line)
            )
    shown = []
    if panels:
        shown.append(
            ShownPicture(
                "Returns",
                f"Mean return with its {level} interval: learners behind their guard (dots), "
                "controllers as they are (diamonds); the dashed line is today's controller.",
                panels,
            )
        )
    shown += _predicted_gains(comparison)
    if aggregates:
        unit = (
            f"gain over {comparison.against}, in standard deviations of today's return"
            if comparison.against
            else "gain over today's controller, in standard deviations of its return"
        )
        names = [_title(aggregate) for aggregate in aggregates]
        means = {name: aggregate.score for name, aggregate in zip(names, aggregates, strict=True)}
        parts = {name: aggregate.profile for name, aggregate in zip(names, aggregates, strict=True)}
        shown += [
            ShownPicture(
                "Over all plants",
                f"Interquartile mean over plants and seeds with its {level} interval.",
                [Dots("interquartile mean", unit, means, tuple(names), 0.0)],
            ),
            ShownPicture(
                "Performance profiles",
                "Fraction of the scores of all plants and seeds above each threshold.",
                Profiles(unit, THRESHOLDS, parts, tuple(names)),
            ),
        ]
    return shown


def _predicted_gains(comparison: Comparison) -> list[ShownPicture]:
    """The gains that models of logs predict, a panel for each log; empty if there are none."""
    rows = [row for row in comparison.rows if row.predicted is not None]
    panels = []
    for source in dict.fromkeys(row.source for row in rows):
        own = [row for row in rows if row.source == source]
        unit = f"predicted gain in return [{own[0].unit}]"
        panels.append(
            Dots(source, unit, _policy_estimates(own, "predicted"), _learners_of(own), 0.0)
        )
    if not panels:
        return []
    text = (
        "Gain of each run's candidate over the controller that runs today, predicted by a plant "
        "model of the log, with its interval. The dashed line marks zero gain."
    )
    return [ShownPicture("Predicted gains", text, panels)]


def _names(rows: Sequence[ComparedRow]) -> list[str]:
    """The names of the policies, with their run if several have the same name."""
    names = [row.policy for row in rows]
    return [
        row.policy if names.count(row.policy) == 1 else f"{row.policy} ({row.run})" for row in rows
    ]


def _policy_estimates(rows: Sequence[ComparedRow], field: str) -> dict[str, Estimate]:
    return {name: getattr(row, field) for name, row in zip(_names(rows), rows, strict=True)}


def _learners_of(rows: Sequence[ComparedRow]) -> tuple[str, ...]:
    return tuple(
        name for name, row in zip(_names(rows), rows, strict=True) if row.role == "learner"
    )


def _title(aggregate: LearnerAggregate) -> str:
    settings = ", ".join(aggregate.settings.values())
    return f"{aggregate.learner} ({settings})" if settings else aggregate.learner
