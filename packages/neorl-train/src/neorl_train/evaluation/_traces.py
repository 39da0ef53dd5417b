"""The few episodes that are kept row by row, to be looked at."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from neorl_core import Spec
from neorl_train.evaluation._rollout import Rollout
from neorl_train.results._episodes import HARDEST, LOWEST, TYPICAL, Episodes, Trace, limited


def select_starts(episodes: Episodes, spec: Spec) -> dict[str, int]:
    """Which starts to show: the median return, the lowest one, and the one nearest its limits.

    Args:
        episodes: Paired episodes of the candidate.
        spec: Cost channels with their limits.

    Returns:
        Label and number of the start. The last label is left out where there is no cost, or it
        would name a start already chosen.
    """
    order = np.argsort(episodes.returns, kind="stable")
    chosen = {TYPICAL: int(order[(len(order) - 1) // 2]), LOWEST: int(order[0])}
    if spec.n_cost:
        hardest = int(np.argmax(_margin_used(episodes, spec)))
        if hardest not in chosen.values():
            chosen[HARDEST] = hardest
    return chosen


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
    one: Any = jax.tree.map(lambda column: np.asarray(column[row]), rollout)
    length = int(one.mask.sum())
    return Trace(
        label=label,
        policy=policy,
        guarded=guarded,
        start=start,
        obs=np.concatenate([one.first_obs[None], one.obs[:length]]).astype(np.float64),
        action=one.action[:length].astype(np.float64),
        applied=one.applied[:length].astype(np.float64),
        reward=one.reward[:length].astype(np.float64),
        cost=one.cost[:length].astype(np.float64),
        flags=one.flags[:length].astype(np.int64),
    )
