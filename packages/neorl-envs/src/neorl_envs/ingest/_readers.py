"""Readers of log formats, further ones, and the choice of the reader of a file."""

import os
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from neorl_core import InputError
from neorl_core.infrastructure import Registry
from neorl_envs.datasets._checks import DatasetError, check_columns, check_episodes
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import (
    DTYPES,
    FORMAT,
    HDF5_MAGIC,
    attribute,
    is_hdf5,
    open_hdf5,
    read_neorl_hdf5,
    require_regular,
)
from neorl_envs.datasets._shards import SUFFIX, is_manifest, read_shards
from neorl_envs.ingest._d4rl import D4RLReader
from neorl_envs.ingest._minari import MinariReader, minari_file
from neorl_envs.ingest._neorl2 import ZIP_MAGIC, NeoRL2Reader

# The known formats of recorded data, and the registration of further ones.


@runtime_checkable
class Reader(Protocol):
    """A reader of one format: an object, or a module, with these members.

    A reader may also have ``read_mapped(path)``, which leaves the columns on disk; without it, a
    file of the format cannot be mapped.
    """

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of file names, in lower case and with the dot, such as ``(".csv",)``.

        They mark a word on a command line as a file name; the format is recognised by content.
        """
        ...

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether a file has this format; must be fast, and false for a file it cannot open.

        Args:
            path: The file.
            first_bytes: First 8 bytes of the file.
        """
        ...

    def read(self, path: Path) -> Dataset:
        """Reads a file.

        Raises:
            DatasetError: In one line that names the file, and the expected and actual content.
        """
        ...


class DatasetFileReader:
    """Reads files written by :func:`neorl_envs.write_dataset`."""

    suffixes = (".h5", ".hdf5")

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether the file is HDF5 and marked as a dataset file."""
        return is_hdf5(path, first_bytes, lambda file: attribute(file, "format") == FORMAT)

    def read(self, path: Path) -> Dataset:
        """Reads a dataset into memory and checks its content hash.

        Raises:
            DatasetError: If a column is missing, inconsistent, or has a wrong shape or dtype.
        """
        with open_hdf5(path) as file:
            return read_neorl_hdf5(file, str(path), memory_map=False)

    def read_mapped(self, path: Path) -> Dataset:
        """Maps a dataset with its columns on disk, trusting its stored content hash."""
        with open_hdf5(path) as file:
            return read_neorl_hdf5(file, str(path), memory_map=True)


class ShardsReader:
    """Reads logs written by :func:`neorl_envs.datasets.write_shards` or ``write_manifest``."""

    suffixes = (SUFFIX,)

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether the file is JSON and marked as a manifest."""
        return is_manifest(path, first_bytes)

    def read(self, path: Path) -> Dataset:
        """Reads all files into memory and checks every content hash.

        Raises:
            DatasetError: If a file is missing, was changed, or does not match the other files.
        """
        return read_shards(path, memory_map=False)

    def read_mapped(self, path: Path) -> Dataset:
        """Maps all files with their columns on disk, trusting the stored content hashes."""
        return read_shards(path, memory_map=True)


def _check_reader(name: str, reader: Any) -> None:
    """Raises a ``TypeError`` that names the first required member that a reader lacks."""
    if isinstance(reader, type):
        raise TypeError(f"a reader is an object, got the class; give {reader.__name__}()")
    for member in ("recognises", "read"):
        if not callable(getattr(reader, member, None)):
            raise TypeError(f"a reader has suffixes, recognises and read; {member} is missing")
    suffixes = getattr(reader, "suffixes", None)
    if not isinstance(suffixes, tuple) or not all(
        isinstance(suffix, str) and suffix.startswith(".") for suffix in suffixes
    ):
        raise TypeError(f"suffixes must be a tuple of endings such as ('.csv',), got {suffixes!r}")


_KNOWN: dict[str, Reader] = {
    "neorl": DatasetFileReader(),
    "neorl2": NeoRL2Reader(),
    "d4rl": D4RLReader(),
    "minari": MinariReader(),
    "shards": ShardsReader(),
}
READERS = Registry("neorl.readers", "reader", _KNOWN, _check_reader)
"""Every reader by the name of its format, in the order in which they are tried on a file."""


def register_reader(name: str, reader: Reader) -> None:
    """Registers a format with :func:`neorl_envs.read_dataset` and the commands.

    A distribution declares its readers with an entry point instead::

        [project.entry-points."neorl.readers"]
        historian = "my_package.historian:READER"

    Args:
        name: Name of the format.
        reader: An object with ``suffixes``, ``recognises`` and ``read``; see :class:`Reader`.

    Raises:
        InputError: If the name is taken or a member is missing.
    """
    READERS.register(name, reader)


def log_suffixes() -> tuple[str, ...]:
    """Suffixes of log files of every format whose reader can be loaded.

    Example:
        >>> from neorl_envs.ingest import log_suffixes
        >>> log_suffixes()[:3]
        ('.h5', '.hdf5', '.npz')
    """
    endings: dict[str, None] = {}
    for name in READERS:
        try:
            endings |= dict.fromkeys(READERS.find(name).suffixes)
        except InputError:  # a broken distribution, which read_dataset names if it is needed
            continue
    return tuple(endings)


