"""Sums over an episode: return, costs, violations, interventions, on the host in float64."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from neorl_core import Spec, highs, lows
from neorl_core.costs import limit_kind
from neorl_envs import Dataset
from neorl_safety.filters import Flag
from neorl_train.judging._episodes import SMALLEST, Episodes
from neorl_train.judging._rollouts import Rollout

ROWS_AT_ONCE = 2**20
GUARD_ACTED = int(
    Flag.BOX_ACTIVE | Flag.RATE_ACTIVE | Flag.INTERVAL_ACTIVE | Flag.ROWS_ACTIVE | Flag.WEAR_ACTIVE
)


def episodes_of(rollout: Rollout, spec: Spec) -> Episodes:
    """Summarises padded rows; every row inside the mask is counted, including the terminal one.

    Args:
        rollout: Rows with the start as leading axis, on the host.
        spec: Cost channels with their limits.

    Returns:
        One entry per start.
    """
    rows: Any = jax.tree.map(np.asarray, rollout)
    mask = rows.mask
    cost_sum, cost_worst, steps_over, violated = _costs(rows.cost, mask, spec)
    fell_back = (rows.flags & int(Flag.FALLBACK_USED)) != 0
    changed = ((rows.flags & GUARD_ACTED) != 0) & ~fell_back
    ended = (rows.terminated & mask).any(axis=1)
    success = (rows.success & mask).any(axis=1)
    trip = ended & ~success
    return Episodes(
        returns=np.where(mask, rows.reward, 0.0).sum(axis=1, dtype=np.float64),
        length=mask.sum(axis=1),
        cost_sum=cost_sum,
        cost_worst=cost_worst,
        steps_over=steps_over,
        # A trip counts as a violation: costs that would have followed it are missing from the sum.
        violated=violated | trip[:, None],
        success=success,
        trip=trip,
        filtered=(changed & mask).sum(axis=1),
        fallback=(fell_back & mask).sum(axis=1),
        alarms=np.bitwise_or.reduce(np.where(mask, rows.alarms, 0), axis=1).astype(np.int64),
        **_movement(rows.applied, mask, spec),
        terms=_summed(rows.terms, mask),
    )


def recorded_episodes(dataset: Dataset, spec: Spec | None = None) -> Episodes:
    """Summarises the episodes of a log, which does not record how they ended.

    Args:
        dataset: The log.
        spec: Cost channels with their limits; by default those of the log.

    Returns:
        One entry for each episode.
    """
    spec = dataset.spec if spec is None else spec
    # A few episodes at a time: padded to the longest, all together may far exceed the log.
    at_once = max(1, ROWS_AT_ONCE // int(dataset.episode_lengths.max()))
    groups = range(0, dataset.n_episodes, at_once)
    returns = dataset.episode_returns()
    return joined([_recorded(dataset, spec, returns, slice(i, i + at_once)) for i in groups])


def _recorded(dataset: Dataset, spec: Spec, returns: np.ndarray, selected: slice) -> Episodes:
    columns: Any = dataset.transitions
    rows, mask = dataset.padded_rows(selected)
    cost_sum, cost_worst, steps_over, violated = _costs(columns.cost[rows], mask, spec)
    zeros, terms = np.zeros(len(rows), np.int64), dataset.term
    return Episodes(
        returns=returns[selected],
        length=mask.sum(axis=1),
        cost_sum=cost_sum,
        cost_worst=cost_worst,
        steps_over=steps_over,
        violated=violated,
        success=None,
        trip=None,
        filtered=zeros,
        fallback=zeros,
        alarms=zeros,
        **_movement(columns.action[rows], mask, spec),
        terms=_summed(np.zeros((*rows.shape, 0)) if terms is None else terms[rows], mask),
    )


def _summed(amounts: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Sums over the rows of every episode; an unknown amount adds nothing."""
    inside = mask[..., None] & np.isfinite(amounts)
    return np.where(inside, amounts, 0.0).sum(axis=1, dtype=np.float64)


def _movement(action: np.ndarray, mask: np.ndarray, spec: Spec) -> dict[str, np.ndarray]:
    """Travel and reversals of every actuator per episode; masked rows interrupt the movement."""
    inside = (mask[:, 1:] & mask[:, :-1])[..., None]
    moves = np.where(inside, np.diff(action.astype(np.float64), axis=1), 0.0)
    least = SMALLEST * (np.asarray(highs(spec.action)) - np.asarray(lows(spec.action)))
    signs = np.where(np.abs(moves) > least, np.sign(moves), 0.0)
    time = np.arange(signs.shape[1])[:, None]
    # The last move of more than `least` before each one, which a reversal is relative to.
    latest = np.maximum.accumulate(np.where(signs != 0, time, -1), axis=1)
    before = np.concatenate([np.full_like(latest[:, :1], -1), latest[:, :-1]], axis=1)
    earlier = np.take_along_axis(signs, np.maximum(before, 0), axis=1)
    reversed_ = (signs != 0) & (before >= 0) & (earlier != signs)
    return {"travel": np.abs(moves).sum(axis=1), "reversals": reversed_.sum(axis=1)}


def _costs(cost: np.ndarray, mask: np.ndarray, spec: Spec) -> tuple[np.ndarray, ...]:
    inside = np.where(mask[..., None], cost.astype(np.float64), 0.0)
    total, worst = inside.sum(axis=1), inside.max(axis=1)
    steps_over, violated = np.zeros(total.shape, np.int64), np.zeros(total.shape, np.bool_)
    for j, channel in enumerate(spec.cost):
        kind = limit_kind(channel)
        threshold = kind.row_threshold(channel.limit)
        # Not `inside > threshold`: a NaN cost counts as over the limit.
        steps_over[:, j] = (~(inside[..., j] <= threshold)).sum(axis=1)
        quantity = kind.of_episode(total=total, worst=worst)[:, j]
        violated[:, j] = kind.exceeded(quantity, channel.limit)
    return total, worst, steps_over, violated


def joined(parts: Sequence[Episodes]) -> Episodes:
    """Concatenates the episodes of several chunks."""
    columns = {name: [getattr(part, name) for part in parts] for name in vars(parts[0])}
    joined_columns: dict[str, Any] = {
        name: None if any(column is None for column in values) else np.concatenate(values)
        for name, values in columns.items()
    }
    return Episodes(**joined_columns)
