"""Text that the command ``replay`` prints; the same numbers are available as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from neorl_deploy.runtime._decision import flag_sentences
from neorl_deploy.shadow._replay import Replay

# A text-mode trend plot of the logged and the proposed actions.


LOGGED, SHADOW, BOTH = ".", "o", "@"


def trend(
    logged: np.ndarray, shadow: np.ndarray, *, width: int = 64, height: int = 7
) -> Sequence[str]:
    """Two curves of one channel over the same steps.

    Args:
        logged: Logged action, shape ``(step,)``, finite.
        shadow: Action that the bundle proposes, shape ``(step,)``, finite.
        width: Number of character columns; steps are averaged into them.
        height: Number of character rows.

    Returns:
        One string per plot row, top row first, each with its value at the left.
    """
    curves = [_columns(curve.astype(np.float64), width) for curve in (logged, shadow)]
    low = min(float(curve.min()) for curve in curves)
    high = max(float(curve.max()) for curve in curves)
    span = (high - low) or 1.0
    rows = [np.rint((curve - low) / span * (height - 1)).astype(int) for curve in curves]
    lines = []
    for level in reversed(range(height)):
        cells = [_cell(a == level, b == level) for a, b in zip(*rows, strict=True)]
        lines.append(f"{low + span * level / (height - 1):>12.5g} |{''.join(cells).rstrip()}")
    return lines


def _columns(curve: np.ndarray, width: int) -> np.ndarray:
    edges = np.linspace(0, len(curve), min(width, len(curve)) + 1).astype(int)
    return np.add.reduceat(curve, edges[:-1]) / np.diff(edges)


def _cell(logged: bool, shadow: bool) -> str:
    if logged and shadow:
        return BOTH
    return LOGGED if logged else SHADOW if shadow else " "


def typical_episode(starts: np.ndarray, difference: np.ndarray, rows: int) -> slice:
    """The rows of the episode whose mean ``difference``, one number per row, is the median."""
    ends = np.append(starts[1:], rows)
    means = np.add.reduceat(difference, starts) / (ends - starts)
    chosen = int(np.argsort(means, kind="stable")[len(means) // 2])
    return slice(int(starts[chosen]), int(ends[chosen]))


MAX_TRENDS = 3


def replay_lines(replay: Replay) -> Iterator[str]:
    """Differences, filter activity, observations and a typical episode."""
    report = replay.report
    yield from _log_lines(report["log"])
    yield "Difference between the bundle's action and the logged one"
    titles = " ".join(f"{title:>11}" for title in ("mean", "mean size", "95 % within", "largest"))
    yield f"  {'channel':<20} {titles}  unit"
    for name, row in report["difference"].items():
        numbers = " ".join(f"{_plain(row[k]):>11}" for k in ("mean", "mean_size", "p95", "max"))
        yield f"  {name:<20} {numbers}  {row['unit']} (range {row['range']:g})"
    yield from _filter_lines(report["filter"])
    yield from _alarm_lines(report["monitors"])
    observations = report["observations"]
    yield (
        "Observations outside their measuring range in "
        f"{observations['out_of_range']:.2%} of the steps, "
        f"not finite in {observations['not_finite']:.2%}"
    )
    for name, fraction in observations["out_of_range_channels"].items():
        yield f"  {name:<24} {fraction:>7.2%}"
    yield from _trend_lines(replay)


def shadow_lines(replay: Replay) -> Iterator[str]:
    """As :func:`replay_lines` for a loop's audit log: also agreement, predicted benefit, drift."""
    yield from replay_lines(replay)
    report = replay.report
    yield "Agreement with what was done"
    for name, row in report["agreement"].items():
        interval = "" if row["low"] is None else f", 95 % {row['low']:.4g} to {row['high']:.4g}"
        yield (
            f"  {name:<24} {row['within']:>6.1%} of the steps within {row['within_size']:g} "
            f"{row['unit']}; mean difference {row['mean']:.4g} {row['unit']}{interval}"
        )
    benefit = report["benefit"]
    if benefit is None:
        yield "Predicted benefit: the verdict states none"
    elif benefit["low"] is None or benefit["value"] is None:
        yield f"Predicted benefit, as stated in the verdict: bound {_plain(benefit['bound'])}"
    else:
        unit = benefit["unit"] or ""
        yield (
            f"Predicted benefit, as stated in the verdict: {_plain(benefit['value'])} {unit}, "
            f"{_plain(benefit['low'])} to {_plain(benefit['high'])} ({benefit['statistic']})"
        )
    yield "Drift: change of the mean from the first quarter to the last, in standard deviations"
    for name, move in report["drift"].items():
        yield f"  {name:<24} {'not known' if move is None else f'{move:+.2f}'}"


