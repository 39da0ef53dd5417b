"""Reads NumPy archives, checking sizes and types before allocating memory."""

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from neorl_deploy._errors import DeployError

UNPACKED_AT_MOST, UNPACKED_RATIO = 2**30, 100
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
REFUSALS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_archive(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """The named arrays of an ``.npz`` file.

    Raises:
        DeployError: If it is damaged, or an array is missing, does not contain real numbers, or
            declares more than the archive can contain.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            missing = [key for key in keys if key not in members]
            if missing:
                raise DeployError(
                    f"{path} has no {missing[0]!r} (it holds {sorted(members)}); expected the "
                    "arrays of NeoRL-2"
                )
            declared = sum(members[key].file_size for key in keys)
            if declared > max(UNPACKED_AT_MOST, UNPACKED_RATIO * path.stat().st_size):
                raise DeployError(
                    f"{path}: the archive declares {declared} bytes, far more than the file can "
                    "hold"
                )
            for key in keys:
                _require_numbers(path, key, archive, members[key])
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in keys}
    except DeployError:
        raise
    except REFUSALS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DeployError(f"{path} is a damaged archive: {reason}; copy it again") from error


def _require_numbers(
    path: Path, key: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo
) -> None:
    with archive.open(entry) as stream:
        shape, _, dtype = HEADERS[np.lib.format.read_magic(stream)](stream)
    if dtype.kind not in "biuf":
        raise DeployError(f"{path}: {key!r} holds {dtype}, expected real numbers")
    if math.prod(shape) * dtype.itemsize > entry.file_size:
        raise DeployError(f"{path}: {key!r} declares {shape} numbers and does not store them")
