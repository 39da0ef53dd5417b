"""The known formats of recorded data, and the registration of further ones."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from neorl_core import InputError
from neorl_core.infrastructure import Registry
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import FORMAT, read_neorl_hdf5
from neorl_envs.datasets._hdf5 import attribute, is_hdf5, open_hdf5
from neorl_envs.datasets._manifest import SUFFIX, is_manifest
from neorl_envs.datasets._shards import read_shards
from neorl_envs.ingest._d4rl import D4RLReader
from neorl_envs.ingest._minari import MinariReader
from neorl_envs.ingest._neorl2 import NeoRL2Reader


@runtime_checkable
class Reader(Protocol):
    """A reader of one format: an object, or a module, with these members.

    A reader may also have ``read_mapped(path)``, which leaves the columns on disk; without it, a
    file of the format cannot be mapped.
    """

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of file names, in lower case and with the dot, such as ``(".csv",)``.

        They mark a word on a command line as a file name; the format is recognised by content.
        """
        ...

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether a file has this format; must be fast, and false for a file it cannot open.

        Args:
            path: The file.
            first_bytes: First 8 bytes of the file.
        """
        ...

    def read(self, path: Path) -> Dataset:
        """Reads a file.

        Raises:
            DatasetError: In one line that names the file, and the expected and actual content.
        """
        ...


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
        with open_hdf5(path) as file:
            return read_neorl_hdf5(file, str(path), memory_map=False)

    def read_mapped(self, path: Path) -> Dataset:
        """Maps a dataset with its columns on disk, trusting its stored content hash."""
        with open_hdf5(path) as file:
            return read_neorl_hdf5(file, str(path), memory_map=True)


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
        """Maps all files with their columns on disk, trusting the stored content hashes."""
        return read_shards(path, memory_map=True)


def _check_reader(name: str, reader: Any) -> None:
    """Raises a ``TypeError`` that names the first required member that a reader lacks."""
    if isinstance(reader, type):
        raise TypeError(f"a reader is an object, got the class; give {reader.__name__}()")
    for member in ("recognises", "read"):
        if not callable(getattr(reader, member, None)):
            raise TypeError(f"a reader has suffixes, recognises and read; {member} is missing")
    suffixes = getattr(reader, "suffixes", None)
    if not isinstance(suffixes, tuple) or not all(
        isinstance(suffix, str) and suffix.startswith(".") for suffix in suffixes
    ):
        raise TypeError(f"suffixes must be a tuple of endings such as ('.csv',), got {suffixes!r}")


_KNOWN: dict[str, Reader] = {
    "neorl": DatasetFileReader(),
    "neorl2": NeoRL2Reader(),
    "d4rl": D4RLReader(),
    "minari": MinariReader(),
    "shards": ShardsReader(),
}
READERS = Registry("neorl.readers", "reader", _KNOWN, _check_reader)
"""Every reader by the name of its format, in the order in which they are tried on a file."""


def register_reader(name: str, reader: Reader) -> None:
    """Registers a format with :func:`neorl_envs.read_dataset` and the commands.

    A distribution declares its readers with an entry point instead::

        [project.entry-points."neorl.readers"]
        historian = "my_package.historian:READER"

    Args:
        name: Name of the format.
        reader: An object with ``suffixes``, ``recognises`` and ``read``; see :class:`Reader`.

    Raises:
        InputError: If the name is taken or a member is missing.
    """
    READERS.register(name, reader)


def log_suffixes() -> tuple[str, ...]:
    """Suffixes of log files of every format whose reader can be loaded.

    Example:
        >>> from neorl_envs.ingest import log_suffixes
        >>> log_suffixes()[:3]
        ('.h5', '.hdf5', '.npz')
    """
    endings: dict[str, None] = {}
    for name in READERS:
        try:
            endings |= dict.fromkeys(READERS.find(name).suffixes)
        except InputError:  # a broken distribution, which read_dataset names if it is needed
            continue
    return tuple(endings)
