"""The dataset file: an HDF5 file of flat contiguous columns with JSON attributes.

The layout is published in ``docs/pages/reference/dataset-file.md``.
"""

import contextlib
import io
import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from neorl_core import Spec, Transition
from neorl_core.infrastructure import check_head, head, replacing
from neorl_envs.datasets._checks import (
    FLAGS,
    DatasetError,
    blocks,
    check_columns,
    check_episodes,
    check_spec,
    json_object,
    plain_spec,
    read_spec,
    require_flags,
)
from neorl_envs.datasets._dataset import (
    OPTIONAL,
    Dataset,
    as_stored,
    check_optional,
    content_digest,
)

# A file object that hides disk errors from HDF5 until writing has finished.


class DeferredErrorFile(io.RawIOBase):
    """Writes to a new file until a write fails, then discards further writes and keeps the error.

    The HDF5 library can crash the process if a write fails while it closes a file (disk full, file
    size limit). This object hides the failure from it, and :meth:`finish` raises the first error.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("x+b", buffering=0)
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves the position."""
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        """Reads bytes; bytes that were never written are zero."""
        view = memoryview(buffer).cast("B")
        count = self._file.readinto(view) or 0
        view[count:] = bytes(len(view) - count)
        return len(view)

    def write(self, data: Any, /) -> int:
        """Writes all of ``data``, or keeps the error."""
        view = memoryview(data).cast("B")
        try:
            rest = view if self.error is None else view[:0]
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.error = error
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the length, or keeps the error."""
        try:
            if self.error is None:
                return self._file.truncate(size)
        except OSError as error:
            self.error = error
        return size or 0

    def finish(self) -> None:
        """Flushes the content to disk, and raises the first ``OSError`` of any write."""
        if self.error is not None:
            raise self.error
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()


# Safe reading of HDF5 files from any source; damage gives a one-line error.
#
# The checksums of the HDF5 headers reveal damage before any reference is followed. Text is
# therefore stored at fixed length inside the headers: variable-length text lies in a heap without
# a checksum, where a single flipped bit can send the HDF5 library into an endless loop.


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


VERSION = 2
FORMAT = head("dataset", VERSION)["format"]
ALIGNMENT = 64
"""Every column starts at a multiple of this many bytes, so that memory maps are aligned."""
DTYPES: Mapping[str, str] = {
    "obs": "<f4",
    "action": "<f4",
    "reward": "<f4",
    "cost": "<f4",
    "next_obs": "<f4",
    "next_action": "<f4",
    "terminated": "|u1",
    "truncated": "|u1",
    "mask": "|u1",
    "episode_starts": "<i8",
}
OPTIONAL_DTYPES: Mapping[str, str] = {name: kind.code for name, kind in OPTIONAL.items()}


def write_dataset(path: str | os.PathLike[str], dataset: Dataset) -> Path:
    """Writes a dataset to a file, completely or not at all.

    The dataset is checked first. The file is written under a temporary name in the same folder,
    flushed to disk and then renamed, so a reader sees the old file or the new one, never part of
    one.

    Args:
        path: Path of the file; an existing file is replaced.
        dataset: The dataset.

    Returns:
        The path of the file.

    Raises:
        DatasetError: If the dataset is not valid; nothing is written.
        OSError: If the file cannot be written (disk full, no permission); no partial file remains.
    """
    path = Path(path)
    check_spec(dataset.spec, str(path))
    check_columns(dataset.spec, dataset.transitions, source=str(path))
    check_episodes(str(path), dataset.transitions, dataset.episode_starts)
    check_optional(str(path), dataset)
    texts = header(str(path), dataset.spec, dataset.attributes, dataset.content_hash)
    with replacing_dataset(path) as temporary, new_file(temporary, texts) as file:
        for name, column in dataset.columns():
            file.create_dataset(name, data=as_stored(column))
    return path


@contextlib.contextmanager
def replacing_dataset(path: Path) -> Iterator[Path]:
    """Context with a temporary path in the same folder, renamed to ``path`` if the block succeeds.

    Raises an ``OSError`` if the file cannot be written; no partial file remains.
    """
    try:
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise OSError(
            f"{path}: cannot write the dataset ({error}); nothing was written: "
            "check space and permission"
        ) from error


@contextlib.contextmanager
def new_file(path: Path, texts: Mapping[str, Any]) -> Iterator[h5py.File]:
    """Context with a new dataset file that has its header; flushed to disk at the end."""
    # Version bounds: the HDF5 1.8 format allows attributes over 64 KiB, needed for many channels.
    aligned: dict[str, Any] = {"alignment_threshold": ALIGNMENT, "alignment_interval": ALIGNMENT}
    with DeferredErrorFile(path) as target:
        with h5py.File(target, "w", libver=("v108", "v110"), **aligned) as file:
            for name, value in texts.items():
                if isinstance(value, str):
                    set_text(file, name, value)
                else:
                    file.attrs[name] = value
            yield file
        target.finish()


def header(
    source: str, spec: Spec, attributes: Mapping[str, Any], content_hash: str
) -> dict[str, Any]:
    """The header of a file; a ``DatasetError`` if JSON cannot hold the attributes."""
    try:
        text = json.dumps(dict(attributes), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{source}: attributes must be what JSON can hold: {error}") from error
    return {
        **head("dataset", VERSION),
        "spec": json.dumps(plain_spec(spec)),
        "attributes": text,
        "content_hash": content_hash,
    }


def read_neorl_hdf5(file: h5py.File, source: str, *, memory_map: bool) -> Dataset:
    """Reads an opened file of this format; see :func:`neorl_envs.read_dataset`."""
    spec, attributes, stored_hash = _header(file, source)
    columns = _columns(file, source, _map_column if memory_map else _load_column)
    transitions = Transition(**{name: columns[name] for name in Transition._fields})
    check_columns(spec, transitions, source=source)
    starts = np.asarray(columns["episode_starts"])
    check_episodes(source, transitions, starts)
    dataset = Dataset(
        transitions=transitions,
        episode_starts=starts,
        spec=spec,
        attributes=attributes,
        **{name: columns.get(name) for name in OPTIONAL_DTYPES},
    )
    check_optional(source, dataset)
    if memory_map:
        # Puts the stored hash into the `cached_property`, so that a mapped file need not be read.
        dataset.__dict__["content_hash"] = stored_hash
    else:
        _require_hash(source, stored_hash, dataset.content_hash)
    return dataset


def map_checked(path: Path) -> Dataset:
    """Opens a dataset file with mapped columns and checks its content hash.

    Chunked columns cannot be mapped and are read into memory.
    """
    with open_hdf5(path) as file:
        contiguous = all(
            isinstance(file.get(name, getlink=True), h5py.HardLink)
            and getattr(file[name], "chunks", None) is None
            for name in DTYPES
            if name in file
        )
        dataset = read_neorl_hdf5(file, str(path), memory_map=contiguous)
    if contiguous:
        require_file_hash(dataset, str(path))
    return dataset


def map_unchecked(path: Path) -> Dataset:
    """Opens a dataset file with mapped columns; its stored hash is neither checked nor used."""
    with open_hdf5(path) as file:
        return read_neorl_hdf5(file, str(path), memory_map=True)


def require_file_hash(dataset: Dataset, source: str) -> None:
    """Raises a ``DatasetError`` unless the columns of a mapped file have its recorded hash."""
    _require_hash(source, dataset.content_hash, content_digest(dataset))


def _require_hash(source: str, stored: str, actual: str) -> None:
    if actual != stored:
        raise DatasetError(
            f"{source}: the columns do not match the recorded content hash: expected {stored}, got "
            f"{actual}; the file was changed or damaged, generate or copy it again"
        )


def _header(file: h5py.File, source: str) -> tuple[Spec, dict[str, Any], str]:
    stored = {"format": FORMAT, "version": attribute(file, "version")}
    # Check the version first: another version may store its text differently.
    check_head(stored, "dataset", VERSION, source, DatasetError)
    stored["format"] = attribute(file, "format")
    check_head(stored, "dataset", VERSION, source, DatasetError)
    texts = {name: attribute(file, name) for name in ("spec", "attributes", "content_hash")}
    for name, text in texts.items():
        if not isinstance(text, str):
            received = "none" if text is None else f"the number {text}"
            raise DatasetError(
                f"{source}: attribute '{name}': expected text, got {received}; write it with "
                "write_dataset"
            )
    spec = read_spec(texts["spec"], source)
    return spec, json_object(texts["attributes"], "attributes", source), texts["content_hash"]


def _columns(
    file: h5py.File, source: str, read: Callable[[h5py.Dataset, str, str, str], np.ndarray]
) -> dict[str, Any]:
    missing = [name for name in DTYPES if name not in file]
    if missing:
        hint = (
            " (a log without a single trip is valid: write 'terminated' as all zeros)"
            if "terminated" in missing
            else ""
        )
        raise DatasetError(
            f"{source}: expected column '{missing[0]}', got only {sorted(file)}{hint}; "
            "see the page of the dataset file, or write it with write_dataset"
        )
    codes = {**DTYPES, **{name: code for name, code in OPTIONAL_DTYPES.items() if name in file}}
    stored = {name: stored_column(file, name, source) for name in codes}
    for name, column in stored.items():
        if column.dtype.str != codes[name]:
            raise DatasetError(
                f"{source}: column '{name}': expected numbers of type {codes[name]}, got "
                f"{column.dtype.str}; write it with write_dataset, which converts"
            )
    require_sizes(list(stored.values()), source)
    columns: dict[str, Any] = {}
    for name, column in stored.items():
        columns[name] = read(column, name, codes[name], source)
        if name in (*FLAGS, "mode"):
            for rows in blocks(len(column), columns[name]):
                require_flags(source, name, columns[name][rows], rows.start)
            columns[name] = columns[name].view(np.bool_)
    return columns


def _load_column(column: h5py.Dataset, name: str, code: str, source: str) -> np.ndarray:
    try:
        return column[()]
    except OSError as error:
        raise DatasetError(
            f"{source}: column '{name}': expected {column.shape} numbers, cannot read them "
            f"({error}); the file is truncated or damaged, copy or generate it again"
        ) from error


def _map_column(column: h5py.Dataset, name: str, code: str, source: str) -> np.ndarray:
    """The column as a read-only memory map of the file, so random rows need no parsing."""
    if column.size == 0:
        return np.zeros(column.shape, dtype=code)
    offset = column.id.get_offset()
    if offset is None:
        layout = f"compressed with {column.compression}" if column.compression else "chunked"
        raise DatasetError(
            f"{source}: column '{name}': expected a contiguous column, got a {layout} one, which "
            "cannot be mapped; convert it once: write_dataset(new, read_dataset(old))"
        )
    return np.memmap(source, dtype=code, mode="r", offset=offset, shape=column.shape)


# Writing piece by piece, for data that do not fit into memory.


NO_HASH = "sha256:" + "0" * 64


def write_pieces(
    path: Path,
    spec: Spec,
    attributes: Mapping[str, Any],
    flags: Mapping[str, np.ndarray],
    pieces: Iterable[Mapping[str, np.ndarray]],
    *,
    source: str,
    behaviour: np.ndarray | None = None,
) -> Path:
    """Writes a dataset completely or not at all, without holding all rows in memory.

    ``flags`` are those of all rows, ``pieces`` the other columns except ``next_action``;
    ``behaviour`` is, for every episode, an index in the attribute ``behaviours``.
    """
    check_spec(spec, source)
    texts = header(source, spec, attributes, NO_HASH)
    with replacing_dataset(path) as temporary:
        _write(temporary, texts, dict(flags), pieces, behaviour)
        try:
            digest = content_digest(map_unchecked(temporary))
        except DatasetError as error:
            raise DatasetError(str(error).replace(str(temporary), source)) from error
        with h5py.File(temporary, "r+", libver=("v108", "v110")) as file:
            set_text(file, "content_hash", digest)
    return path


def _write(
    path: Path,
    texts: Mapping[str, Any],
    flags: dict[str, np.ndarray],
    pieces: Iterable[Mapping[str, np.ndarray]],
    behaviour: np.ndarray | None,
) -> None:
    n_rows = len(flags["mask"])
    flags["truncated"] = flags["truncated"].copy()
    flags["truncated"][-1] |= not flags["terminated"][-1]
    ended = flags["terminated"] | flags["truncated"]
    starts = np.append(0, np.flatnonzero(ended)[:-1] + 1).astype("<i8")
    with new_file(path, texts) as file:
        for name, column in (*flags.items(), ("episode_starts", starts)):
            file.create_dataset(name, data=column.astype(DTYPES[name]))
        if behaviour is not None:
            file.create_dataset("behaviour", data=behaviour.astype(OPTIONAL_DTYPES["behaviour"]))
        _fill(file, n_rows, ended, pieces)


def _fill(
    file: h5py.File, n_rows: int, ended: np.ndarray, pieces: Iterable[Mapping[str, np.ndarray]]
) -> None:
    columns: dict[str, Any] = {}
    row = 0
    for piece in pieces:
        stop = row + len(piece["reward"])
        for name, values in {**piece, "next_action": piece["action"]}.items():
            if name not in columns:
                code = {**DTYPES, **OPTIONAL_DTYPES}[name]
                shape = (n_rows, *values.shape[1:])
                columns[name] = file.create_dataset(name, shape, code, fillvalue=0)
            if name == "next_action":
                continue
            with np.errstate(over="ignore"):  # the checks report an overflow
                columns[name][row:stop] = values.astype(columns[name].dtype)
        follows = piece["action"].astype(np.float32)
        first = max(row - 1, 0)
        follows = follows[first + 1 - row :]
        follows[ended[first : first + len(follows)]] = 0
        columns["next_action"][first : first + len(follows)] = follows
        row = stop
    assert row == n_rows
    columns["next_action"][n_rows - 1] = 0
