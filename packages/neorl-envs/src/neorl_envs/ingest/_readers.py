"""The known formats of recorded data, and the registration of further ones."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from neorl_core import InputError
from neorl_core.infrastructure import Registry
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.ingest._d4rl import D4RLReader
from neorl_envs.ingest._dataset_file import DatasetFileReader
from neorl_envs.ingest._minari import MinariReader
from neorl_envs.ingest._neorl2 import NeoRL2Reader
from neorl_envs.ingest._shards import ShardsReader


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


def _check_reader(name: str, reader: Any) -> None:
    """Raises unless a reader has all required members.

    Args:
        name: Name under which the reader is registered.
        reader: The object.

    Raises:
        TypeError: Naming the first missing member.
    """
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
