"""What a log holds, for an engineer who decides whether it is worth training on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core import CostChannel
from neorl_core.costs import limit_kind
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._channels import channel_entries, movement, summary
from neorl_envs.inspection._contradictions import (
    contradictions,
    drift,
    duplicate_rows,
    time_report,
)
from neorl_envs.inspection._relations import relations
from neorl_envs.inspection._reward import reward_check, reward_is_constant
from neorl_envs.inspection._sample import episodes_sample


def dataset_report(dataset: Dataset) -> dict[str, Any]:
    """What a log holds, what it can teach, and what is doubtful in it.

    Masked rows are counted and otherwise left out. A row is a duplicate if an earlier one has the
    same observation and action. A channel is saturated within 0.5 % of its range from either end,
    and flat while it does not change at all. Delays, correlation and behaviour are estimated on
    whole episodes, evenly spread, of at most about 100,000 rows. Columns are looked at in blocks,
    so a mapped file may be larger than memory.

    Args:
        dataset: The log.

    Returns:
        Plain numbers and strings, ready for JSON. ``notes`` says what deserves attention.
    """
    rows: Any = dataset.transitions
    used = np.asarray(rows.mask)
    spec, attributes = dataset.spec, dataset.attributes
    actions = channel_entries(spec.action, rows.action, dataset)
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
        "obs": channel_entries(spec.obs, rows.obs, dataset),
        "action": [{**c, **m} for c, m in zip(actions, movement(dataset), strict=True)],
        "manual": _manual(dataset),
        "contradictions": contradictions(dataset),
        **relations(episodes_sample(dataset), spec),
        "drift": drift(dataset),
        "reward_constant": reward_is_constant(rows),
        "reward_check": reward_check(dataset),
        "behaviours": _behaviours(dataset),
        **{
            name: attributes.get(name)
            for name in ("excitation", "ingestion", "provenance", "split", "attribution")
        },
    }
    return {**report, "notes": _notes(report)}


def _manual(dataset: Dataset) -> list[float] | None:
    """Share of the unmasked rows in manual, for every manipulated variable."""
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
            "beyond_limit": _exceeded(channel, episodes[:, i], steps[:, i]),
        }
        for i, channel in enumerate(channels)
    ]


def _exceeded(channel: CostChannel, episodes: np.ndarray, steps: np.ndarray) -> float:
    """Fraction of what the limit counts, episodes or steps, that is beyond it."""
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


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
    if report["reward_constant"]:
        notes.append("reward is constant: nothing can be learned from it")
    if report["terminated"] == 0:
        notes.append("no row is terminated: a log without a single trip is valid")
    if report["truncated"] == 0:
        notes.append("no row is truncated: every episode ran to its end")
    if report["masked_rows"]:
        notes.append(f"{report['masked_rows']} rows are masked and reach no loss")
    if report["duplicate_rows"]:
        notes.append(f"{report['duplicate_rows']} rows repeat an observation and action")
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
    notes += [
        sentence.format(report["contradictions"][name])
        for name, sentence in CONTRADICTIONS.items()
        if report["contradictions"][name]
    ]
    notes += _notes_on_time(report["time"])
    drifting = [d["name"] for d in report["drift"] if d["distance"] > DRIFTS]
    if drifting:
        notes.append(f"the last fifth of the episodes differs from the rest in {_some(drifting)}")
    notes += _notes_on_behaviour(report)
    return [*notes, *(note for channel in report["action"] for note in _doubts(channel))]


CONTRADICTIONS = {
    "next_obs_differs": "in {} rows next_obs differs from the observation of the next row",
    "negative_costs": "{} rows have a negative cost",
    "episodes_beyond_horizon": "{} episodes are longer than the horizon",
    "duplicate_episodes": "{} episodes repeat another one",
}
DRIFTS, REPEATABLE = 0.3, 0.98


def _some(names: list[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")


def _notes_on_time(time: dict[str, Any] | None) -> list[str]:
    if time is None:
        return ["no stamps are recorded, so holes inside an episode cannot be seen"]
    notes = []
    if time["gaps"]:
        notes.append(
            f"{time['gaps']} gaps, the longest {duration(time['longest_gap_s'])}; rows cover "
            f"{time['covered']:.0%} of the time"
        )
    if time["overlapping_episodes"]:
        notes.append(f"{time['overlapping_episodes']} episodes overlap others in time")
    if time["episodes_out_of_order"]:
        notes.append(f"{time['episodes_out_of_order']} episodes start before the one above them")
    return notes


def _notes_on_behaviour(report: dict[str, Any]) -> list[str]:
    fixed = [b["action"] for b in report["behaviour"] if b["repeatable"] > REPEATABLE]
    notes = []
    if fixed:
        notes.append(
            f"the observation decides {_some(fixed)}: nothing is known of other actions there"
        )
    check = report["reward_check"]
    if check["checked"] and check["largest_difference"] > check["tolerance"]:
        notes.append(
            f"the reward differs from its expression by up to {check['largest_difference']:.3g}"
        )
    return notes


def duration(seconds: float) -> str:
    """A time for people: seconds, minutes, hours or days."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _doubts(channel: dict[str, Any]) -> list[str]:
    doubts = []
    if channel["saturated"] > 0.5:
        fraction = f"{channel['saturated']:.0%}"
        doubts.append(f"action {channel['name']} is at an end of its range in {fraction} of rows")
    if channel["moved"] < 0.01:
        doubts.append(f"action {channel['name']} hardly moves: nothing can be learned about it")
    return doubts
