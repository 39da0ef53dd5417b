"""One pass over a dataset: what every learner is initialised with."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from neorl_core import DataStatistics, FieldStatistics
from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset


class _Moments(NamedTuple):
    """Count, mean, sum of squared deviations and range, in float64."""

    count: int
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray


def data_statistics(dataset: Dataset) -> DataStatistics:
    """Count, mean, population standard deviation and range of every field.

    One pass in blocks of rows, accumulated in float64 (Chan, Golub and LeVeque 1979), so a mapped
    dataset larger than memory passes. Masked rows are left out, and so are episodes without a
    single unmasked row; the length of an episode is its number of unmasked rows.

    Args:
        dataset: The training split.

    Returns:
        The statistics, float32 arrays.

    Raises:
        ValueError: If every row is masked.
    """
    rows: Any = dataset.transitions  # NumPy columns
    lengths = np.add.reduceat(rows.mask.astype(np.int64), dataset.episode_starts)
    if not lengths.any():
        raise ValueError(f"all {dataset.n_rows} rows are masked; expected at least one to be used")
    used = np.ones(int((lengths > 0).sum()), np.bool_)
    return DataStatistics(
        obs=_field(rows.obs, rows.mask),
        action=_field(rows.action, rows.mask),
        reward=_field(rows.reward, rows.mask),
        cost=_field(rows.cost, rows.mask),
        episode_return=_field(dataset.episode_returns()[lengths > 0], used),
        episode_length=_field(lengths[lengths > 0], used),
    )


def _field(column: np.ndarray, mask: np.ndarray) -> FieldStatistics:
    total = None
    for rows in blocks(len(column), column):
        chosen = column[rows][mask[rows]].astype(np.float64)
        if len(chosen):
            total = _moments(chosen) if total is None else _merged(total, _moments(chosen))
    assert total is not None  # the caller made sure that one row is used
    std = np.sqrt(total.squares / total.count)
    return FieldStatistics(
        *(jnp.asarray(np.asarray(a, np.float32)) for a in (total.count, total.mean, std)),
        *(jnp.asarray(np.asarray(a, np.float32)) for a in (total.low, total.high)),
    )


def _moments(rows: np.ndarray) -> _Moments:
    mean = rows.mean(axis=0)
    squares = ((rows - mean) ** 2).sum(axis=0)
    return _Moments(len(rows), mean, squares, rows.min(axis=0), rows.max(axis=0))


def _merged(a: _Moments, b: _Moments) -> _Moments:
    count = a.count + b.count
    delta = b.mean - a.mean
    return _Moments(
        count,
        a.mean + delta * b.count / count,
        a.squares + b.squares + delta**2 * a.count * b.count / count,
        np.minimum(a.low, b.low),
        np.maximum(a.high, b.high),
    )
