"""A column whose rows are spread over several arrays, which are not copied."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class JoinedColumn:
    """Behaves like one array for reading; requested rows are copied from the arrays that hold them.

    It supports what a dataset needs from a column on disk: its sizes, and rows by index, slice,
    index array or flags. ``numpy.asarray`` copies the whole column into memory.

    Args:
        pieces: At least one array; all have the same dtype and agree in all axes but the first.
    """

    def __init__(self, pieces: Sequence[np.ndarray]) -> None:
        self.pieces = tuple(pieces)
        self.starts = np.cumsum([0, *(len(piece) for piece in self.pieces)])
        self.dtype = self.pieces[0].dtype
        self.shape = (int(self.starts[-1]), *self.pieces[0].shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Copies the whole column into memory."""
        if copy is False:
            raise ValueError(
                "a joined column is stored in several files, so that it cannot be viewed without "
                "a copy"
            )
        return self[:] if dtype is None else self[:].astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        """The requested rows, in memory."""
        rows, *rest = index if isinstance(index, tuple) else (index,)
        if isinstance(rows, slice):
            chosen = self._slice(rows)
        elif np.ndim(rows) == 0 and np.asarray(rows).dtype != np.bool_:
            return self._numbered(np.array([rows]))[(0, *rest)]
        else:
            chosen = self._numbered(np.asarray(rows))
        return chosen[(slice(None), *rest)] if rest else chosen

    def _slice(self, rows: slice) -> np.ndarray:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            return self._numbered(np.arange(start, stop, step))
        out = np.empty((max(stop - start, 0), *self.shape[1:]), self.dtype)
        for piece, first in zip(self.pieces, self.starts[:-1], strict=True):
            low, high = max(start, first), min(stop, first + len(piece))
            if low < high:
                out[low - start : high - start] = piece[low - first : high - first]
        return out

    def _numbered(self, rows: np.ndarray) -> np.ndarray:
        if rows.dtype == np.bool_:
            if rows.shape != (len(self),):
                raise IndexError(f"expected a flag for each of {len(self)} rows, got {rows.shape}")
            rows = np.flatnonzero(rows)
        flat = np.where(rows < 0, rows + len(self), rows).reshape(-1)
        if flat.size and not (flat.min() >= 0 and flat.max() < len(self)):
            raise IndexError(f"row {rows.max()} of a column of {len(self)} rows")
        out = np.empty((flat.size, *self.shape[1:]), self.dtype)
        piece_of_row = np.searchsorted(self.starts, flat, side="right") - 1
        for number in np.unique(piece_of_row):
            inside = np.flatnonzero(piece_of_row == number)
            out[inside] = self.pieces[number][flat[inside] - self.starts[number]]
        return out.reshape(*rows.shape, *self.shape[1:])


def memory_maps(column: Any) -> list[Any]:
    """The memory maps that a column reads from; none for a column in memory."""
    pieces = column.pieces if isinstance(column, JoinedColumn) else (column,)
    maps = [getattr(piece, "_mmap", None) for piece in pieces]
    return [mapped for mapped in maps if hasattr(mapped, "madvise")]
