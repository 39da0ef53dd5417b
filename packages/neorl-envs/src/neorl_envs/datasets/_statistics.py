"""Statistics of a dataset, with which every learner is initialised, and its split by episodes."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from neorl_core import CostChannel, DataStatistics, FieldStatistics
from neorl_core.costs import limit_kind
from neorl_envs.datasets._checks import (
    Spans,
    copied_rows,
    episode_reductions,
    row_blocks,
)
from neorl_envs.datasets._dataset import Dataset

# Passes over a dataset's rows: blocks of rows, statistics, and the split by episodes.


# Statistics of a dataset, with which every learner is initialised.


RewardOf = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Moments(NamedTuple):
    """Count, mean, sum of squared deviations and range, in float64."""

    count: int
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray


def data_statistics(
    dataset: Dataset,
    *,
    episodes: Int[np.ndarray, " chosen"] | None = None,
    reward: RewardOf | None = None,
    limits: Sequence[CostChannel] | None = None,
) -> DataStatistics:
    """Count, mean, population standard deviation and range of every field.

    The statistics are accumulated in float64 in one pass over blocks of rows (Chan, Golub and
    LeVeque 1979), so a mapped dataset may be larger than memory. The results are identical, bit for
    bit, to those of a copy of the chosen episodes in memory. Masked rows are ignored, and so are
    episodes without an unmasked row; the length of an episode is its number of unmasked rows.

    Args:
        dataset: The log.
        episodes: Indices of the episodes to include, such as those of the training split; all by
            default.
        reward: Function of reward and costs of rows that replaces the logged reward; ``None`` uses
            the logged reward.
        limits: The dataset's cost channels with the limits of the run, which say what
            ``kept_return`` counts; by default those of the dataset.

    Returns:
        The statistics, float32 arrays.

    Raises:
        ValueError: If every row is masked.
    """
    rows: Any = dataset.transitions  # NumPy columns
    selection = slice(None) if episodes is None else episodes
    spans = dataset.episode_starts[selection], dataset.episode_ends[selection]
    lengths = episode_reductions(spans, lambda pieces: copied_rows(rows.mask, pieces)).astype(
        np.int64
    )
    if not lengths.any():
        n_rows = int((spans[1] - spans[0]).sum())
        raise ValueError(f"all {n_rows} rows are masked; expected at least one to be used")

    def rewards(pieces: list[slice]) -> Float[np.ndarray, " row"]:
        rewards_of_rows = copied_rows(rows.reward, pieces)
        return (
            rewards_of_rows
            if reward is None
            else reward(rewards_of_rows, copied_rows(rows.cost, pieces))
        )

    def masked_rewards(pieces: list[slice]) -> Float[np.ndarray, " row"]:
        return np.where(copied_rows(rows.mask, pieces), rewards(pieces), 0)

    def field(of_block: Callable[[list[slice]], np.ndarray]) -> FieldStatistics:
        return _field(_unmasked_blocks(of_block, rows.mask, spans))

    def column(name: str) -> FieldStatistics:
        return field(lambda pieces: copied_rows(getattr(rows, name), pieces))

    def masked_costs(pieces: list[slice]) -> Float[np.ndarray, "row cost"]:
        return np.where(copied_rows(rows.mask, pieces)[:, None], copied_rows(rows.cost, pieces), 0)

    returns = episode_reductions(spans, masked_rewards)[lengths > 0]
    none = FieldStatistics(*(jnp.zeros(()) for _ in FieldStatistics._fields))
    kept = np.ones(len(returns), bool)
    totals, worsts = (
        episode_reductions(spans, masked_costs, how)[lengths > 0] for how in (np.add, np.maximum)
    )
    for i, channel in enumerate(dataset.spec.cost if limits is None else limits):
        kind = limit_kind(channel)
        # In the precision of logs, as learners compare them.
        quantity = kind.of_episode(totals[:, i], worsts[:, i]).astype(np.float32)
        kept &= ~np.asarray(kind.exceeded(quantity, channel.limit))
    return DataStatistics(
        obs=column("obs"),
        action=column("action"),
        reward=field(rewards),
        cost=column("cost"),
        episode_return=_field([returns]),
        episode_length=_field([lengths[lengths > 0].astype(np.float64)]),
        terminated=column("terminated"),
        kept_return=_field([returns[kept]]) if kept.any() else none,
    )


def _unmasked_blocks(
    of_block: Callable[[list[slice]], np.ndarray], mask: Any, spans: Spans
) -> Iterator[np.ndarray]:
    """Yields the values of the unmasked rows, block by block, in float64."""
    for pieces in row_blocks(spans):
        yield of_block(pieces)[copied_rows(mask, pieces)].astype(np.float64)


def _field(parts: Any) -> FieldStatistics:
    total = None
    for part in parts:
        if len(part):
            total = moments(part) if total is None else merge_moments(total, moments(part))
    assert total is not None  # the caller has checked that at least one row is used
    std = np.sqrt(total.squares / total.count)
    return FieldStatistics(
        *(jnp.asarray(np.asarray(a, np.float32)) for a in (total.count, total.mean, std)),
        *(jnp.asarray(np.asarray(a, np.float32)) for a in (total.low, total.high)),
    )


def moments(rows: np.ndarray) -> Moments:
    """The moments of some rows."""
    mean = rows.mean(axis=0)
    squares = ((rows - mean) ** 2).sum(axis=0)
    return Moments(len(rows), mean, squares, rows.min(axis=0), rows.max(axis=0))


def merge_moments(a: Moments, b: Moments) -> Moments:
    """The moments of all rows of two parts (Chan, Golub and LeVeque 1979)."""
    count = a.count + b.count
    delta = b.mean - a.mean
    return Moments(
        count,
        a.mean + delta * b.count / count,
        a.squares + b.squares + delta**2 * a.count * b.count / count,
        np.minimum(a.low, b.low),
        np.maximum(a.high, b.high),
    )


# Splits a log by complete episodes, for example into training and validation data.


def split_episodes(dataset: Dataset, fraction: float, key: PRNGKeyArray) -> tuple[Dataset, Dataset]:
    """Splits a dataset at random by complete episodes.

    Args:
        dataset: The log.
        fraction: Fraction of the episodes in the first split, in (0, 1). It is rounded to a whole
            number of episodes, at least one on each side.
        key: Random key; the same key gives the same split.

    Returns:
        The first split and the rest, each with its episodes in their original order. The attribute
        ``split`` of each describes how it was made.

    Raises:
        ValueError: If ``fraction`` is outside (0, 1) or there are fewer than two episodes.
    """
    n = dataset.n_episodes
    parts = []
    for indices in split_indices(n, fraction, key):
        part = dataset.select_episodes(indices)
        split = {"of": dataset.content_hash, "episodes": len(indices), "of_episodes": n}
        parts.append(dataclasses.replace(part, attributes={**part.attributes, "split": split}))
    return parts[0], parts[1]


def split_indices(
    n_episodes: int, fraction: float, key: PRNGKeyArray
) -> tuple[Int[np.ndarray, " first"], Int[np.ndarray, " rest"]]:
    """The indices of the episodes in each split of :func:`split_episodes`, ascending.

    Args:
        n_episodes: Number of episodes.
        fraction: Fraction of the episodes in the first split.
        key: Random key.

    Raises:
        ValueError: See :func:`split_episodes`.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
    if n_episodes < 2:
        raise ValueError(f"a split needs at least two episodes, got {n_episodes}")
    n_first = min(max(round(fraction * n_episodes), 1), n_episodes - 1)
    order = np.asarray(jax.random.permutation(key, n_episodes))
    return np.sort(order[:n_first]), np.sort(order[n_first:])
