"""Safe reading of NumPy archives: names, types and sizes are checked before memory is allocated."""

import math
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._hdf5 import largest_declared

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
