"""Checks of a dataset; every error names source, column, row, and expected and actual value."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from neorl_core import InputError, Spec, Transition
from neorl_envs.datasets._joined import memory_maps

BLOCK = 65_536
"""Rows processed at a time, so that a mapped file may be larger than memory."""

FLOATS = ("obs", "action", "reward", "cost", "next_obs", "next_action")
FLAGS = ("terminated", "truncated", "mask")


class DatasetError(InputError):
    """Raised if a dataset or its file cannot be used; the message is one line."""


def blocks(n_rows: int, *columns: Any) -> Iterator[slice]:
    """Consecutive slices that cover ``n_rows`` rows.

    The memory pages of mapped ``columns`` are released after each block, so that a pass over a file
    larger than memory needs little.
    """
    maps = [mapped for column in columns for mapped in memory_maps(column)]
    for start in range(0, n_rows, BLOCK):
        yield slice(start, min(start + BLOCK, n_rows))
        for mapped in maps:
            mapped.madvise(mmap.MADV_DONTNEED)


def check_columns(spec: Spec, transitions: Transition, *, source: str) -> None:
    """Raises a ``DatasetError`` unless columns agree with the specification and one another.

    ``next_action`` may be ``None`` (not derived yet), and NaN is allowed in masked rows.
    """
    n_rows = len(np.atleast_1d(transitions.reward))
    if n_rows == 0:
        raise DatasetError(f"{source}: the dataset is empty; expected at least one row, got 0")
    columns = {name: c for name, c in transitions._asdict().items() if c is not None}
    for name, column in columns.items():
        _check_shape(source, name, column, _expected_shape(spec, name, n_rows))
    masked = ~np.asarray(columns["mask"])
    for name in FLOATS:
        if name in columns:
            check_finite(source, name, columns[name], missing=masked)


def check_finite(
    source: str, name: str, column: np.ndarray, missing: np.ndarray | None = None
) -> None:
    """Raises a ``DatasetError`` at the first row of ``column`` that holds NaN or infinity.

    ``missing`` flags where NaN is allowed, for every row or for all; by default nowhere.
    """
    for rows in blocks(len(column), column):
        finite = _sound(column, rows, missing)
        if not finite.all():
            row, *channel = (int(i) for i in np.argwhere(~finite)[0])
            value = column[rows][(row, *channel)]
            where = f", channel {channel[0]}" if channel else ""
            bad = sum(
                int((~_sound(column, part, missing)[(..., *channel)]).sum())
                for part in blocks(len(column), column)
            )
            raise DatasetError(
                f"{source}: column '{name}', row {rows.start + row}{where}: expected a finite "
                f"number, got {value} (so in {bad} of {len(column)} rows); repair the log, or set "
                "the mask of the row to false (NaN is legal there, infinity is not)"
            )


def _sound(column: np.ndarray, rows: slice, missing: np.ndarray | None) -> np.ndarray:
    """Which numbers of some rows are finite, or NaN where that is allowed."""
    finite = np.isfinite(column[rows])
    if missing is not None and not finite.all():
        legal = missing[rows] if np.ndim(missing) else np.full(len(finite), missing)
        finite |= np.isnan(column[rows]) & legal.reshape((-1,) + (1,) * (finite.ndim - 1))
    return finite


def check_episodes(source: str, transitions: Transition, episode_starts: np.ndarray) -> None:
    """Raises a ``DatasetError`` unless starts of episodes agree with the flags that end them."""
    n_rows = len(transitions.reward)
    ended = np.flatnonzero(np.asarray(transitions.terminated) | np.asarray(transitions.truncated))
    if ended.size == 0 or ended[-1] != n_rows - 1:
        raise DatasetError(
            f"{source}: column 'truncated', row {n_rows - 1}: expected the last row to be "
            "terminated or truncated, got neither; the last row of every piece of a log is marked"
        )
    expected = np.append(0, ended[:-1] + 1)
    if expected.shape != np.shape(episode_starts):
        raise DatasetError(
            f"{source}: column 'episode_starts': expected {expected.size} episodes "
            f"(rows that are terminated or truncated), got {np.size(episode_starts)}"
        )
    bad_rows = np.flatnonzero(expected != episode_starts)
    if bad_rows.size:
        first = int(bad_rows[0])
        raise DatasetError(
            f"{source}: column 'episode_starts', row {first}: expected {expected[first]}, "
            f"got {episode_starts[first]}; an episode starts after each terminated or truncated row"
        )
    _check_next_action(source, transitions, ended)


def _check_next_action(source: str, transitions: Transition, ended: np.ndarray) -> None:
    action = np.asarray(transitions.action)
    stored = np.asarray(transitions.next_action)
    for rows in blocks(len(action), transitions.action, transitions.next_action):
        follows = np.zeros_like(action[rows])
        next_action = action[rows.start + 1 : rows.stop + 1]
        follows[: len(next_action)] = next_action
        inside = (ended >= rows.start) & (ended < rows.stop)
        follows[ended[inside] - rows.start] = 0
        same = (follows == stored[rows]) | (np.isnan(follows) & np.isnan(stored[rows]))
        bad_rows = np.flatnonzero(~same.all(axis=-1))
        if bad_rows.size:
            row = int(bad_rows[0])
            raise DatasetError(
                f"{source}: column 'next_action', row {rows.start + row}: expected "
                f"{follows[row].tolist()} (the action of the next row, zero at the end of an "
                f"episode), got {stored[rows][row].tolist()}"
            )


def _expected_shape(spec: Spec, name: str, n_rows: int) -> tuple[int, ...]:
    widths = {
        "obs": spec.n_obs,
        "next_obs": spec.n_obs,
        "action": spec.n_action,
        "next_action": spec.n_action,
        "cost": spec.n_cost,
    }
    return (n_rows, widths[name]) if name in widths else (n_rows,)


def _check_shape(source: str, name: str, column: np.ndarray, shape: tuple[int, ...]) -> None:
    if column.shape != shape:
        raise DatasetError(
            f"{source}: column '{name}': expected shape {shape}, got {column.shape}; "
            "rows follow column 'reward', widths follow the specification"
        )
    expected = np.dtype(np.bool_ if name in FLAGS else np.float32)
    if column.dtype != expected:
        raise DatasetError(
            f"{source}: column '{name}': expected {expected} numbers, got {column.dtype}"
        )
