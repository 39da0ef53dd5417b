"""Formats the measured results of critics as text."""

from typing import Any


def critics_text(report: dict[str, Any]) -> str:
    """The report of :func:`fit_critics` as text.

    Args:
        report: Report of the fit, or the content of its JSON file.

    Returns:
        Lines for a terminal.
    """
    ensemble, safety = report["ensemble"], report["safety_critic"]
    lines = [
        f"ensemble of dynamics: {ensemble['members']} members on {ensemble['episodes']} episodes",
        f"  measured coverage of its {100 * ensemble['coverage']:g} % intervals on fresh episodes:",
    ]
    lines += [
        f"    {name:<24} {_percent(*measured)}"
        for name, measured in ensemble["coverage_measured"].items()
    ]
    lines += _monitor(ensemble["monitor"])
    lines = [*report["still_actions"], *lines]
    if "none" in safety:
        return "\n".join([*lines, f"no safety critic: {safety['none']}"])
    lines.append(f"safety critic: risk of a violation within {safety['horizon']} steps")
    for limit in safety["limits"]:
        assessment = safety["assessment"][limit["name"]]
        lines.append(f"  {limit['name']}: {limit['claim']}")
        lines.append(f"    windows with a violation {100 * assessment['rate']:.3g} %")
        for name in ("calibration_error", "area_under_roc", "brier_skill"):
            value, low, high = assessment[name]
            lines.append(f"    {name.replace('_', ' '):<18} {value:.3f} [{low:.3f}, {high:.3f}]")
    lines += _monitor(safety["monitor"])
    if safety["monitor"]["threshold"] >= 1:
        lines.append(
            "    it can never alarm, because episodes that keep their limits also reach a risk of "
            "1; allow more false alarms, shorten the horizon, or declare the limit per step"
        )
    return "\n".join(lines)


def _percent(value: float, low: float, high: float) -> str:
    return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _monitor(monitor: dict[str, Any]) -> list[str]:
    worst = f"{100 * monitor['rate_of_19_in_20_thresholds']:.0f} %"
    lines = [
        f"  monitor: alarm above {monitor['threshold']:.3g}, calibrated on "
        f"{monitor['threshold_episodes']} episodes: 19 of 20 such thresholds raise false alarms in "
        f"at most {worst} of episodes"
    ]
    promised = f"promised {100 * monitor['promised_false_alarms']:g} %"
    counts = (
        ("false alarms", "false_alarms", f", {promised}"),
        ("alarms over a limit", "alarmed_over_limit", ""),
    )
    for words, name, more in counts:
        if monitor[name] is not None:
            alarms, of, low, high = monitor[name]
            ends = f"[{100 * low:.1f}, {100 * high:.1f}]"
            lines.append(f"    {words}: {alarms} of {of} episodes, {ends} %{more}")
    return lines
