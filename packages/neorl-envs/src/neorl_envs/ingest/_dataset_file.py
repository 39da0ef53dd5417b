"""Reader of this project's own dataset file."""

from pathlib import Path

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import FORMAT, read_neorl_hdf5
from neorl_envs.datasets._hdf5 import attribute, is_hdf5, opened


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
        with opened(path) as file:
            return read_neorl_hdf5(file, str(path), memory_map=False)

    def read_mapped(self, path: Path) -> Dataset:
        """Maps a dataset with its columns on disk, trusting its stored content hash.

        Raises:
            DatasetError: See :meth:`read`; also if a column is chunked or compressed.
        """
        with opened(path) as file:
            return read_neorl_hdf5(file, str(path), memory_map=True)
