"""The report of a log as text for a terminal."""

from collections.abc import Iterable
from typing import Any

from neorl_core.costs import limit_kind


def report_text(report: dict[str, Any]) -> str:
    """Formats a :func:`~neorl_envs.inspection.dataset_report`; numbers carry their units.

    Args:
        report: The report.

    Returns:
        Lines of at most about 100 characters.
    """
    lengths, returns = report["episode_length"], report["episode_return"]
    lines = [
        f"{report['name']}: {report['rows']} rows, {report['episodes']} episodes of "
        f"{lengths['min']:.0f} to {lengths['max']:.0f} steps (mean {lengths['mean']:.1f}), "
        f"period {report['period_s']:g} s",
        f"episodes end: {report['terminated']} terminated, {report['truncated']} truncated",
        f"return per episode: mean {returns['mean']:.4g}, from {returns['min']:.4g} to "
        f"{returns['max']:.4g}, standard deviation {returns['std']:.3g}",
    ]
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
    if report["attribution"]:
        lines += ["", f"attribution: {report['attribution']}"]
    if report["notes"]:
        lines += ["", *(f"note: {note}" for note in report["notes"])]
    return "\n".join([*lines, "", f"content {report['content_hash']}"])


def _channel_table(title: str, channels: list[dict[str, Any]]) -> list[str]:
    moving = "step_std" in channels[0]
    head = [title, "unit", "min", "mean", "max", "std", "coverage", "saturated"]
    rows = [head + (["std of step", "moves"] if moving else [])]
    for c in channels:
        numbers = [f"{c.get(name, float('nan')):.5g}" for name in ("min", "mean", "max", "std")]
        fractions = [f"{c['coverage']:.0%}", f"{c['saturated']:.1%}"]
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
