"""The dataset file: one HDF5 file of flat contiguous columns with JSON attributes.

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

from neorl_core import Spec, Transition, spec_from_dict, spec_to_dict
from neorl_core.boundary import check_head, head, replacing
from neorl_envs.datasets._checks import (
    FLAGS,
    DatasetError,
    blocks,
    check_columns,
    check_episodes,
    check_finite,
)
from neorl_envs.datasets._dataset import Dataset, as_stored
from neorl_envs.datasets._deferred_errors import DeferredErrorFile

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
VERSION = 1
FORMAT = head("dataset", VERSION)["format"]
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
OPTIONAL_DTYPES: Mapping[str, str] = {"behaviour": "<i4", "behaviour_log_prob": "<f4"}


def write_dataset(path: str | os.PathLike[str], dataset: Dataset) -> Path:
    """Writes a dataset completely or not at all.

    The dataset is checked first. The file is written beside its final place, flushed to the disk
    and renamed, so that a reader sees the old file, or the new one, and never a part of it.

    Args:
        path: Place of the file; an existing file is replaced.
        dataset: What to write.

    Returns:
        The path.

    Raises:
        DatasetError: If the dataset is not valid; nothing is written.
        OSError: If the disk refuses (full, no permission); nothing is left behind.
    """
    path = Path(path)
    check_columns(dataset.spec, dataset.transitions, source=str(path))
    check_episodes(str(path), dataset.transitions, dataset.episode_starts)
    _check_optional(str(path), dataset)
    header = _header_attributes(str(path), dataset)
    try:
        with replacing(path) as temporary:
            _write(temporary, header, dataset)
    except OSError as error:
        raise OSError(
            f"{path}: cannot write the dataset ({error}); nothing was written: "
            "check space and permission"
        ) from error
    return path


def _header_attributes(source: str, dataset: Dataset) -> dict[str, Any]:
    try:
        attributes = json.dumps(dict(dataset.attributes), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{source}: attributes must be what JSON can hold: {error}") from error
    return {
        **head("dataset", VERSION),
        "spec": json.dumps(spec_to_dict(dataset.spec)),
        "attributes": attributes,
        "content_hash": dataset.content_hash,
    }


def _write(path: Path, header: Mapping[str, Any], dataset: Dataset) -> None:
    # Version bounds: the format of HDF5 1.8 allows attributes beyond 64 KiB (many channels).
    with DeferredErrorFile(path) as target:
        with h5py.File(target, "w", libver=("v108", "v110")) as file:
            for name, value in header.items():
                file.attrs[name] = value
            for name, column in dataset.columns():
                file.create_dataset(name, data=as_stored(column))
        target.finish()


def read_neorl_hdf5(file: h5py.File, source: str, *, memory_map: bool) -> Dataset:
    """Reads an opened file of this format; see :func:`neorl_envs.read_dataset`."""
    columns = _columns(file, source, _mapped if memory_map else _loaded)
    spec, attributes, stored_hash = _header(file, source)
    transitions = Transition(**{name: columns[name] for name in Transition._fields})
    check_columns(spec, transitions, source=source)
    starts = np.asarray(columns["episode_starts"])
    check_episodes(source, transitions, starts)
    dataset = Dataset(
        transitions=transitions,
        episode_starts=starts,
        spec=spec,
        attributes=attributes,
        behaviour=columns.get("behaviour"),
        behaviour_log_prob=columns.get("behaviour_log_prob"),
    )
    _check_optional(source, dataset)
    if memory_map:
        # The file is not read to be hashed; `cached_property` takes the stored value.
        dataset.__dict__["content_hash"] = stored_hash
    elif dataset.content_hash != stored_hash:
        raise DatasetError(
            f"{source}: the columns do not match the recorded content hash: expected "
            f"{stored_hash}, got {dataset.content_hash}; the file was changed or damaged, "
            "generate or copy it again"
        )
    return dataset


def _header(file: h5py.File, source: str) -> tuple[Spec, dict[str, Any], str]:
    stored = {name: file.attrs.get(name) for name in ("format", "version")}
    version = stored["version"]
    if isinstance(version, np.integer):
        stored["version"] = int(version)  # HDF5 gives NumPy's integers
    check_head(stored, "dataset", VERSION, source, DatasetError)
    try:
        spec = spec_from_dict(json.loads(str(file.attrs["spec"])))
        attributes = json.loads(str(file.attrs["attributes"]))
        return spec, attributes, str(file.attrs["content_hash"])
    except KeyError as error:
        raise DatasetError(f"{source}: {error.args[0]}; write it with write_dataset") from error
    except (TypeError, ValueError) as error:
        raise DatasetError(
            f"{source}: attributes 'spec' and 'attributes' must be JSON of the published layout: "
            f"{error}"
        ) from error


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
    stored = {name: code for name, code in OPTIONAL_DTYPES.items() if name in file}
    columns: dict[str, Any] = {}
    for name, code in {**DTYPES, **stored}.items():
        column = file[name]
        if not isinstance(column, h5py.Dataset) or column.dtype.str != code:
            actual = column.dtype.str if isinstance(column, h5py.Dataset) else "a group"
            raise DatasetError(
                f"{source}: column '{name}': expected numbers of type {code}, got {actual}; "
                "write it with write_dataset, which converts"
            )
        columns[name] = read(column, name, code, source)
        if name in FLAGS:
            columns[name] = _flags(columns[name], name, source)
    return columns


def _loaded(column: h5py.Dataset, name: str, code: str, source: str) -> np.ndarray:
    try:
        return column[()]
    except OSError as error:
        raise DatasetError(
            f"{source}: column '{name}': expected {column.shape} numbers, cannot read them "
            f"({error}); the file is truncated or damaged, copy or generate it again"
        ) from error


def _mapped(column: h5py.Dataset, name: str, code: str, source: str) -> np.ndarray:
    """The column as a read-only map into the file: random rows cost no parsing."""
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
    for rows in blocks(len(column)):
        wrong = np.flatnonzero(column[rows] > 1)
        if wrong.size:
            row = int(wrong[0])
            raise DatasetError(
                f"{source}: column '{name}', row {rows.start + row}: expected 0 or 1, "
                f"got {column[rows][row]}"
            )
    return column.view(np.bool_)


def _check_optional(source: str, dataset: Dataset) -> None:
    behaviour, log_prob = dataset.behaviour, dataset.behaviour_log_prob
    if behaviour is not None:
        names = dataset.attributes.get("behaviours", [])
        if behaviour.shape != (dataset.n_episodes,):
            raise DatasetError(
                f"{source}: column 'behaviour': expected shape ({dataset.n_episodes},), one "
                f"label an episode, got {behaviour.shape}"
            )
        wrong = np.flatnonzero((behaviour < 0) | (behaviour >= len(names)))
        if wrong.size:
            raise DatasetError(
                f"{source}: column 'behaviour', row {wrong[0]}: expected an index into the "
                f"{len(names)} names of attribute 'behaviours', got {behaviour[wrong[0]]}"
            )
    if log_prob is not None:
        if log_prob.shape != (dataset.n_rows,):
            raise DatasetError(
                f"{source}: column 'behaviour_log_prob': expected shape ({dataset.n_rows},), "
                f"got {log_prob.shape}"
            )
        check_finite(source, "behaviour_log_prob", log_prob)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """The HDF5 file, or a one-line error."""
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise DatasetError(
            f"{path}: expected an HDF5 file, cannot open it: {reason}; it is truncated or "
            "damaged, copy or generate it again"
        ) from error
    with file:
        yield file
