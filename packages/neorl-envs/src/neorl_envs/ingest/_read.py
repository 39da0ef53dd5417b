"""One function that reads recorded data of any known format."""

import os
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_envs.datasets._checks import DatasetError, check_columns, check_episodes
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import DTYPES
from neorl_envs.datasets._hdf5 import HDF5_MAGIC, open_hdf5, require_regular
from neorl_envs.ingest._minari import minari_file
from neorl_envs.ingest._npz import ZIP_MAGIC
from neorl_envs.ingest._readers import READERS, Reader


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
