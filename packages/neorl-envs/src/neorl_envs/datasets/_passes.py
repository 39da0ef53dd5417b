"""Passes over the rows of chosen episodes, in blocks, so that a mapped file is never all in memory.

Blocks depend on the chosen episodes alone, and not on where in a file they lie: a pass over some
episodes of a mapped file sees the very arrays that a pass over a copy of them sees.
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
"""First rows of episodes, and the rows after their last ones."""


def row_blocks(spans: Spans) -> Iterator[list[slice]]:
    """The rows of some episodes, as many at a time as are looked at in one go.

    Args:
        spans: Spans of the episodes, in the desired order.

    Yields:
        Pieces of the log that make up one block, one after the other.
    """
    size = _checks.BLOCK
    pieces: list[slice] = []
    room = size
    for start, stop in _merged(spans):
        while start < stop:
            taken = min(stop - start, room)
            pieces.append(slice(start, start + taken))
            start, room = start + taken, room - taken
            if not room:
                yield pieces
                pieces, room = [], size
    if pieces:
        yield pieces


def taken(column: Any, pieces: list[slice]) -> np.ndarray:
    """The rows of a block; pages of a mapped column are given back."""
    if len(pieces) == 1:
        rows = np.array(column[pieces[0]]) if memory_maps(column) else column[pieces[0]]
    else:
        rows = np.concatenate([column[piece] for piece in pieces])
    give_back(column)
    return rows


def give_back(*columns: Any) -> None:
    """Gives the pages of mapped columns back."""
    for column in columns:
        for mapped in memory_maps(column):
            mapped.madvise(mmap.MADV_DONTNEED)


def episode_sums(
    spans: Spans, rows: Callable[[list[slice]], Float[np.ndarray, "row ..."]]
) -> Float[np.ndarray, "episode ..."]:
    """A sum for every episode, float64.

    Args:
        spans: Spans of the episodes; none is empty.
        rows: Numbers of the rows of a block.
    """
    starts, stops = spans
    n_parts = -(-(stops - starts) // _checks.BLOCK)
    of = np.repeat(np.arange(len(starts)), n_parts)
    first = np.cumsum(n_parts) - n_parts
    part_starts = starts[of] + _checks.BLOCK * (np.arange(len(of)) - first[of])
    part_stops = np.minimum(part_starts + _checks.BLOCK, stops[of])
    sums = []
    for group in _groups(part_stops - part_starts):
        lengths = part_stops[group] - part_starts[group]
        pieces = [slice(a, b) for a, b in _merged((part_starts[group], part_stops[group]))]
        numbers = rows(pieces).astype(np.float64)
        sums.append(np.add.reduceat(numbers, np.cumsum(lengths) - lengths, axis=0))
    return np.add.reduceat(np.concatenate(sums), first, axis=0)


def _groups(lengths: Int[np.ndarray, " part"]) -> Iterator[slice]:
    """Consecutive parts that together have about as many rows as are looked at in one go."""
    if not len(lengths):
        return
    group = np.cumsum(lengths) // _checks.BLOCK
    bounds = np.flatnonzero(np.diff(group, prepend=-1, append=group[-1] + 1))
    for a, b in itertools.pairwise(bounds):
        yield slice(int(a), int(b))


def _merged(spans: Spans) -> Iterator[tuple[int, int]]:
    """The spans, those that follow on one another as one."""
    starts, stops = spans
    new = np.append(True, starts[1:] != stops[:-1])
    last = np.append(new[1:], True)
    for start, stop in zip(starts[new], stops[last], strict=True):
        yield int(start), int(stop)