def _log_lines(log: dict[str, Any]) -> Iterator[str]:
    yield (
        f"Shadow over {log['rows']} rows of {log['episodes']} episodes of {log['path']} "
        f"({log['rows_skipped']} rows skipped)"
    )
    if log["learned_from"]:
        yield "  This is the log that the policy learned from."
    elif log["learned_from"] is None:
        named = "The run names this file as the log that the policy learned from"
        open_ = "Whether the policy learned from this log is not known"
        yield f"  {named if log['named_by_run'] else open_}: an .npz has no content"
        yield "  hash by which to check it."
    if log["other_ranges"]:
        yield f"  Ranges differ from the bundle's: {', '.join(log['other_ranges'])}"
    if log["attribution"]:
        yield f"  {log['attribution']}"


def _filter_lines(activity: dict[str, Any]) -> Iterator[str]:
    yield (
        f"The filter changed {activity['changed']:.1%} of the steps; the fallback acted in "
        f"{activity['fallback']:.1%}"
    )
    if activity["flags"].get("rate_active"):
        yield "  In shadow each step starts from the logged action, so the limit on the rate of"
        yield "  change acts wherever policy and log differ: in the loop it acts less often."
    for name, fraction in activity["flags"].items():
        if fraction:
            yield f"  in {fraction:.2%} of the steps {flag_sentences([name])[0]}"
    for name, row in activity["channels"].items():
        held = [f"{words} {row[k]:.1%}" for k, words in HELD.items() if row.get(k)]
        if held:
            most = f"{_plain(row['moved_max'])} {row['unit']}"
            yield f"  {name:<24} held {', '.join(held)} of the steps; moved by at most {most}"


HELD = {
    "low": "at its lower limit in",
    "high": "at its upper limit in",
    "rate_down": "as it falls in",
    "rate_up": "as it rises in",
    "interval_low": "from below by an interlock or a further limit in",
    "interval_high": "from above by an interlock or a further limit in",
    "rows": "by a limit on several actuators in",
    "wear": "to spare it in",
    "authority": "at the end of the policy's authority in",
}
"""What a limit does to an actuator, by the name that a manifest gives it."""


def _alarm_lines(monitors: dict[str, Any]) -> Iterator[str]:
    for name, row in monitors.items():
        promised = "" if row["promised"] is None else f" (promised at most {row['promised']:.1%})"
        yield (
            f"Monitor {name}: alarm in {row['steps']:.2%} of the steps, in {row['episodes']} of "
            f"{row['of_episodes']} episodes{promised}"
        )


def _plain(value: float) -> str:
    """Formats a number with four significant digits, without an exponent where readable."""
    text = f"{value:.4g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text


def _trend_lines(replay: Replay) -> Iterator[str]:
    log, names = replay.log, list(replay.report["difference"])
    rows = np.asarray(np.isfinite(log.action).all(axis=1))
    spans = np.array([row["range"] for row in replay.report["difference"].values()])
    distances = np.abs(replay.shadow.action - np.where(rows[:, None], log.action, 0)) / spans
    episode = typical_episode(log.starts, distances.mean(axis=1), len(log.obs))
    shown = np.flatnonzero(rows[episode]) + episode.start
    if not len(shown):
        return
    yield f"A typical episode, rows {episode.start} to {episode.stop - 1}"
    yield "  . logged   o bundle   @ both"
    for i, name in enumerate(names[:MAX_TRENDS]):
        yield f"  {name} [{replay.report['difference'][name]['unit']}]"
        for line in trend(log.action[shown, i], replay.shadow.action[shown, i]):
            yield f"  {line}"
