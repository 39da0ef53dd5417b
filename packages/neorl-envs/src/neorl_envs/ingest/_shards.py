"""Reader of the manifest of a log in several files."""

from pathlib import Path

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._manifest import SUFFIX, is_manifest
from neorl_envs.datasets._shards import read_shards


class ShardsReader:
    """Reads logs written by :func:`neorl_envs.datasets.write_shards` or ``write_manifest``."""

    suffixes = (SUFFIX,)

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether the file is JSON and marked as a manifest."""
        return is_manifest(path, first_bytes)

    def read(self, path: Path) -> Dataset:
        """Reads all files into memory and checks every content hash.

        Raises:
            DatasetError: If a file is missing, was changed, or does not match the other files.
        """
        return read_shards(path, memory_map=False)

    def read_mapped(self, path: Path) -> Dataset:
        """Maps all files with their columns on disk, trusting the stored content hashes.

        Raises:
            DatasetError: See :meth:`read`; also if a column is chunked or compressed.
        """
        return read_shards(path, memory_map=True)
