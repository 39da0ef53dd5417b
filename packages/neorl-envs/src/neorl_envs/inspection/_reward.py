"""Checks the reward of a converted log by recomputing it from the columns."""

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_envs.datasets._dataset import Dataset

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
