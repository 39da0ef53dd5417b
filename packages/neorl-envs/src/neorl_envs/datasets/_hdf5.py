"""HDF5 files from anywhere: what is read is looked at first, and damage is one line.

Damage is found by the checksums of the format's own headers before anything is followed: text is
stored at fixed length inside them, since text of variable length lies in a heap without a
checksum, where one flipped bit can make the HDF5 library run for ever.
"""

import contextlib
import math
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from neorl_envs.datasets._checks import DatasetError

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
DECLARED_AT_MOST, DECLARED_RATIO = 2**30, 100
"""Columns may unpack to this many bytes, or to this many times the size of the file."""
LONGEST_TEXT = 2**26
REFUSALS = (
    OSError,
    KeyError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)
"""What h5py raises on a damaged file; a RecursionError is a RuntimeError."""
DAMAGED = "it is truncated or damaged, copy or generate it again"


def require_regular(path: Path) -> None:
    """Raises unless a path is a file: a pipe or a device would be waited for, or never end.

    Raises:
        DatasetError: If there is nothing, or something else.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise DatasetError(
            f"{path}: no such file; give the path of a dataset, or make one with "
            "`neorl-envs collect`"
        ) from error
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot read it: {error}") from error
    if stat.S_ISDIR(mode):
        raise DatasetError(f"{path}: cannot read it: Is a directory")
    if not stat.S_ISREG(mode):
        raise DatasetError(f"{path}: expected a file, got a pipe, a socket or a device")


def largest_declared(path: str | Path) -> int:
    """Bytes that the columns of a file may unpack to."""
    return max(DECLARED_AT_MOST, DECLARED_RATIO * Path(path).stat().st_size)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """The HDF5 file; whatever h5py raises on it becomes one line.

    Raises:
        DatasetError: If it cannot be opened, or a part that is read is damaged.
    """
    require_regular(path)
    try:
        file = h5py.File(path, "r")
    except REFUSALS as error:
        raise DatasetError(
            f"{path}: expected an HDF5 file, cannot open it: {_reason(error)}; {DAMAGED}"
        ) from error
    with file:
        try:
            yield file
        except DatasetError:
            raise
        except REFUSALS as error:
            raise DatasetError(f"{path}: cannot read it: {_reason(error)}; {DAMAGED}") from error


def is_hdf5(path: Path, first_bytes: bytes, holds: Callable[[h5py.File], bool]) -> bool:
    """Whether a file is HDF5 and holds what is asked for; false for what h5py cannot open."""
    if not first_bytes.startswith(HDF5_MAGIC):
        return False
    try:
        with h5py.File(path, "r") as file:
            return holds(file)
    except REFUSALS:
        return False


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def attribute(file: h5py.File, name: str) -> Any:
    """An attribute of the root group as text or a whole number; ``None`` where there is none.

    Raises:
        DatasetError: If it is anything but text of fixed length or one whole number.
    """
    if name not in file.attrs:
        return None
    kind = file.attrs.get_id(name)
    attributes: Any = file.attrs
    if kind.shape == () and kind.dtype.kind in "iu":
        return int(attributes[name])
    if kind.shape == () and kind.dtype.kind == "S" and kind.dtype.itemsize <= LONGEST_TEXT:
        try:
            return bytes(attributes[name]).decode()
        except UnicodeDecodeError as error:
            raise DatasetError(f"{file.filename}: attribute '{name}' is not UTF-8") from error
    raise DatasetError(
        f"{file.filename}: attribute '{name}': expected text of fixed length or a whole number, "
        f"got {kind.dtype} of shape {kind.shape}; write it with write_dataset"
    )


def set_text(file: h5py.File, name: str, text: str) -> None:
    """Stores an attribute as text of fixed length, which the header's checksum covers."""
    stored = text.encode()
    kind = h5py.string_dtype("utf-8", len(stored))
    file.attrs.create(name, np.array(stored, dtype=kind), dtype=kind)


def stored_column(file: h5py.Group, name: str, source: str) -> h5py.Dataset:
    """A column that is stored in this very file, completely.

    Raises:
        DatasetError: If it is a link, a group, or declared and not stored.
    """
    link = file.get(name, getlink=True)
    column: Any = file[name] if isinstance(link, h5py.HardLink) else None
    if isinstance(column, h5py.Group):
        raise DatasetError(f"{source}: column '{name}': expected an array, got a group")
    if not isinstance(column, h5py.Dataset) or column.external or column.is_virtual:
        raise DatasetError(
            f"{source}: column '{name}': expected numbers in this file, got a link or numbers of "
            "another file; copy them in"
        )
    if column.shape is None:
        raise DatasetError(f"{source}: column '{name}': expected numbers, got an empty dataset")
    if column.size and not _complete(column):
        raise DatasetError(
            f"{source}: column '{name}': {column.shape} numbers are declared and not stored; "
            f"{DAMAGED}"
        )
    return column


def _complete(column: h5py.Dataset) -> bool:
    """Whether every declared number has its place on the disk."""
    if column.chunks is None:
        return column.id.get_storage_size() >= column.size * column.dtype.itemsize
    pairs = zip(column.shape, column.chunks, strict=True)
    return column.id.get_num_chunks() >= math.prod(-(-rows // chunk) for rows, chunk in pairs)


def require_sizes(columns: Sequence[h5py.Dataset], source: str) -> None:
    """Raises where columns declare far more than their file can hold; nothing was read yet.

    Raises:
        DatasetError: Naming the bytes.
    """
    declared = sum(math.prod(column.shape) * column.dtype.itemsize for column in columns)
    if declared > largest_declared(source):
        raise DatasetError(
            f"{source}: the columns declare {declared} bytes, far more than the file can hold"
        )
