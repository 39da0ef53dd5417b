"""Safe reading of HDF5 files from any source; damage gives a one-line error.

The checksums of the HDF5 headers reveal damage before any reference is followed. Text is therefore
stored at fixed length inside the headers: variable-length text lies in a heap without a checksum,
where a single flipped bit can send the HDF5 library into an endless loop.
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
"""Columns may unpack to the larger of this many bytes and this multiple of the file size."""
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
"""Exceptions that h5py raises on a damaged file; a RecursionError is a RuntimeError."""
DAMAGED = "it is truncated or damaged, copy or generate it again"


def require_regular(path: Path) -> None:
    """Raises a ``DatasetError`` unless a file is regular: reading a pipe might never end."""
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
    """Largest allowed unpacked size of the columns of a file, bytes."""
    return max(DECLARED_AT_MOST, DECLARED_RATIO * Path(path).stat().st_size)


@contextlib.contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Context with an opened HDF5 file; any h5py exception becomes a one-line error.

    Raises a ``DatasetError`` if the file cannot be opened, or if a part that is read is damaged.
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
    """Whether a file is HDF5 and ``holds`` is true of it; false if h5py cannot open it."""
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
    """An attribute of the root group as text or an integer; ``None`` if it does not exist.

    Raises a ``DatasetError`` if it is neither fixed-length text nor a single integer.
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
        f"{file.filename}: attribute '{name}': expected text of fixed length or an integer, "
        f"got {kind.dtype} of shape {kind.shape}; write it with write_dataset"
    )


def set_text(file: h5py.File, name: str, text: str) -> None:
    """Stores an attribute as fixed-length text, which the header's checksum covers."""
    stored = text.encode()
    kind = h5py.string_dtype("utf-8", len(stored))
    file.attrs.create(name, np.array(stored, dtype=kind), dtype=kind)


def stored_column(file: h5py.Group, name: str, source: str) -> h5py.Dataset:
    """A column that is stored completely in the file itself.

    Raises a ``DatasetError`` if it is a link or a group, or if it is declared but not stored.
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
    """Whether storage is allocated for every declared number."""
    if column.chunks is None:
        return column.id.get_storage_size() >= column.size * column.dtype.itemsize
    pairs = zip(column.shape, column.chunks, strict=True)
    return column.id.get_num_chunks() >= math.prod(-(-rows // chunk) for rows, chunk in pairs)


def require_sizes(columns: Sequence[h5py.Dataset], source: str) -> None:
    """Raises, before reading, if the declared columns are far larger than the file can hold.

    Raises a ``DatasetError`` naming the number of bytes.
    """
    declared = sum(math.prod(column.shape) * column.dtype.itemsize for column in columns)
    if declared > largest_declared(source):
        raise DatasetError(
            f"{source}: the columns declare {declared} bytes, far more than the file can hold"
        )
