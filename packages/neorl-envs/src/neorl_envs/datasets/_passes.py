"""Block-wise passes over chosen episodes, so that a mapped file is never completely in memory.

Blocks depend only on the chosen episodes, not on their position in a file: a pass over some
episodes of a mapped file yields exactly the same arrays as a pass over a copy of these episodes.
"""

import itertools
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from neorl_envs.datasets import _checks
from neorl_envs.datasets._joined import memory_maps

Spans = tuple[np.ndarray, np.ndarray]
"""The first row of each episode, and one past its last row."""


def row_blocks(spans: Spans) -> Iterator[list[slice]]:
    """Yields the rows of some episodes, one block at a time, as consecutive slices of the log."""
    size = _checks.BLOCK
    pieces: list[slice] = []
    remaining = size
    for start, stop in _merge(spans):
        while start < stop:
            length = min(stop - start, remaining)
            pieces.append(slice(start, start + length))
            start, remaining = start + length, remaining - length
            if not remaining:
                yield pieces
                pieces, remaining = [], size
    if pieces:
        yield pieces


def copied_rows(column: Any, pieces: list[slice]) -> np.ndarray:
    """Copies the rows of a block and releases the memory pages of a mapped column."""
    if len(pieces) == 1:
        rows = np.array(column[pieces[0]]) if memory_maps(column) else column[pieces[0]]
    else:
        rows = np.concatenate([column[piece] for piece in pieces])
    give_back(column)
    return rows


def give_back(*columns: Any) -> None:
    """Releases the memory pages of mapped columns."""
    for column in columns:
        for mapped in memory_maps(column):
            mapped.madvise(mmap.MADV_DONTNEED)


def episode_reductions(
    spans: Spans,
    rows: Callable[[list[slice]], Float[np.ndarray, "row ..."]],
    reduction: np.ufunc = np.add,
) -> Float[np.ndarray, "episode ..."]:
    """The sum of a quantity over every episode, float64, or another reduction of it."""
    starts, stops = spans
    n_parts = -(-(stops - starts) // _checks.BLOCK)
    of = np.repeat(np.arange(len(starts)), n_parts)
    first = np.cumsum(n_parts) - n_parts
    part_starts = starts[of] + _checks.BLOCK * (np.arange(len(of)) - first[of])
    part_stops = np.minimum(part_starts + _checks.BLOCK, stops[of])
    parts = []
    for group in _groups(part_stops - part_starts):
        lengths = part_stops[group] - part_starts[group]
        pieces = [slice(a, b) for a, b in _merge((part_starts[group], part_stops[group]))]
        numbers = rows(pieces).astype(np.float64)
        parts.append(reduction.reduceat(numbers, np.cumsum(lengths) - lengths, axis=0))
    return reduction.reduceat(np.concatenate(parts), first, axis=0)


def _groups(lengths: Int[np.ndarray, " part"]) -> Iterator[slice]:
    """Groups of consecutive parts with about one block of rows each."""
    if not len(lengths):
        return
    group = np.cumsum(lengths) // _checks.BLOCK
    bounds = np.flatnonzero(np.diff(group, prepend=-1, append=group[-1] + 1))
    for a, b in itertools.pairwise(bounds):
        yield slice(int(a), int(b))


def _merge(spans: Spans) -> Iterator[tuple[int, int]]:
    """The spans, with adjacent ones merged."""
    starts, stops = spans
    new = np.append(True, starts[1:] != stops[:-1])
    last = np.append(new[1:], True)
    for start, stop in zip(starts[new], stops[last], strict=True):
        yield int(start), int(stop)
