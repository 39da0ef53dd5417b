"""The report of a log as text for a terminal."""

import textwrap
from collections.abc import Iterable
from typing import Any

from neorl_core.costs import limit_kind
from neorl_envs.inspection._interlocks import interlock_lines
from neorl_envs.inspection._wording import duration, figures, moment

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
    return [
        f"time: {duration(time['span_s'])} from {moment(time['start'], time['origin'])} to "
        f"{moment(time['end'], time['origin'])}; rows cover {time['covered']:.1%}; {time['gaps']} "
        f"gaps, the longest {duration(time['longest_gap_s'])}"
    ]


def relation_lines(report: dict[str, Any]) -> list[str]:
    """Lines on behaviour, delays, drift, the check of the reward and the interlocks."""
    lines = [
        f"behaviour of {b['action']}: {b['explained']:.0%} of its variance is linear in the "
        f"observation, and {b['repeatable']:.0%} recurs in similar situations"
        for b in report["behaviour"]
    ]
    if report["manual"] is not None:
        shares = zip(report["action"], report["manual"], strict=True)
        lines.append("in manual: " + ", ".join(f"{c['name']} {m:.1%}" for c, m in shares))
    strongest = sorted(report["delays"], key=lambda d: -abs(d["correlation"]))[:8]
    lines += [
        f"{d['action']} affects {d['obs']} after {duration(d['delay_s'])} (correlation of changes "
        f"{d['correlation']:+.2f})"
        for d in strongest
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


def origin_lines(report: dict[str, Any]) -> list[str]:
    """Lines on excitation, ingestion, provenance and split from the file's attributes."""
    lines = []
    excitation = report["excitation"]
    channels = excitation.get("channels", []) if isinstance(excitation, dict) else []
    for c in channels if isinstance(channels, list) else []:
        if isinstance(c, dict) and "channel" in c:
            numbers = {k: v for k, v in c.items() if k not in ("channel", "unit")}
            lines.append(f"excitation of {c['channel']}: {_pairs(numbers)}")
    for name in ("ingestion", "provenance", "split"):
        value = report[name]
        if isinstance(value, dict):
            lines.append(f"{name}: {_pairs(value)}")
    ingestion = report["ingestion"] if isinstance(report["ingestion"], dict) else {}
    if isinstance(ingestion.get("rows"), dict):
        lines.append(f"rows: {_pairs(ingestion['rows'])}")
    lines += _excluded_lines(ingestion)
    for title, key in (("values of", "tags"), ("unknown:", "unknown")):
        tags = ingestion.get(key)
        for tag, counts in tags.items() if isinstance(tags, dict) else ():
            if isinstance(counts, dict):
                lines.append(f"{title} {tag}: {_pairs(counts)}")
    return lines


def _excluded_lines(ingestion: dict[str, Any]) -> list[str]:
    excluded = ingestion.get("excluded")
    return [
        f"excluded: {excluded_words(one)}"
        for one in (excluded if isinstance(excluded, list) else ())
        if isinstance(one, dict) and {"from", "to", "reason", "rows"} <= one.keys()
    ]


def excluded_words(one: dict[str, Any]) -> str:
    """Number of rows that an ``[[exclude]]`` period removed, with the reason."""
    count = f"{one['rows']} {'row' if one['rows'] == 1 else 'rows'}"
    return f"{count} from {one['from']} to {one['to']}: {one['reason']}"


def _pairs(values: dict[str, Any]) -> str:
    """The plain members of an object, and the sizes of its lists and objects."""

    def shortened(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.4g}"
        if isinstance(value, dict | list) and len(str(value)) > 60:
            return f"({len(value)})"
        return str(value)

    return ", ".join(f"{name} {shortened(value)}" for name, value in values.items())


def _channel_table(title: str, channels: list[dict[str, Any]]) -> list[str]:
    moving = "step_std" in channels[0]
    head = [title, "unit", "min", "mean", "max", "std", "range used", "saturated", "longest flat"]
    rows = [head + (["std of step", "moves"] if moving else [])]
    for c in channels:
        numbers = [figures(c.get(name, float("nan"))) for name in ("min", "mean", "max", "std")]
        fractions = [f"{c['coverage']:.0%}", f"{c['saturated']:.1%}"]
        fractions.append(duration(c["longest_flat_s"]))
        moved = [f"{c['step_std']:.4g}", f"{c['moved']:.0%}"] if moving else []
        rows.append([c["name"], c["unit"], *numbers, *fractions, *moved])
    return _aligned(rows)


def _behaviour_table(behaviours: list[dict[str, Any]]) -> list[str]:
    rows = [["behaviour", "episodes", "mean return", "mean costs"]]
    for b in behaviours:
        costs = ", ".join(f"{cost:.3g}" for cost in b["mean_costs"])
        rows.append([b["name"], str(b["episodes"]), f"{b['mean_return']:.4g}", costs])
    return _aligned(rows)


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(_cells(row, widths)).rstrip() for row in rows]


def _cells(row: list[str], widths: list[int]) -> Iterable[str]:
    for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.ljust(width) if i < 2 else cell.rjust(width)
