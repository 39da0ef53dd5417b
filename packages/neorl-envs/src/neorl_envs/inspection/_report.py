"""What a log holds, for an engineer who decides whether it is worth training on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core import Channel, CostChannel
from neorl_core.costs import limit_kind
from neorl_envs.datasets._dataset import Dataset

SATURATED = 0.005
"""Within this part of the range from either end, a channel counts as saturated."""


def dataset_report(dataset: Dataset) -> dict[str, Any]:
    """Rows, episodes, returns, costs, coverage and excitation of a log.

    Masked rows are counted and otherwise left out. A row is a duplicate if an earlier one has the
    same observation and action. A channel is saturated within 0.5 % of its range from either end.

    Args:
        dataset: The log.

    Returns:
        Plain numbers and strings, ready for JSON. ``notes`` says what deserves attention.
    """
    rows: Any = dataset.transitions
    used = rows.mask
    obs, action = rows.obs[used], rows.action[used]
    report = {
        "name": dataset.attributes.get("name", "?"),
        "content_hash": dataset.content_hash,
        "rows": dataset.n_rows,
        "masked_rows": int(dataset.n_rows - used.sum()),
        "duplicate_rows": _duplicates(obs, action),
        "episodes": dataset.n_episodes,
        "period_s": dataset.spec.dt,
        "horizon": dataset.spec.horizon,
        "terminated": int(rows.terminated.sum()),
        "truncated": int(rows.truncated.sum()),
        "episode_length": _summary(dataset.episode_lengths),
        "episode_return": _summary(dataset.episode_returns()),
        "costs": _costs(dataset.spec.cost, dataset.episode_costs(), rows.cost[used]),
        "obs": [_channel(c, obs[:, i]) for i, c in enumerate(dataset.spec.obs)],
        "action": _actions(dataset, used),
        "behaviours": _behaviours(dataset),
        "excitation": dataset.attributes.get("excitation"),
        "attribution": dataset.attributes.get("attribution"),
    }
    return {**report, "notes": _notes(report)}


def _summary(values: np.ndarray) -> dict[str, float]:
    values = np.asarray(values, np.float64)
    return {
        "min": float(values.min()),
        "mean": float(values.mean()),
        "max": float(values.max()),
        "std": float(values.std()),
    }


def _channel(channel: Channel, values: np.ndarray) -> dict[str, Any]:
    span = channel.high - channel.low
    near_low = values <= channel.low + SATURATED * span
    near_high = values >= channel.high - SATURATED * span
    return {
        "name": channel.name,
        "unit": channel.unit,
        "low": channel.low,
        "high": channel.high,
        **(_summary(values) if len(values) else {}),
        "coverage": float(np.ptp(values) / span) if len(values) else 0.0,
        "saturated": float((near_low | near_high).mean()) if len(values) else 0.0,
        "constant": bool(len(values) == 0 or values.min() == values.max()),
    }


def _actions(dataset: Dataset, used: np.ndarray) -> list[dict[str, Any]]:
    """As observations, and how much and how often each input moves inside an episode."""
    action: Any = dataset.transitions.action
    inside = np.ones(dataset.n_rows, np.bool_)
    inside[dataset.episode_starts] = False  # no step back from the first row of an episode
    inside[1:] &= used[1:] & used[:-1]
    steps = np.diff(action, axis=0, prepend=action[:1])[inside].astype(np.float64)
    channels = []
    for i, channel in enumerate(dataset.spec.action):
        moves = np.abs(steps[:, i]) > 1e-4 * (channel.high - channel.low)
        excited = {
            "step_std": float(steps[:, i].std()) if len(steps) else 0.0,
            "moved": float(moves.mean()) if len(steps) else 0.0,
        }
        channels.append({**_channel(channel, action[used][:, i]), **excited})
    return channels


def _costs(
    channels: Sequence[CostChannel], episodes: np.ndarray, steps: np.ndarray
) -> list[dict[str, Any]]:
    return [
        {
            "name": channel.name,
            "unit": channel.unit,
            "limit": channel.limit,
            "per": channel.per,
            "episode": _summary(episodes[:, i]),
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


def _duplicates(obs: np.ndarray, action: np.ndarray) -> int:
    joined = np.ascontiguousarray(np.concatenate([obs, action], axis=1) + 0.0)  # -0.0 is 0.0
    if not joined.size:
        return 0
    as_bytes = joined.view(np.dtype((np.void, joined.dtype.itemsize * joined.shape[1])))
    return len(joined) - len(np.unique(as_bytes))


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
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
    return [*notes, *(note for channel in report["action"] for note in _doubts(channel))]


def _doubts(channel: dict[str, Any]) -> list[str]:
    doubts = []
    if channel["saturated"] > 0.5:
        fraction = f"{channel['saturated']:.0%}"
        doubts.append(f"action {channel['name']} is at an end of its range in {fraction} of rows")
    if channel["moved"] < 0.01:
        doubts.append(f"action {channel['name']} hardly moves: nothing can be learned about it")
    return doubts
