"""One process at a time in a run directory, and who that is."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from neorl_train._errors import BadInputError
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import LOCK


@contextlib.contextmanager
def locked(run: RunDirectory) -> Iterator[None]:
    """Keeps a second process out of a run directory.

    Args:
        run: The directory.

    Raises:
        BadInputError: If another process holds it; its number is named.
    """
    with file_lock(run.path / LOCK, wait=False):
        yield


def holder(run: RunDirectory) -> str | None:
    """The process that works on a run at this moment, as its lock names it; ``None``: nobody.

    The record of a killed run says "running" for ever; its lock ended with the process.
    """
    try:
        descriptor = os.open(run.path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _named(descriptor: int) -> str:
    return os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"


@contextlib.contextmanager
def file_lock(path: Path, *, wait: bool) -> Iterator[None]:
    """Holds a lock that ends with the process, however that ends.

    Args:
        path: The file to lock; made where it is missing, and left there.
        wait: Wait for the present holder instead of refusing.

    Raises:
        BadInputError: If another process holds it and ``wait`` is false.
        OSError: If the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise BadInputError(
                f"{path.parent} is in use by process {_named(descriptor)}; wait for it or stop it"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
