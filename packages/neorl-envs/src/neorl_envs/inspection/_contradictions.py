"""Contradictions between a log and what is declared of it: time, interlocks, reward."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._wording import figures, log_zone, moment_of

# Findings that may be correct but should be checked: repeats, contradictions, gaps, drift.


DRIFT_ROWS = 20_000
CONTRADICTIONS = {
    "next_obs_differs": "rows whose next_obs differs from the observation of the next row: {}",
    "negative_costs": "rows with a negative cost: {}",
    "episodes_beyond_horizon": "episodes longer than the horizon: {}",
    "duplicate_episodes": "episodes that repeat an earlier one: {}",
}


def duplicate_rows(dataset: Dataset) -> int:
    """Number of unmasked rows with the observation and action of an earlier row, by 64-bit hash."""
    return _repeats(_row_hashes(dataset, ("obs", "action"))[np.asarray(dataset.transitions.mask)])


def duplicate_episodes(dataset: Dataset) -> int:
    """Number of episodes that repeat all observations, actions and rewards of an earlier one."""
    rows = _row_hashes(dataset, ("obs", "action", "reward"))
    position = np.arange(dataset.n_rows) - np.repeat(
        dataset.episode_starts, dataset.episode_lengths
    )
    mixed = _mix(rows + _mix(position.astype(np.uint64) + np.uint64(1)))
    return _repeats(np.add.reduceat(mixed, dataset.episode_starts))


def _repeats(hashes: np.ndarray) -> int:
    return len(hashes) - len(np.unique(hashes))


def _row_hashes(dataset: Dataset, names: tuple[str, ...]) -> np.ndarray:
    columns: Any = dataset.transitions
    hashes = np.zeros(dataset.n_rows, np.uint64)
    for rows in blocks(dataset.n_rows, *(getattr(columns, name) for name in names)):
        value = np.zeros(rows.stop - rows.start, np.uint64)
        for name in names:
            part = np.asarray(getattr(columns, name)[rows], np.float32) + 0.0  # -0.0 is 0.0
            bits = part.reshape(len(part), -1).view(np.uint32).astype(np.uint64)
            for i in range(bits.shape[1]):
                value = _mix(value ^ (bits[:, i] + np.uint64(0x9E3779B97F4A7C15)))
        hashes[rows] = value
    return hashes


def _mix(value: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def contradictions(dataset: Dataset) -> dict[str, int]:
    """Numbers of unmasked rows and of episodes that contradict the rest of the log."""
    rows: Any = dataset.transitions
    differs = negative = 0
    for part in blocks(dataset.n_rows, rows.obs, rows.next_obs):
        mask = np.asarray(rows.mask[part])
        negative += int((np.asarray(rows.cost[part])[mask] < 0).any(axis=-1).sum())
        next_rows = slice(part.start + 1, part.stop + 1)
        following = np.asarray(rows.obs[next_rows])
        inside = mask & ~np.asarray(rows.terminated[part] | rows.truncated[part])
        inside, next_mask = inside[: len(following)], np.asarray(rows.mask[next_rows])
        differing = (np.asarray(rows.next_obs[part])[: len(following)] != following).any(axis=-1)
        differs += int((differing & inside & next_mask).sum())
    return {
        "next_obs_differs": differs,
        "negative_costs": negative,
        "episodes_beyond_horizon": int((dataset.episode_lengths > dataset.spec.horizon).sum()),
        "duplicate_episodes": duplicate_episodes(dataset),
    }


def contradiction_sentences(counts: Mapping[str, int]) -> list[str]:
    """The counts of :func:`contradictions` in words; counts of zero are left out."""
    return [text.format(counts[name]) for name, text in CONTRADICTIONS.items() if counts[name]]


def time_report(dataset: Dataset) -> dict[str, Any] | None:
    """Span, coverage and gaps of the times; ``None`` if no times were recorded."""
    time = dataset.time
    if time is None:
        return None
    dt = dataset.spec.dt
    starts = np.asarray(time[dataset.episode_starts])
    ends = np.asarray(time[dataset.episode_ends - 1]) + dt
    order = np.argsort(starts, kind="stable")
    gaps = starts[order][1:] - np.maximum.accumulate(ends[order])[:-1]
    inside = np.diff(np.asarray(time))
    inside[dataset.episode_ends[:-1] - 1] = dt
    holes = inside[inside > 1.5 * dt] - dt
    gap = np.append(gaps[gaps > 0.5 * dt], holes)
    covered = float(np.asarray(dataset.transitions.mask).sum() * dt)
    span = float(ends.max() - starts.min())
    return {
        "origin": dataset.attributes.get("time_origin"),
        "zone": log_zone(dataset.attributes),
        "start": float(starts.min()),
        "end": float(ends.max()),
        "span_s": span,
        "covered": covered / span if span > 0 else 1.0,
        "gaps": len(gap),
        "longest_gap_s": float(gap.max(initial=0.0)),
        "overlapping_episodes": int((gaps < -0.5 * dt).sum()),
        "episodes_out_of_order": int((np.diff(starts) < 0).sum()),
        "pieces": [[float(a), float(b)] for a, b in zip(starts, ends, strict=True)][:2000],
    }


def drift(dataset: Dataset) -> list[dict[str, Any]]:
    """Kolmogorov-Smirnov distance between the first 80 % of the episodes and the rest.

    A model is trained on the past and used in the future. If the distance is large, results on
    randomly chosen held-out episodes are too optimistic.
    """
    n = dataset.n_episodes
    if n < 2:
        return []
    border = int(dataset.episode_starts[min(max(round(0.8 * n), 1), n - 1)])
    rows: Any = dataset.transitions
    mask = np.asarray(rows.mask)
    early, late = np.flatnonzero(mask[:border]), border + np.flatnonzero(mask[border:])
    if not len(early) or not len(late):
        return []
    early, late = _thin(early), _thin(late)
    entries = []
    for kind, channels in (("obs", dataset.spec.obs), ("action", dataset.spec.action)):
        column = getattr(rows, kind)
        first, late_rows = np.asarray(column[early]), np.asarray(column[late])
        for i, channel in enumerate(channels):
            distance = kolmogorov_smirnov(first[:, i], late_rows[:, i])
            entries.append({"name": channel.name, "kind": kind, "distance": distance})
    return entries


def _thin(index: np.ndarray) -> np.ndarray:
    return index[:: max(1, -(-len(index) // DRIFT_ROWS))]


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> float:
    """Largest distance between two empirical distribution functions."""
    pooled = np.concatenate([a, b])
    below = (np.searchsorted(np.sort(x), pooled, side="right") / len(x) for x in (a, b))
    first, second = below
    return float(np.abs(first - second).max())


# What a log shows of the interlocks that its ``plant.toml`` declares.


def interlock_report(dataset: Dataset) -> dict[str, Any]:
    """Compares every declared interlock with the rows of the log.

    Returns:
        ``checked``, ``why`` not if they could not be compared, and ``entries``: for every interlock
        the numbers of rows and of episodes in which its condition holds, and for every action the
        rows in which the log contradicts it.
    """
    if not dataset.attributes.get("interlocks"):
        return {"checked": False, "why": "none is declared", "entries": []}
    if importlib.util.find_spec("polars") is None:
        return {"checked": False, "why": "the extra etl is not installed", "entries": []}
    from neorl_envs.plant_logs._interlocks import (
        always_active,
        declared_interlocks,
        interlock_activity,
    )

    time = dataset.time
    try:
        checked = declared_interlocks(dataset)
    except InputError as error:
        return {"checked": False, "why": str(error), "entries": []}
    entries = []
    for one in interlock_activity(dataset, checked):
        entries.append(
            {
                "name": one.name,
                "sentence": one.sentence,
                "rows": one.rows,
                "active": one.active,
                "episodes": one.episodes,
                "always": always_active(one) if one.always else "",
                "contradictions": [
                    {
                        **contradiction._asdict(),
                        "start": None if time is None else float(time[contradiction.first]),
                    }
                    for contradiction in one.contradictions
                ],
            }
        )
    return {"checked": True, "entries": entries}


def interlock_lines(report: Mapping[str, Any]) -> list[str]:
    """One line for every interlock: what it does, and how often it was active."""
    section = report["interlocks"]
    if not section["checked"]:
        return [] if section["why"] == "none is declared" else [f"interlocks: {section['why']}"]
    return [
        f"interlock {one['name']}: {one['sentence']}; active in {one['active']} of {one['rows']} "
        f"rows ({one['active'] / max(one['rows'], 1):.1%}), in {one['episodes']} of "
        f"{report['episodes']} episodes"
        for one in section["entries"]
    ]


def interlock_warnings(entries: Sequence[Mapping[str, Any]], time: Any) -> list[str]:
    """Sentences on conditions that always hold, and on actions that contradict an interlock."""
    warnings = []
    for one in entries:
        if one["always"]:
            warnings.append(one["always"])
            continue
        for entry in one["contradictions"]:
            when = f"row {entry['first']}"
            if time is not None and entry["start"] is not None:
                when = moment_of(entry["start"], time)
            warnings.append(
                f"interlock {one['name']} ({one['sentence']}): the log contradicts it in "
                f"{entry['rows']} of {one['active']} rows in which its condition holds, first at "
                f"{when}, where {entry['action']} is {figures(entry['logged'])} "
                f"{entry['unit']} and not {figures(entry['declared'])} {entry['unit']}: check its "
                "condition, its value and their units; a tag that is measured with noise or logged "
                "late contradicts it near the threshold"
            )
    return warnings


def interlock_remarks(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on interlocks that never acted."""
    return [
        f"interlock {one['name']} was never active: what the plant does while it acts is not in "
        "the log, only that it would act is known"
        for one in entries
        if not one["active"]
    ]


