"""The rows of a dataset: its specification, checks of its columns, and passes block by block."""

import itertools
import json
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from neorl_core import InputError, Spec, Transition, spec_from_dict, spec_to_dict

# A column whose rows are spread over several arrays, which are not copied.


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


# Checks of a dataset; every error names source, column, row, and expected and actual value.


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


def require_flags(source: Any, name: str, column: np.ndarray, first_row: int = 0) -> None:
    """Raises a ``DatasetError`` at the first number of ``column`` that is neither 0 nor 1."""
    bad_rows = np.argwhere((column != 0) & (column != 1))
    if bad_rows.size:
        where = tuple(int(i) for i in bad_rows[0])
        raise DatasetError(
            f"{source}: column '{name}', row {first_row + where[0]}: expected 0 or 1, got "
            f"{column[where]}"
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


# Stored form of the specification; equal specifications give equal text.


REALS = ("low", "high", "limit", "dt")


def plain_spec(spec: Spec) -> dict[str, Any]:
    """The specification as JSON values: real numbers as floats, and zero without a sign."""
    return _plain(spec_to_dict(spec))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: float(item) + 0.0 if name in REALS else _plain(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def check_spec(spec: Spec, source: str) -> None:
    """Raises a ``DatasetError`` unless names and units are text."""
    for kind in ("obs", "action", "cost"):
        for channel in getattr(spec, kind):
            for field in ("name", "unit"):
                value = getattr(channel, field)
                if not isinstance(value, str):
                    raise DatasetError(
                        f"{source}: the {field} of a channel of '{kind}': expected text, got "
                        f"{value!r}"
                    )


def read_spec(text: str, source: str) -> Spec:
    """Parses the specification of a file.

    Raises a ``DatasetError`` if the text is not JSON with the published layout.
    """
    plain = json_object(text, "spec", source)
    try:
        _require_numbers(plain)
        spec = spec_from_dict(plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise DatasetError(
            f"{source}: attribute 'spec' must be JSON of the published layout: {error}"
        ) from error
    check_spec(spec, source)
    return spec


def _require_numbers(value: Any) -> None:
    """Refuses text and booleans in place of numbers, which Python would convert silently."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            _require_numbers(item)
    for name in REALS if isinstance(value, dict) else ():
        if name in value and type(value[name]) not in (int, float):
            raise ValueError(f"{name} must be a number, got {value[name]!r}")


def json_object(text: str, name: str, source: str) -> dict[str, Any]:
    """Parses an attribute that must hold one JSON object.

    Raises a ``DatasetError`` if it does not hold one.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"{source}: attribute '{name}' must be JSON of the published layout: {error}"
        ) from error
    if not isinstance(value, dict):
        raise DatasetError(
            f"{source}: attribute '{name}' must be a JSON object, got {type(value).__name__}"
        )
    return value


# Block-wise passes over chosen episodes, so that a mapped file is never completely in memory.
#
# Blocks depend only on the chosen episodes, not on their position in a file: a pass over some
# episodes of a mapped file yields exactly the same arrays as a pass over a copy of these episodes.


Spans = tuple[np.ndarray, np.ndarray]
"""The first row of each episode, and one past its last row."""


def row_blocks(spans: Spans) -> Iterator[list[slice]]:
    """Yields the rows of some episodes, one block at a time, as consecutive slices of the log."""
    size = BLOCK
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
    n_parts = -(-(stops - starts) // BLOCK)
    of = np.repeat(np.arange(len(starts)), n_parts)
    first = np.cumsum(n_parts) - n_parts
    part_starts = starts[of] + BLOCK * (np.arange(len(of)) - first[of])
    part_stops = np.minimum(part_starts + BLOCK, stops[of])
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
    group = np.cumsum(lengths) // BLOCK
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
