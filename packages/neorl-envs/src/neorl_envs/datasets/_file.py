"""The dataset file: an HDF5 file of flat contiguous columns with JSON attributes.

The layout is published in ``docs/pages/reference/dataset-file.md``.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
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
)
from neorl_envs.datasets._dataset import Dataset, as_stored, content_digest
from neorl_envs.datasets._deferred_errors import DeferredErrorFile
from neorl_envs.datasets._hdf5 import attribute, open_hdf5, require_sizes, set_text, stored_column
from neorl_envs.datasets._optional import OPTIONAL, check_optional
from neorl_envs.datasets._specification import check_spec, json_object, plain_spec, read_spec

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


def map_checked_rows(path: Path) -> np.ndarray:
    """A copy of the mask of a dataset file, whose columns are checked to be valid and mappable."""
    return np.array(map_unchecked(path).transitions.mask)


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
            columns[name] = _flags(columns[name], name, source)
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


def _flags(column: np.ndarray, name: str, source: str) -> np.ndarray:
    for rows in blocks(len(column), column):
        bad_rows = np.argwhere(column[rows] > 1)
        if bad_rows.size:
            where = tuple(int(i) for i in bad_rows[0])
            raise DatasetError(
                f"{source}: column '{name}', row {rows.start + where[0]}: expected 0 or 1, "
                f"got {column[rows][where]}"
            )
    return column.view(np.bool_)