# Checks the reward of a converted log by recomputing it from the columns.


ROWS = 100_000
TOLERANCE = 1e-3
"""Tolerance in standard deviations of the reward, since columns have only single precision."""


def reward_is_constant(columns: Any) -> bool:
    """Whether every unmasked row has the same reward, as in an uncompleted draft."""
    reward = np.asarray(columns.reward)[np.asarray(columns.mask, bool)]
    return bool(len(reward)) and bool((reward == reward[0]).all())


def reward_check(dataset: Dataset) -> dict[str, Any]:
    """Checks whether the reward agrees with its expression.

    The expression is known for a log made by :func:`neorl_envs.plant_logs.convert_log`. It can be
    evaluated again if it uses only observed and manipulated variables.

    Returns ``checked``; then either ``why`` it could not be checked, or ``rows``,
    ``largest_difference`` and ``tolerance``.
    """
    reward = dataset.attributes.get("reward")
    if not isinstance(reward, Mapping) or not isinstance(reward.get("expression"), str):
        return {"checked": False, "why": "no expression of the reward is recorded"}
    if importlib.util.find_spec("polars") is None:
        return {"checked": False, "why": "the extra etl is not installed"}
    columns = _columns(dataset)
    try:
        from neorl_envs.plant_logs._expressions import Expression

        expression = Expression(reward["expression"], list(columns), "reward")
    except InputError as error:
        return {"checked": False, "why": f"the columns do not give it: {error}"}
    if _delayed(dataset, expression.roots):
        return {"checked": False, "why": "it uses a tag with a transport delay"}
    rows: Any = dataset.transitions
    stored = np.asarray(rows.reward[:ROWS], np.float64)
    again = expression(columns)
    used = np.asarray(rows.mask[:ROWS]) & np.isfinite(again)
    difference = np.abs(again - stored)[used]
    return {
        "checked": bool(used.any()),
        **({} if used.any() else {"why": "no row holds all that it needs"}),
        "expression": reward["expression"],
        "rows": int(used.sum()),
        "largest_difference": float(difference.max(initial=0.0)),
        "tolerance": TOLERANCE * float(stored[used].std() if used.any() else 0.0) + 1e-6,
    }


def _columns(dataset: Dataset) -> dict[str, np.ndarray]:
    """Columns for the expression, as ``plant.toml`` defines them for a step."""
    rows: Any = dataset.transitions
    columns = {}
    for i, channel in enumerate(dataset.spec.obs):
        columns[channel.name] = np.asarray(rows.next_obs[:ROWS, i], np.float64)
        columns[f"before_{channel.name}"] = np.asarray(rows.obs[:ROWS, i], np.float64)
    starts = dataset.episode_starts[dataset.episode_starts < ROWS]
    for i, channel in enumerate(dataset.spec.action):
        action = np.asarray(rows.action[:ROWS, i], np.float64)
        before = np.append(np.nan, action[:-1])
        before[starts] = np.nan  # no column holds the value before the episode
        columns[channel.name], columns[f"before_{channel.name}"] = action, before
    return columns


def _delayed(dataset: Dataset, names: list[str]) -> bool:
    configuration = dataset.attributes.get("provenance", {}).get("configuration", {})
    tags = configuration.get("tag", []) if isinstance(configuration, Mapping) else []
    delayed = {tag.get("name") for tag in tags if isinstance(tag, Mapping) and tag.get("delay_s")}
    return any(name in delayed or name.removeprefix("before_") in delayed for name in names)
