"""The report of a log as one HTML page: no script, no request, pictures drawn as SVG."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

from neorl_envs.inspection._report import duration
from neorl_envs.inspection._text import moment, origin_lines, relation_lines

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #777; --bar: #2a6db0; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --soft: #aaa; --bar: #7db4ea; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, td:nth-child(2) { text-align: left; }
.wide { overflow-x: auto; } svg { vertical-align: middle; } rect { fill: var(--bar); }
.note::before { content: "! "; color: var(--bad); font-weight: bold; } small { color: var(--soft); }
"""


def report_html(report: dict[str, Any]) -> str:
    """Formats a :func:`~neorl_envs.inspection.dataset_report` as a page of its own.

    Args:
        report: The report.

    Returns:
        HTML that needs nothing else; every text of the log is escaped.
    """
    name = html.escape(str(report["name"]))
    sections = [
        f"<h1>{name}: what the log can show</h1>",
        _summary(report),
        "<h2>What deserves attention</h2>",
        _list(report["notes"], "note") or "<p>Nothing was found.</p>",
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
    bars = _bars(report["episode_lengths"], "episodes by their length, short to long")
    return f"<p>{html.escape(text)}</p><p>{bars} <small>episodes by length</small></p>"


def _time(report: dict[str, Any]) -> str:
    time = report["time"]
    if time is None:
        return "<p>No stamps are recorded.</p>"
    span = max(time["span_s"], 1e-9)
    boxes = "".join(
        f'<rect x="{1000 * (a - time["start"]) / span:.1f}" width="'
        f'{max(1000 * (b - a) / span, 0.5):.1f}" y="0" height="24"/>'
        for a, b in time["pieces"]
    )
    words = (
        f"{moment(time['start'], time['origin'])} to {moment(time['end'], time['origin'])}: "
        f"{duration(time['span_s'])}, of which rows cover {time['covered']:.1%}; {time['gaps']} "
        f"gaps, the longest {duration(time['longest_gap_s'])}."
    )
    return (
        f"<p>{html.escape(words)}</p>"
        '<svg viewBox="0 0 1000 24" width="100%" height="24" preserveAspectRatio="none" '
        f'role="img" aria-label="episodes over time">{boxes}</svg>'
    )


def _channels(channels: Sequence[dict[str, Any]], *, moving: bool) -> str:
    head = ["name", "unit", "min", "mean", "max", "coverage", "saturated", "outside", "flat for"]
    head += ["moves", "std of step"] if moving else []
    rows = []
    for c in channels:
        numbers = [f"{c.get(key, float('nan')):.5g}" for key in ("min", "mean", "max")]
        shares = [f"{c[key]:.1%}" for key in ("coverage", "saturated", "outside")]
        cells = [c["name"], c["unit"], *numbers, *shares, duration(c["longest_flat_s"])]
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
    top = "".join(f"<th>{html.escape(word)}</th>" for word in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def _list(lines: Sequence[str], kind: str) -> str:
    if not lines:
        return ""
    return "<ul>" + "".join(f'<li class="{kind}">{html.escape(x)}</li>' for x in lines) + "</ul>"


def _bars(counts: Sequence[int], label: str) -> str:
    most = max([*counts, 1])
    boxes = "".join(
        f'<rect x="{5 * i}" width="4" y="{24 - 24 * count / most:.1f}" '
        f'height="{24 * count / most:.1f}"/>'
        for i, count in enumerate(counts)
    )
    return (
        f'<svg width="{5 * len(counts)}" height="24" role="img" '
        f'aria-label="{html.escape(label)}">{boxes}</svg>'
    )
