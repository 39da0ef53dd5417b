"""The report of a log as one HTML page without scripts or requests; plots are inline SVG."""

import dataclasses
import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._report import gap_words, relation_lines
from neorl_envs.inspection._wording import durations, figures, moment_of, origin_lines

# Trends of all channels over the whole log: smallest and largest value in each interval.


INTERVALS = 600


LEAST_EPISODES = 20
"""Number of episodes below which a picture of their lengths shows nothing."""


@dataclasses.dataclass(frozen=True)
class Trends:
    """Trends of all channels.

    Attributes:
        start: Start of the first interval, seconds; row number if the log has no times.
        end: End of the last interval.
        stamped: Whether ``start`` and ``end`` are times.
        low: Smallest value in each interval, by channel; NaN if there is none.
        high: Largest value in each interval, by channel.
    """

    start: float
    end: float
    stamped: bool
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


def trends(dataset: Dataset, intervals: int = INTERVALS) -> Trends:
    """Computes the trends of all observations and actions and of the reward, block by block.

    Args:
        dataset: The log.
        intervals: Number of intervals of the time axis; fewer if the log has fewer periods.

    Returns:
        The smallest and largest unmasked value in every interval.
    """
    columns: Any = dataset.transitions
    named = [
        ([channel.name for channel in dataset.spec.obs], columns.obs),
        ([channel.name for channel in dataset.spec.action], columns.action),
        (["reward"], columns.reward),
    ]
    stamped = dataset.time is not None
    at = np.asarray(dataset.time) if stamped else np.arange(dataset.n_rows, dtype=np.float64)
    width = dataset.spec.dt if stamped else 1.0
    start, end = float(at.min()), float(at.max()) + width
    intervals = max(1, min(intervals, int((end - start) / width)))
    low, high = {}, {}
    for names, column in named:
        least = np.full((intervals, len(names)), np.nan)
        most = least.copy()
        for rows in blocks(dataset.n_rows, column):
            used = np.asarray(columns.mask[rows])
            values = np.asarray(column[rows], np.float64).reshape(len(used), -1)[used]
            if not len(values):
                continue
            middle = at[rows][used] - start + width / 2  # safe from rounding at the edges
            bin_index = (middle * intervals / (end - start)).astype(np.int64)
            bin_index = np.clip(bin_index, 0, intervals - 1)
            first = np.flatnonzero(np.diff(bin_index, prepend=-1))
            np.fmin.at(least, bin_index[first], np.fmin.reduceat(values, first, axis=0))
            np.fmax.at(most, bin_index[first], np.fmax.reduceat(values, first, axis=0))
        low |= dict(zip(names, least.T, strict=True))
        high |= dict(zip(names, most.T, strict=True))
    return Trends(start, end, stamped, low, high)


STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #777; --bar: #2a6db0; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --soft: #aaa; --bar: #7db4ea; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
.wide { overflow-x: auto; } svg { vertical-align: middle; } rect { fill: var(--bar); }
.warning::before { content: "! "; color: var(--bad); font-weight: bold; }
small { color: var(--soft); }
.trend { display: grid; grid-template-columns: minmax(6rem, 14rem) 1fr; gap: 0 1rem; }
.trend > div { border-bottom: 1px solid #8884; padding: .2rem 0; overflow-wrap: anywhere; }
.trend svg { display: block; width: 100%; height: 3.5rem; }
.trend path { fill: var(--bar); stroke: var(--bar); vector-effect: non-scaling-stroke; }
.trend rect { fill: var(--bad); opacity: .25; }
small, li, p { overflow-wrap: anywhere; }
@media (max-width: 60rem) { .wide th, .wide td { padding: .2rem .35rem; }
  .wide { font-size: .85rem; } }
@media screen and (max-width: 44rem) { .trend { grid-template-columns: 1fr; }
  .trend > div:nth-child(odd) { border: 0; padding-bottom: 0; }
  .wide { font-size: 1rem; } .wide :is(table, tbody, tr) { display: block; }
  .wide tr { padding: .5rem 0; border-bottom: 1px solid #8884; }
  .wide tr:first-child { display: none; }
  .wide td { display: flex; justify-content: space-between; gap: 1rem; padding: 0; border: 0;
    overflow-wrap: anywhere; }
  .wide td::before { content: attr(data-label); color: var(--soft); text-align: left; }
  .wide td:first-child { font-weight: bold; } .wide td:first-child::before { content: none; } }
"""


def report_html(report: dict[str, Any], drawn: Trends | None = None) -> str:
    """Formats a :func:`~neorl_envs.inspection.dataset_report` as an HTML page.

    Args:
        report: The report.
        drawn: Trends of the log from :func:`~neorl_envs.inspection.trends`; ``None`` draws none.

    Returns:
        Self-contained HTML, in which all text from the log is escaped.
    """
    name = html.escape(str(report["name"]))
    sections = [
        f"<h1>{name}: what the log can show</h1>",
        _summary(report),
        "<h2>To resolve before training</h2>",
        _list(report["warnings"], "warning") or "<p>No check raised a warning.</p>",
        "<h2>Good to know</h2>",
        _list(report["notes"][len(report["warnings"]) :], "") or "<p>Nothing.</p>",
        *([] if drawn is None else ["<h2>Trends</h2>", _trends(report, drawn)]),
        "<h2>Time</h2>",
        _time(report),
        "<h2>Manipulated variables</h2>",
        _channels(report["action"], moving=True),
        "<h2>Measured variables</h2>",
        _channels(report["obs"], moving=False),
        "<h2>Actions and observations</h2>",
        _correlation(report),
        _list(relation_lines(report), ""),
        "<h2>Costs</h2>",
        _costs(report["costs"]),
        "<h2>Where it comes from</h2>",
        _list(origin_lines(report), ""),
        f"<p><small>content {html.escape(report['content_hash'])}</small></p>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{name}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def _summary(report: dict[str, Any]) -> str:
    lengths, returns = report["episode_length"], report["episode_return"]
    text = (
        f"{report['rows']} rows every {report['period_s']:g} s, {report['masked_rows']} of them "
        f"masked; {report['episodes']} episodes of {lengths['min']:.0f} to {lengths['max']:.0f} "
        f"steps, {report['terminated']} terminated and {report['truncated']} truncated; return "
        f"{returns['mean']:.4g} on average, from {returns['min']:.4g} to {returns['max']:.4g}."
    )
    if report["episodes"] < LEAST_EPISODES or lengths["min"] == lengths["max"]:
        return f"<p>{html.escape(text)}</p>"
    bars = _bars(report["episode_lengths"], "episodes by their length, short to long")
    return f"<p>{html.escape(text)}</p><p>{bars} <small>episodes by length</small></p>"


def _time(report: dict[str, Any]) -> str:
    time = report["time"]
    if time is None:
        return "<p>No timestamps are recorded.</p>"
    span = max(time["span_s"], 1e-9)
    boxes = "".join(
        f'<rect x="{1000 * (a - time["start"]) / span:.1f}" width="'
        f'{max(1000 * (b - a) / span, 0.5):.1f}" y="0" height="24"/>'
        for a, b in time["pieces"]
    )
    length, longest = durations([time["span_s"], time["longest_gap_s"]])
    caption = (
        f"{moment_of(time['start'], time)} to {moment_of(time['end'], time)}: "
        f"{length}, of which rows cover {time['covered']:.1%}; "
        f"{gap_words(time['gaps'], longest)}."
    )
    return (
        f"<p>{html.escape(caption)}</p>"
        '<svg viewBox="0 0 1000 24" width="100%" height="24" preserveAspectRatio="none" '
        f'role="img" aria-label="episodes over time">{boxes}</svg>'
    )


def _trends(report: dict[str, Any], drawn: Trends) -> str:
    """Trends of all channels over the whole log, with their smallest and largest values."""
    channels = [*report["action"], *report["obs"], {"name": "reward", "unit": ""}]
    rows = [
        f"<div>{_scale(channel, drawn)}</div><div>{_trend(channel['name'], report, drawn)}</div>"
        for channel in channels
        if channel["name"] in drawn.low
    ]
    extent = f"rows {drawn.start:.0f} to {drawn.end:.0f}"
    if drawn.stamped:
        extent = f"{moment_of(drawn.start, report['time'])} to "
        extent += moment_of(drawn.end, report["time"])
    text = (
        f"From left to right {extent}; each column of the picture spans the smallest to the "
        "largest value of its interval. Manipulated variables come first. A red field marks a "
        "signal that stood still while others moved."
    )
    return f"<p>{html.escape(text)}</p><div class='trend'>{''.join(rows)}</div>"


def _scale(channel: dict[str, Any], drawn: Trends) -> str:
    low, high = drawn.low[channel["name"]], drawn.high[channel["name"]]
    name = html.escape(channel["name"])
    if not np.isfinite(low).any():
        return f"{name}<br><small>no value</small>"
    unit = html.escape(channel["unit"])
    lowest, highest = figures(float(np.nanmin(low))), figures(float(np.nanmax(high)) + 0.0)
    return f"{name}<br><small>{lowest} to {highest} {unit}</small>"


def _trend(name: str, report: dict[str, Any], drawn: Trends) -> str:
    """A band from the smallest to the largest value, with gaps where there are no values."""
    low, high = drawn.low[name], drawn.high[name]
    finite = np.flatnonzero(np.isfinite(low))
    if not len(finite):
        return ""
    lowest, highest = float(np.nanmin(low)), float(np.nanmax(high))
    span = (highest - lowest) or 1.0
    top, bottom = (2 + 56 * (1 - (edge - lowest) / span) for edge in (high, low))
    paths = []
    for run in np.split(finite, np.flatnonzero(np.diff(finite) > 1) + 1):
        points = [(i + 0.5, top[i]) for i in run] + [(i + 0.5, bottom[i]) for i in run[::-1]]
        if len(run) == 1:
            points = [(run[0], top[run[0]]), (run[0] + 1, bottom[run[0]])]
        paths.append("M" + "L".join(f"{x:g} {y:.1f}" for x, y in points) + "Z")
    n = len(low)
    scale = n / (drawn.end - drawn.start)
    dt = report["period_s"]
    boxes = "".join(
        f'<rect x="{((s["start"] if drawn.stamped else s["row"]) - drawn.start) * scale:.1f}" '
        f'width="{s["duration_s"] / (1 if drawn.stamped else dt) * scale:.1f}" y="0" height="60"/>'
        for s in report["frozen"]
        if s["name"] == name
    )
    return (
        f'<svg viewBox="0 0 {n} 60" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(name)} over time">{boxes}<path d="{"".join(paths)}"/></svg>'
    )


def _channels(channels: Sequence[dict[str, Any]], *, moving: bool) -> str:
    head = ["name", "unit", "min", "mean", "max", "range used", "saturated", "outside", "flat for"]
    head += ["moves", "std of step"] if moving else []
    rows = []
    flat = durations([c["longest_flat_s"] for c in channels])
    for c, longest in zip(channels, flat, strict=True):
        numbers = [figures(c.get(key, float("nan"))) for key in ("min", "mean", "max")]
        shares = [f"{c[key]:.1%}" for key in ("coverage", "saturated", "outside")]
        cells = [c["name"], c["unit"], *numbers, *shares, longest]
        cells += [f"{c['moved']:.0%}", f"{c['step_std']:.4g}"] if moving else []
        picture = _bars(c["histogram"], f"{c['name']} over its range {c['low']:g} to {c['high']:g}")
        rows.append([*map(html.escape, cells), picture])
    return _table([*head, "over its range"], rows)


def _correlation(report: dict[str, Any]) -> str:
    names = [c["name"] for c in report["obs"]]
    rows = []
    for action, values in zip(report["action"], report["correlation"], strict=True):
        order = sorted(range(len(names)), key=lambda j: -abs(values[j]))[:6]
        cells = [f"{names[j]} {values[j]:+.2f}" for j in order if values[j]] or ["never moves"]
        rows.append([html.escape(action["name"]), html.escape(", ".join(cells))])
    return _table(["action", "correlates with"], rows)


def _costs(costs: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            html.escape(c["name"]),
            html.escape(c["unit"]),
            f"{c['limit']:g} per {c['per']}",
            f"{c['episode']['mean']:.4g}",
            f"{c['steps_above_zero']:.1%}",
            f"{c['beyond_limit']:.1%}",
        ]
        for c in costs
    ]
    head = ["cost", "unit", "limit", "mean per episode", "steps above 0", "beyond the limit"]
    return _table(head, rows) if rows else "<p>There is no cost.</p>"


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; on a narrow screen each row becomes a list in which every cell repeats its head."""
    words = [html.escape(word) for word in head]
    top = "".join(f"<th>{word}</th>" for word in words)
    lines = [
        "".join(
            f'<td data-label="{word}">{cell}</td>' for word, cell in zip(words, row, strict=True)
        )
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def _list(lines: Sequence[str], kind: str) -> str:
    if not lines:
        return ""
    return "<ul>" + "".join(f'<li class="{kind}">{html.escape(x)}</li>' for x in lines) + "</ul>"


def _bars(counts: Sequence[int], label: str) -> str:
    highest = max([*counts, 1])
    boxes = "".join(
        f'<rect x="{5 * i}" width="4" y="{24 - 24 * count / highest:.1f}" '
        f'height="{24 * count / highest:.1f}"/>'
        for i, count in enumerate(counts)
    )
    return (
        f'<svg width="{5 * len(counts)}" height="24" role="img" '
        f'aria-label="{html.escape(label)}">{boxes}</svg>'
    )