# One function that reads recorded data of any known format.


def read_dataset(path: str | os.PathLike[str], *, memory_map: bool = False) -> Dataset:
    """Reads a log from a file and checks it.

    The format is recognised by content, not by name: the dataset file of this project (HDF5), the
    ``.npz`` files of NeoRL-2, D4RL-style HDF5, Minari (its file or its folder), and the formats of
    installed or registered readers (:class:`neorl_envs.ingest.Reader`). The page on the dataset
    file explains how other formats are read; their specification is inferred from the data.

    Args:
        path: The file.
        memory_map: Leave the columns on disk and map them read-only, for logs larger than memory.
            Only dataset files can be mapped; their stored content hash is then not checked.

    Returns:
        The dataset. A log without any terminated row is valid.

    Raises:
        DatasetError: If the file is missing, truncated or of unknown format, or if a column is
            missing, non-finite, inconsistent, or has a wrong shape or dtype. The message is one
            line that names file, column, row, expected and actual value.
    """
    path = minari_file(Path(path))
    first_bytes = _first_bytes(path)
    failures: list[str] = []
    for name in READERS:
        try:
            reader = READERS.find(name)
        except InputError as error:
            failures.append(str(error))
            continue
        if _recognises(name, reader, path, first_bytes):
            return _read(name, reader, path, memory_map)
        if READERS.origin(name) and path.suffix.lower() in reader.suffixes:
            failures.append(f"the reader {name!r} ({READERS.origin(name)}) does not recognise it")
    if first_bytes.startswith(ZIP_MAGIC):
        return _read("neorl2", READERS["neorl2"], path, memory_map)  # names what is missing
    if first_bytes.startswith(HDF5_MAGIC):
        return _read_unmarked_hdf5(path, memory_map)
    also = "".join(f"; {problem}" for problem in failures)
    raise DatasetError(
        f"{path}: expected an HDF5 dataset file or a NeoRL-2 .npz, got a file that starts with "
        f"{first_bytes!r}; a plant's log (CSV, Parquet) is converted once, with `neorl-envs init` "
        f"and `neorl-envs convert`{also}"
    )


def reader_name(path: str | os.PathLike[str]) -> str:
    """The name of the reader that recognises a file; empty if none does.

    Args:
        path: The file.

    Raises:
        DatasetError: If the file is missing or empty, or a reader fails on it.
    """
    path = minari_file(Path(path))
    first_bytes = _first_bytes(path)
    for name in READERS:
        try:
            reader = READERS.find(name)
        except InputError:  # a broken distribution recognises nothing
            continue
        if _recognises(name, reader, path, first_bytes):
            return name
    return ""


def _recognises(name: str, reader: Reader, path: Path, first_bytes: bytes) -> bool:
    try:
        return bool(reader.recognises(path, first_bytes))
    except Exception as error:
        raise DatasetError(_failure_message(name, path, error)) from error


def _read(name: str, reader: Reader, path: Path, memory_map: bool) -> Dataset:
    """Reads a file; the result of a third-party reader is checked like a dataset file."""
    read = getattr(reader, "read_mapped", None) if memory_map else reader.read
    if read is None:
        raise DatasetError(
            f"{path}: only the dataset file can be mapped; convert it once: "
            "write_dataset(new, read_dataset(old))"
        )
    if not READERS.origin(name):
        return read(path)
    try:
        dataset: Any = read(path)
    except DatasetError:
        raise
    except Exception as error:
        raise DatasetError(_failure_message(name, path, error)) from error
    if not isinstance(dataset, Dataset):
        received = type(dataset).__name__
        raise DatasetError(
            f"{path}: the reader {name!r} ({READERS.origin(name)}) returned a {received}; expected "
            "a Dataset, as dataset_from_columns makes one"
        )
    check_columns(dataset.spec, dataset.transitions, source=str(path))
    check_episodes(str(path), dataset.transitions, dataset.episode_starts)
    return dataset


def _failure_message(name: str, path: Path, error: Exception) -> str:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    origin = READERS.origin(name)
    return f"{path}: the reader {name!r}{f' ({origin})' if origin else ''} failed with {reason}"


def _read_unmarked_hdf5(path: Path, memory_map: bool) -> Dataset:
    """Reads a dataset file without its mark, or raises the error for any other HDF5 file."""
    with open_hdf5(path) as file:
        names = sorted(file)
    if set(names) & set(DTYPES):
        return _read("neorl", READERS["neorl"], path, memory_map)
    raise DatasetError(
        f"{path}: expected the columns of a dataset file ({', '.join(DTYPES)}) or of "
        f"D4RL, got {names}"
    )


def _first_bytes(path: Path) -> bytes:
    require_regular(path)
    try:
        with path.open("rb") as file:
            first_bytes = file.read(8)
    except OSError as error:
        raise DatasetError(f"{path}: cannot read it: {error.strerror}") from error
    if not first_bytes:
        raise DatasetError(f"{path}: the file is empty (0 bytes); copy or generate it again")
    return first_bytes
