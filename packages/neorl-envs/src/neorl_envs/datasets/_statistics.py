"""Statistics of a dataset, with which every learner is initialised."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from neorl_core import DataStatistics, FieldStatistics
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._passes import Spans, copied_rows, episode_reductions, row_blocks

RewardOf = Callable[[np.ndarray, np.ndarray], np.ndarray]


class _Moments(NamedTuple):
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

    returns = episode_reductions(spans, masked_rewards)[lengths > 0]
    return DataStatistics(
        obs=column("obs"),
        action=column("action"),
        reward=field(rewards),
        cost=column("cost"),
        episode_return=_field([returns]),
        episode_length=_field([lengths[lengths > 0].astype(np.float64)]),
        terminated=column("terminated"),
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
            total = _moments(part) if total is None else _merge(total, _moments(part))
    assert total is not None  # the caller has checked that at least one row is used
    std = np.sqrt(total.squares / total.count)
    return FieldStatistics(
        *(jnp.asarray(np.asarray(a, np.float32)) for a in (total.count, total.mean, std)),
        *(jnp.asarray(np.asarray(a, np.float32)) for a in (total.low, total.high)),
    )


def _moments(rows: np.ndarray) -> _Moments:
    mean = rows.mean(axis=0)
    squares = ((rows - mean) ** 2).sum(axis=0)
    return _Moments(len(rows), mean, squares, rows.min(axis=0), rows.max(axis=0))


def _merge(a: _Moments, b: _Moments) -> _Moments:
    count = a.count + b.count
    delta = b.mean - a.mean
    return _Moments(
        count,
        a.mean + delta * b.count / count,
        a.squares + b.squares + delta**2 * a.count * b.count / count,
        np.minimum(a.low, b.low),
        np.maximum(a.high, b.high),
    )
