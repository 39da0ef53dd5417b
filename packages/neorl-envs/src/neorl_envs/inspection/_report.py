"""The report of a log, as plain data and as text."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from neorl_core import CostChannel
from neorl_core.costs import limit_kind
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._channels import (
    channel_entries,
    episodes_sample,
    frozen_signals,
    movement,
    rarely_sampled,
    standstills,
    summary,
)
from neorl_envs.inspection._contradictions import (
    contradiction_sentences,
    contradictions,
    drift,
    duplicate_rows,
    interlock_lines,
    interlock_remarks,
    interlock_report,
    interlock_warnings,
    reward_check,
    reward_is_constant,
    time_report,
)
from neorl_envs.inspection._relations import relations
from neorl_envs.inspection._signals import (
    REPEATED,
    setpoint_names,
    signal_sentences,
    signals,
    skipped_names,
)
from neorl_envs.inspection._wording import (
    began,
    duration,
    durations,
    figures,
    moment_of,
    origin_lines,
)

# Report on the content of a log, from which an engineer can decide whether to train on it.


def dataset_report(dataset: Dataset) -> dict[str, Any]:
    """Reports on the content of a log, the information it offers for learning, and its problems.

    Masked rows are counted and otherwise ignored. A row is a duplicate if an earlier one has the
    same observation and action. A channel is saturated within 0.5 % of its range from either end,
    and flat while it does not change at all. Delays, correlation and behaviour are estimated from
    evenly spread whole episodes with at most about 100,000 rows. Columns are processed in blocks,
    so a mapped file may be larger than memory.

    Args:
        dataset: The log.

    Returns:
        Plain numbers and strings, ready for JSON. ``notes`` lists everything that deserves
        attention; ``warnings`` lists those notes that should be resolved before training.
    """
    rows: Any = dataset.transitions
    used = np.asarray(rows.mask)
    spec, attributes = dataset.spec, dataset.attributes
    obs_still, action_still = (standstills(c, dataset) for c in (rows.obs, rows.action))
    actions = channel_entries(spec.action, rows.action, dataset, action_still)
    skipped = skipped_names(dataset)
    sample = episodes_sample(dataset)
    report = {
        "name": attributes.get("name", "?"),
        "content_hash": dataset.content_hash,
        "rows": dataset.n_rows,
        "masked_rows": int(dataset.n_rows - used.sum()),
        "duplicate_rows": duplicate_rows(dataset),
        "episodes": dataset.n_episodes,
        "period_s": spec.dt,
        "horizon": spec.horizon,
        "terminated": int(np.asarray(rows.terminated).sum()),
        "truncated": int(np.asarray(rows.truncated).sum()),
        "episode_length": summary(dataset.episode_lengths),
        "episode_lengths": np.histogram(dataset.episode_lengths, 20)[0].tolist(),
        "episode_return": summary(dataset.episode_returns()),
        "time": time_report(dataset),
        "costs": _costs(spec.cost, dataset.episode_costs(), np.asarray(rows.cost)[used]),
        "obs": channel_entries(spec.obs, rows.obs, dataset, obs_still),
        "action": [{**c, **m} for c, m in zip(actions, movement(dataset), strict=True)],
        "manual": _manual(dataset),
        "contradictions": contradictions(dataset),
        **relations(sample, spec, setpoint_names(dataset)),
        **signals(dataset, sample),
        "frozen": frozen_signals(obs_still, action_still, dataset, skipped),
        "rarely_sampled": rarely_sampled(spec.obs, obs_still, spec.dt, skipped),
        "drift": drift(dataset),
        "reward_constant": reward_is_constant(rows),
        "reward_check": reward_check(dataset),
        "interlocks": interlock_report(dataset),
        "behaviours": _behaviours(dataset),
        **{
            name: attributes.get(name)
            for name in ("excitation", "ingestion", "provenance", "split", "attribution")
        },
    }
    warnings = _warnings(report)
    return {**report, "warnings": warnings, "notes": [*warnings, *_remarks(report)]}


def _manual(dataset: Dataset) -> list[float] | None:
    """Fraction of the unmasked rows in manual, for every manipulated variable."""
    if dataset.mode is None or not np.asarray(dataset.transitions.mask).any():
        return None
    return [float(x) for x in dataset.mode[np.asarray(dataset.transitions.mask)].mean(axis=0)]


def _costs(
    channels: Sequence[CostChannel], episodes: np.ndarray, steps: np.ndarray
) -> list[dict[str, Any]]:
    return [
        {
            "name": channel.name,
            "unit": channel.unit,
            "limit": channel.limit,
            "per": channel.per,
            "episode": summary(episodes[:, i]),
            "steps_above_zero": float((steps[:, i] > 0).mean()) if len(steps) else 0.0,
            "beyond_limit": _fraction_exceeding(channel, episodes[:, i], steps[:, i]),
        }
        for i, channel in enumerate(channels)
    ]


def _fraction_exceeding(channel: CostChannel, episodes: np.ndarray, steps: np.ndarray) -> float:
    """Fraction of the episodes or steps, depending on the limit, that exceed the limit."""
    kind = limit_kind(channel)
    quantities = kind.of_episode(total=episodes, worst=steps)
    return float(np.mean(kind.exceeded(quantities, channel.limit))) if len(quantities) else 0.0


def _behaviours(dataset: Dataset) -> list[dict[str, Any]]:
    if dataset.behaviour is None:
        return []
    returns, costs = dataset.episode_returns(), dataset.episode_costs()
    return [
        {
            "name": name,
            "episodes": int((dataset.behaviour == i).sum()),
            "mean_return": float(returns[dataset.behaviour == i].mean()),
            "mean_costs": [float(c) for c in costs[dataset.behaviour == i].mean(axis=0)],
        }
        for i, name in enumerate(dataset.attributes.get("behaviours", []))
        if (dataset.behaviour == i).any()
    ]


def _warnings(report: dict[str, Any]) -> list[str]:
    """Notes that should be resolved before training."""
    warnings = []
    if report["reward_constant"]:
        warnings.append("the reward is constant: nothing can be learned from it")
    check = report["reward_check"]
    if check["checked"] and check["largest_difference"] > check["tolerance"]:
        warnings.append(
            f"the reward differs from its expression by up to {check['largest_difference']:.3g}"
        )
    warnings += contradiction_sentences(report["contradictions"])
    time = report["time"]
    warnings += interlock_warnings(report["interlocks"]["entries"], time)
    for standstill in report["frozen"]:
        usual, length = durations([standstill["usual_s"], standstill["duration_s"]])
        usual_text = f"its usual standstills last {usual} at most"
        if not standstill["usual_s"]:
            usual_text = "it usually moves in every row"
        warnings.append(
            f"{standstill['name']} stood still for {length} from "
            f"{began(standstill, time)} while other signals moved ({usual_text}): did the "
            "instrument freeze? "
            "Leave these rows out ([[exclude]] in plant.toml), or mark the values as bad"
        )
    warnings += signal_sentences(report, time)
    for action, values in zip(report["action"], report["correlation"], strict=True):
        warnings += [
            f"{observed['name']} is almost the action {action['name']} itself (correlation "
            f"{value:+.3f} in the same row): if it is measured behind the action, a policy would "
            "read the action from it, so give it the role auxiliary; if the action is "
            "computed from it, the log shows no other action there"
            for observed, value in zip(report["obs"], values, strict=True)
            if abs(value) >= SAME and not REPEATED.search(observed["name"])
        ]
    warnings += [
        f"action {channel['name']} hardly moves: nothing can be learned about it"
        for channel in report["action"]
        if channel["moved"] < 0.01
    ]
    if time is not None and time["overlapping_episodes"]:
        warnings.append(f"{time['overlapping_episodes']} episodes overlap others in time")
    return warnings


def _remarks(report: dict[str, Any]) -> list[str]:
    """Notes for information, which may well be correct."""
    notes = []
    rarely = report["rarely_sampled"]
    for rare, every in zip(rarely, durations([one["every_s"] for one in rarely]), strict=True):
        notes.append(
            f"{rare['name']} changes every {every} on average: a laboratory value, a value "
            "logged on change, or a coarse one; in between, a policy sees an old value"
        )
    notes += _remarks_on_rows(report)
    notes += interlock_remarks(report["interlocks"]["entries"])
    constant = [
        f"{kind} {c['name']}" for kind in ("obs", "action") for c in report[kind] if c["constant"]
    ]
    if constant:
        notes.append(f"constant: {', '.join(constant)}")
    for kind in ("obs", "action"):
        notes += [
            f"{kind} {c['name']} is outside its range in {c['outside']:.1%} of rows"
            for c in report[kind]
            if c["outside"] > 0
        ]
    notes += _remarks_on_time(report["time"])
    drifting = [d["name"] for d in report["drift"] if d["distance"] > DRIFTS]
    if drifting:
        notes.append(f"the last fifth of the episodes differs from the rest in {_some(drifting)}")
    fixed = [b["action"] for b in report["behaviour"] if b["repeatable"] > REPEATABLE]
    if fixed:
        notes.append(
            f"the observation determines {_some(fixed)}: similar observations always come with the "
            "same action, so the log does not show what another one would do"
        )
    return notes + [
        f"action {c['name']} is at an end of its range in {c['saturated']:.0%} of rows"
        for c in report["action"]
        if c["saturated"] > 0.5
    ]


DRIFTS, REPEATABLE = 0.3, 0.98
FEWEST = 4
"""Smallest number of episodes that can be split: two for training and two held out."""
SAME = 0.98
"""From this correlation on, an observation counts as identical to an action of the same row."""


def _some(names: list[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")


def _remarks_on_rows(report: dict[str, Any]) -> list[str]:
    notes = []
    if report["terminated"] == 0:
        notes.append("no row is terminated: a log without a single trip is valid")
    if report["truncated"] == 0:
        notes.append("no row is truncated: every episode ran to its end")
    if report["episodes"] < FEWEST:
        notes.append(
            f"training holds out whole episodes and needs at least {FEWEST}, but this log has "
            f"{report['episodes']}"
        )
    ingestion = report["ingestion"]
    if isinstance(ingestion, dict) and ingestion.get("empty_periods"):
        notes.append(
            f"{ingestion['empty_periods']} periods have no sample of any observed or manipulated "
            "tag; the rows there repeat earlier values or are masked"
        )
    if report["masked_rows"]:
        notes.append(f"{report['masked_rows']} rows are masked and not used in training")
    if report["duplicate_rows"]:
        notes.append(f"{report['duplicate_rows']} rows repeat an observation and action")
    return notes


def _remarks_on_time(time: dict[str, Any] | None) -> list[str]:
    if time is None:
        return ["no timestamps are recorded, so gaps inside an episode cannot be seen"]
    notes = []
    if time["gaps"]:
        notes.append(
            f"{gap_words(time['gaps'], duration(time['longest_gap_s']))}; rows cover "
            f"{time['covered']:.1%} of the time"
        )
    if time["episodes_out_of_order"]:
        notes.append(f"{time['episodes_out_of_order']} episodes start before the one above them")
    return notes


# The report of a log as text for a terminal.


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
        f"time: {span} from {moment_of(time['start'], time)} to "
        f"{moment_of(time['end'], time)}; rows cover {time['covered']:.1%}; "
        f"{gap_words(time['gaps'], longest)}"
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
    lines += [_delay_words(one) for one in strongest]
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


def _delay_words(one: dict[str, Any]) -> str:
    """What a pair of an action and an observation shows; no cause where a controller acted."""
    figure = f"(correlation of changes {one['correlation']:+.2f}"
    if not one["acts"]:
        return (
            f"{one['action']} moves together with {one['obs']} {figure}; a controller moved it, so "
            "this shows no cause)"
        )
    begins, most = durations([one["delay_s"], one["strongest_s"]])
    delay = begins if begins == most else f"{begins} to {most}"
    return f"{one['action']} affects {one['obs']} after {delay} {figure})"


def gap_words(count: int, longest: str) -> str:
    """How many gaps a log has, and how long they are."""
    if count < 2:
        return f"one gap of {longest}" if count else "no gap"
    return f"{count} gaps, the longest {longest}"


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
