"""Location of the rows of a log in one or several files, for readers that read them in pieces."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from neorl_envs.datasets._file import DTYPES, map_checked_rows
from neorl_envs.datasets._hdf5 import open_hdf5
from neorl_envs.datasets._shards import stored_files

OPEN_FILES = 64
"""Largest number of files that a stream keeps open."""


class StoredRows(NamedTuple):
    """Some consecutive rows of a log in one file.

    Attributes:
        path: The file.
        first: Index of the first row.
        stop: One past the index of the last row.
        offsets: Byte offset at which each field begins.
    """

    path: Path
    first: int
    stop: int
    offsets: dict[str, int]


class OpenFiles:
    """The files of a stream, opened on first use; only a limited number stays open."""

    def __init__(self) -> None:
        self._descriptors: dict[Path, int] = {}

    def read(self, path: Path, n_bytes: int, offset: int) -> bytes:
        """Reads bytes of a file; fewer if the file ends."""
        if path not in self._descriptors:
            if len(self._descriptors) >= OPEN_FILES:
                oldest = next(iter(self._descriptors))
                os.close(self._descriptors.pop(oldest))
            self._descriptors[path] = os.open(path, os.O_RDONLY)
        return os.pread(self._descriptors[path], n_bytes, offset)

    def close(self) -> None:
        """Closes all files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}


def row_bytes(name: str, shape: tuple[int, ...]) -> int:
    """Size of one row of a field, bytes."""
    return int(np.prod(shape)) * np.dtype(DTYPES[name]).itemsize


def opened_rows(
    path: Path, fields: Sequence[str]
) -> tuple[np.ndarray, tuple[StoredRows, ...], dict[str, tuple[int, ...]]]:
    """Checks the files of a log and locates some of its fields.

    Returns the mask of all rows, their location, and the trailing shape of each field. Raises a
    ``DatasetError`` if a file cannot be read or mapped.
    """
    masks, files, row = [], [], 0
    shapes: dict[str, tuple[int, ...]] = {}
    for part in stored_files(path):
        masks.append(map_checked_rows(part))
        offsets = {}
        with open_hdf5(part) as file:
            for name in fields:
                column = file[name]
                assert isinstance(column, h5py.Dataset)
                offsets[name], shapes[name] = column.id.get_offset() or 0, column.shape[1:]
        files.append(StoredRows(part, row, row + len(masks[-1]), offsets))
        row = files[-1].stop
    return np.concatenate(masks), tuple(files), shapes
