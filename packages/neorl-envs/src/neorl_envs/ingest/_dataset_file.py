"""The dataset file of this project, among the other formats."""

from pathlib import Path

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import FORMAT, read_neorl_hdf5
from neorl_envs.datasets._hdf5 import attribute, is_hdf5, opened


class DatasetFileReader:
    """Reads what :func:`neorl_envs.write_dataset` wrote."""

    suffixes = (".h5", ".hdf5")

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether it is HDF5 that says so."""
        return is_hdf5(path, first_bytes, lambda file: attribute(file, "format") == FORMAT)

    def read(self, path: Path) -> Dataset:
        """The dataset, with its columns in memory and its content hash checked.

        Raises:
            DatasetError: If a column is missing, of another shape or dtype, or inconsistent.
        """
        with opened(path) as file:
            return read_neorl_hdf5(file, str(path), memory_map=False)

    def read_mapped(self, path: Path) -> Dataset:
        """The dataset, with its columns left on the disk and its content hash believed.

        Raises:
            DatasetError: As :meth:`read`, or if a column is chunked or compressed.
        """
        with opened(path) as file:
            return read_neorl_hdf5(file, str(path), memory_map=True)
