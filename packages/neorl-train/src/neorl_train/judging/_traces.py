"""Selects the few episodes that are kept row by row for inspection."""

from collections.abc import Collection
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from neorl_core import Spec
from neorl_train.judging._episodes import HARDEST, LOWEST, TYPICAL, Episodes, Trace, limited
from neorl_train.judging._rollouts import Rollout

MAX_FURTHER, MAX_NUMBERS = 8, 200_000
"""Number of additional episodes, and the most numbers that the trace file may contain for them."""


def select_starts(episodes: Episodes, spec: Spec) -> dict[str, int]:
    """Starts to show: the median return, the lowest return, and the one nearest its limits.

    Args:
        episodes: Paired episodes of the candidate.
        spec: Cost channels with their limits.

    Returns:
        Label and number of each start. The last label is omitted if there is no cost, or its start
        was already chosen.
    """
    order = np.argsort(episodes.returns, kind="stable")
    chosen = {TYPICAL: int(order[(len(order) - 1) // 2]), LOWEST: int(order[0])}
    if spec.n_cost:
        hardest = int(np.argmax(_margin_used(episodes, spec)))
        if hardest not in chosen.values():
            chosen[HARDEST] = hardest
    return chosen


def further_starts(
    gains: Float[np.ndarray, " episode"], chosen: Collection[int], spec: Spec
) -> list[int]:
    """Additional starts to keep, spread evenly from the largest loss to the largest gain.

    Args:
        gains: Return minus that of the reference, one for each paired episode.
        chosen: Starts that are already kept.
        spec: Determines the size of a row; the starts are limited to about 200,000 numbers.

    Returns:
        Numbers of the starts, at most eight.
    """
    width = spec.n_obs + 2 * spec.n_action + spec.n_cost + 2
    available = MAX_NUMBERS // (2 * spec.horizon * width) - len(chosen)
    rest = [int(start) for start in np.argsort(gains, kind="stable") if int(start) not in chosen]
    count = min(MAX_FURTHER, available, len(rest))
    if count < 1:
        return []
    positions = np.unique(np.linspace(0, len(rest) - 1, count).round().astype(int))
    return [rest[position] for position in positions]


def _margin_used(episodes: Episodes, spec: Spec) -> Float[np.ndarray, " episode"]:
    """Constraint margin used: the largest limited cost over its limit (over 1 where that is 0)."""
    used = np.zeros(episodes.count)
    for i, channel in enumerate(spec.cost):
        cost = np.nan_to_num(limited(episodes, spec, i), nan=np.inf)
        used = np.maximum(used, cost / (channel.limit or 1.0))
    return used


def trace_of(
    rollout: Rollout, row: int, *, label: str, policy: str, guarded: bool, start: int
) -> Trace:
    """Row ``row`` of a rollout on the host, trimmed to the length of its episode."""
    episode: Any = jax.tree.map(lambda column: np.asarray(column[row]), rollout)
    length = int(episode.mask.sum())
    return Trace(
        label=label,
        policy=policy,
        guarded=guarded,
        start=start,
        obs=np.concatenate([episode.first_obs[None], episode.obs[:length]]).astype(np.float64),
        action=episode.action[:length].astype(np.float64),
        applied=episode.applied[:length].astype(np.float64),
        reward=episode.reward[:length].astype(np.float64),
        cost=episode.cost[:length].astype(np.float64),
        flags=episode.flags[:length].astype(np.int64),
    )
