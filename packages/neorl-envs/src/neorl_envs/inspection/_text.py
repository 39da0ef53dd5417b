"""The report of a log as text for a terminal."""

import textwrap
from collections.abc import Iterable
from typing import Any

from neorl_core.costs import limit_kind
from neorl_envs.inspection._interlocks import interlock_lines
from neorl_envs.inspection._origin import origin_lines
from neorl_envs.inspection._wording import durations, figures, moment

WIDTH = 110


def report_text(report: dict[str, Any]) -> str:
    """Formats a :func:`~neorl_envs.inspection.dataset_report`; numbers carry their units.

    Args:
        report: The report.

    Returns:
        Lines of at most about 100 characters.
    """
    lengths, returns = report["episode_length"], report["episode_return"]
    lines = [
        f"log {report['name']}: {report['rows']} rows, {report['episodes']} "
        f"episode{'s' * (report['episodes'] != 1)} of "
        f"{lengths['min']:.0f} to {lengths['max']:.0f} steps (mean {lengths['mean']:.1f}), "
        f"period {report['period_s']:g} s",
        f"episodes end: {report['terminated']} terminated, {report['truncated']} truncated",
        f"return per episode: mean {returns['mean']:.4g}, from {returns['min']:.4g} to "
        f"{returns['max']:.4g}, standard deviation {returns['std']:.3g}",
    ]
    lines += _time_lines(report["time"])
    for cost in report["costs"]:
        kind = limit_kind(cost["per"])
        limit = kind.limit_words(cost["limit"], cost["unit"])
        lines.append(
            f"cost {cost['name']} [{cost['unit']}]: mean {cost['episode']['mean']:.4g} per episode,"
            f" above zero in {cost['steps_above_zero']:.1%} of steps, limit {limit} "
            f"exceeded in {cost['beyond_limit']:.1%} of {kind.counted}"
        )
    for kind, title in (("obs", "measured"), ("action", "manipulated")):
        lines += ["", *_channel_table(title, report[kind])]
    if report["behaviours"]:
        lines += ["", *_behaviour_table(report["behaviours"])]
    for line in ("", *relation_lines(report), *origin_lines(report)):
        lines += textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False) or [""]
    if report["attribution"]:
        lines += ["", f"attribution: {report['attribution']}"]
    if report["notes"]:
        remarks = report["notes"][len(report["warnings"]) :]
        lines += ["", *(f"warning: {warning}" for warning in report["warnings"])]
        lines += [f"note: {remark}" for remark in remarks]
    return "\n".join([*lines, "", f"content {report['content_hash']}"])


def _time_lines(time: dict[str, Any] | None) -> list[str]:
    if time is None:
        return []
    span, longest = durations([time["span_s"], time["longest_gap_s"]])
    return [
        f"time: {span} from {moment(time['start'], time['origin'])} to "
        f"{moment(time['end'], time['origin'])}; rows cover {time['covered']:.1%}; {time['gaps']} "
        f"gaps, the longest {longest}"
    ]


def relation_lines(report: dict[str, Any]) -> list[str]:
    """Lines on behaviour, delays, drift, the check of the reward and the interlocks."""
    lines = [
        f"behaviour of {b['action']}: {_fraction(b['explained'])} of its variance is linear in the "
        f"observation, and {_fraction(b['repeatable'])} recurs in similar situations"
        for b in report["behaviour"]
    ]
    if report["manual"] is not None:
        shares = zip(report["action"], report["manual"], strict=True)
        lines.append("in manual: " + ", ".join(f"{c['name']} {m:.1%}" for c, m in shares))
    strongest = sorted(report["delays"], key=lambda d: -abs(d["correlation"]))[:8]
    delays = durations([d["delay_s"] for d in strongest])
    lines += [
        f"{d['action']} affects {d['obs']} after {delay} (correlation of changes "
        f"{d['correlation']:+.2f})"
        for d, delay in zip(strongest, delays, strict=True)
    ]
    if not report["delays"]:
        lines.append("no observation responds to a change of an action")
    largest = sorted(report["drift"], key=lambda d: -d["distance"])[:3]
    if largest:
        apart = ", ".join(f"{d['name']} {d['distance']:.2f}" for d in largest)
        lines.append(f"drift (distance of the last fifth from the rest, 0 to 1): {apart}")
    check = report["reward_check"]
    lines.append(
        f"reward recomputed from its expression: {check['rows']} rows, largest difference "
        f"{check['largest_difference']:.2g}"
        if check["checked"]
        else f"reward not recomputed: {check['why']}"
    )
    return [*lines, *interlock_lines(report)]


def _fraction(explained: float) -> str:
    """A fraction of a variance; a prediction that is worse than the mean explains none of it."""
    return f"{explained:.0%}" if explained >= 0.005 else "none"


def _channel_table(title: str, channels: list[dict[str, Any]]) -> list[str]:
    moving = "step_std" in channels[0]
    head = [title, "unit", "min", "mean", "max", "std", "range used", "saturated", "longest flat"]
    rows = [head + (["std of step", "moves"] if moving else [])]
    flat = durations([c["longest_flat_s"] for c in channels])
    for c, longest in zip(channels, flat, strict=True):
        numbers = [figures(c.get(name, float("nan"))) for name in ("min", "mean", "max", "std")]
        fractions = [f"{c['coverage']:.0%}", f"{c['saturated']:.1%}", longest]
        moved = [f"{c['step_std']:.4g}", f"{c['moved']:.0%}"] if moving else []
        rows.append([c["name"], c["unit"], *numbers, *fractions, *moved])
    return _align(rows)


def _behaviour_table(behaviours: list[dict[str, Any]]) -> list[str]:
    rows = [["behaviour", "episodes", "mean return", "mean costs"]]
    for b in behaviours:
        costs = ", ".join(f"{cost:.3g}" for cost in b["mean_costs"])
        rows.append([b["name"], str(b["episodes"]), f"{b['mean_return']:.4g}", costs])
    return _align(rows)


def _align(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(_cells(row, widths)).rstrip() for row in rows]


def _cells(row: list[str], widths: list[int]) -> Iterable[str]:
    for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.ljust(width) if i < 2 else cell.rjust(width)
