"""Reads and writes the ``.npz`` files of NeoRL-2."""

import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core.infrastructure import replacing
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import largest_declared
from neorl_envs.ingest._inferred import (
    COLUMNS,
    DESCRIPTION,
    description_of,
    extras_of,
    inferred_dataset,
    read_flag,
)

# Safe reading of NumPy archives: names, types and sizes are checked before memory is allocated.


ZIP_MAGIC = b"PK\x03\x04"
REFUSALS = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def npz_names(path: Path) -> set[str]:
    """Names of the arrays in an archive; empty if it cannot be opened."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except REFUSALS:
        return set()


def load_npz(
    path: Path, required: Sequence[str], expected: str, optional: Iterable[str] = ()
) -> dict[str, np.ndarray]:
    """Reads selected arrays of an archive.

    ``expected`` names the kind of archive in messages. Raises a ``DatasetError`` if the archive is
    damaged, or if an array is missing, does not contain real numbers, or declares more data than
    the archive can hold.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            missing = [name for name in required if name not in members]
            if missing:
                raise DatasetError(
                    f"{path}: expected {expected} {list(required)}, got {sorted(members)}; "
                    f"'{missing[0]}' is missing"
                )
            chosen = {name: members[name] for name in (*required, *optional) if name in members}
            _require_size(path, sum(entry.file_size for entry in chosen.values()))
            for name, entry in chosen.items():
                _require_numbers(path, name, archive, entry)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in chosen}
    except DatasetError:
        raise
    except REFUSALS as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DatasetError(
            f"{path}: expected a complete .npz of plain arrays, cannot read it: {reason}; the file "
            "is truncated or damaged, copy it again"
        ) from error


def _require_size(path: Path, declared: int) -> None:
    if declared > largest_declared(path):
        raise DatasetError(
            f"{path}: the arrays declare {declared} bytes, far more than the file can hold"
        )


def _require_numbers(
    path: Path, name: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo
) -> None:
    """Checks that the header of an array declares real numbers that the archive can hold."""
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in HEADERS:
            raise ValueError(f"array '{name}' has version {version} of its header")
        shape, _, dtype = HEADERS[version](stream)
    if dtype.kind not in "biuf":
        kind = "Python objects" if dtype.hasobject else f"{dtype}"
        raise DatasetError(f"{path}: column '{name}': expected numbers, got {kind}; save numbers")
    if math.prod(shape) * dtype.itemsize > entry.file_size:
        raise DatasetError(
            f"{path}: column '{name}': {shape} numbers are declared and not stored; the file is "
            "truncated or damaged, copy it again"
        )


KEYS = ("obs", "action", "next_obs", "reward", "done", "truncated")
ATTRIBUTION = (
    "NeoRL-2 (polixir/NeoRL2), data licensed CC-BY-4.0; converted from the published .npz file"
)


class NeoRL2Reader:
    """Reads an ``.npz`` file of NeoRL-2.

    ``done`` is read as terminated, and ``truncated`` as the time limit. Both end an episode, as
    does the end of the file. ``next_obs`` is used as stored. ``cost``, which the published files do
    not have, contains one column per cost. ``index`` is ignored if present, because the flags
    contain the same information.
    """

    suffixes = (".npz",)

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether the file is an archive with the keys of NeoRL-2."""
        return first_bytes.startswith(ZIP_MAGIC) and set(KEYS) <= npz_names(path)

    def read(self, path: Path) -> Dataset:
        """Reads a file; names, units, ranges, period and horizon are inferred.

        Raises a ``DatasetError`` if the file is damaged, a key is missing or columns are
        inconsistent.
        """
        arrays = load_npz(path, KEYS, "the keys of NeoRL-2", (*COLUMNS, DESCRIPTION))
        text = arrays.pop(DESCRIPTION, np.zeros(0, np.uint8))
        terminated = read_flag(path, "done", arrays["done"], arrays["reward"])
        truncated = read_flag(path, "truncated", arrays["truncated"], arrays["reward"])
        return inferred_dataset(
            str(path),
            {key: arrays[key] for key in ("obs", "action", "next_obs", "reward")},
            terminated,
            truncated,
            extras={name: arrays[name] for name in COLUMNS if name in arrays},
            description=text.astype(np.uint8).tobytes().decode("utf-8", "replace"),
            attributes={
                "name": path.stem,
                "attribution": ATTRIBUTION,
                "provenance": {"format": "NeoRL-2 npz", "file": path.name},
            },
        )


def write_neorl2(path: str | os.PathLike[str], dataset: Dataset) -> Path:
    """Writes a dataset in the layout of NeoRL-2, completely or not at all.

    Args:
        path: The ``.npz`` file; an existing file is replaced.
        dataset: The dataset. Costs, mask, optional columns and the specification are stored in
            addition to the arrays of the format; :func:`neorl_envs.read_dataset` restores them.

    Returns:
        The path of the file.
    """
    path, rows = Path(path), dataset.transitions
    arrays: dict[str, Any] = {key: getattr(rows, key) for key in ("obs", "action", "next_obs")}
    arrays["reward"] = rows.reward
    arrays["done"], arrays["truncated"] = (
        np.asarray(flag, np.float32) for flag in (rows.terminated, rows.truncated)
    )
    arrays["index"] = dataset.episode_starts
    arrays |= extras_of(dataset)
    arrays[DESCRIPTION] = np.frombuffer(description_of(dataset).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path
