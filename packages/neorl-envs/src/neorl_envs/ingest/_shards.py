"""The manifest of a log in several files, among the other formats."""

from pathlib import Path

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._manifest import SUFFIX, is_manifest
from neorl_envs.datasets._shards import read_shards


class ShardsReader:
    """Reads what :func:`neorl_envs.datasets.write_shards` and ``write_manifest`` wrote."""

    suffixes = (SUFFIX,)

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether it is JSON that says so."""
        return is_manifest(path, first_bytes)

    def read(self, path: Path) -> Dataset:
        """The log of all files in memory, every content hash checked.

        Raises:
            DatasetError: If a file is missing, was changed, or does not belong to the others.
        """
        return read_shards(path, memory_map=False)

    def read_mapped(self, path: Path) -> Dataset:
        """The log of all files with its columns left on the disk, content hashes believed.

        Raises:
            DatasetError: As :meth:`read`, or if a column is chunked or compressed.
        """
        return read_shards(path, memory_map=True)
