"""Report on the content of a log, from which an engineer can decide whether to train on it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core import CostChannel
from neorl_core.costs import limit_kind
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._channels import channel_entries, movement, summary
from neorl_envs.inspection._contradictions import (
    contradiction_sentences,
    contradictions,
    drift,
    duplicate_rows,
    time_report,
)
from neorl_envs.inspection._interlocks import (
    interlock_remarks,
    interlock_report,
    interlock_warnings,
)
from neorl_envs.inspection._relations import relations
from neorl_envs.inspection._reward import reward_check, reward_is_constant
from neorl_envs.inspection._sample import episodes_sample
from neorl_envs.inspection._signals import (
    REPEATED,
    setpoint_names,
    signal_sentences,
    signals,
    skipped_names,
)
from neorl_envs.inspection._standstills import frozen_signals, rarely_sampled, standstills
from neorl_envs.inspection._wording import began, duration, durations


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
            f"{time['gaps']} gaps, the longest {duration(time['longest_gap_s'])}; rows cover "
            f"{time['covered']:.0%} of the time"
        )
    if time["episodes_out_of_order"]:
        notes.append(f"{time['episodes_out_of_order']} episodes start before the one above them")
    return notes
