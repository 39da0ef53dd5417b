"""One process at a time in a run directory, and who that is."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import lock_descriptor, unlock_descriptor

from neorl_core import InputError
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import LOCK

PATIENCE = 0.5
"""Seconds until a lock counts as held: whoever only asks who holds it has it for an instant."""


@contextlib.contextmanager
def locked(run: RunDirectory) -> Iterator[None]:
    """Keeps a second process out of a run directory.

    Args:
        run: The directory.

    Raises:
        InputError: If another process holds it; its number is named.
    """
    with file_lock(run.path / LOCK):
        yield


def holder(run: RunDirectory) -> str | None:
    """The process that works on a run at this moment, as its lock names it; ``None``: nobody.

    The record of a killed run says "running" for ever; its lock ended with the process.

    Args:
        run: The directory; nothing is written there.
    """
    try:
        descriptor = os.open(run.path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        # Two that ask at once may meet each other, so a held lock is asked twice.
        for pause in (0.0, 0.01):
            time.sleep(pause)
            if lock_descriptor(descriptor, blocking=False):
                unlock_descriptor(descriptor)
                return None
        return _named(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def file_lock(path: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Holds a lock that ends with the process, however that ends.

    Args:
        path: The file to lock; made where it is missing, and left there. It names the process.
        patience: Seconds to wait for the present holder before refusing.

    Raises:
        InputError: If another process holds it all that time.
        OSError: If the file cannot be opened, or the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _taken(descriptor, patience):
            raise InputError(
                f"{path.parent} is in use by process {_named(descriptor)}; wait for it or stop it"
            )
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        # Windows keeps others from reading the locked first byte, so that the number comes after.
        os.write(descriptor, f" {os.getpid()}\n".encode())
        try:
            yield
        finally:
            unlock_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, patience: float) -> bool:
    last = time.monotonic() + patience
    while not lock_descriptor(descriptor, blocking=False):
        if time.monotonic() > last:
            return False
        time.sleep(0.02)
    return True


def _named(descriptor: int) -> str:
    os.lseek(descriptor, 1, os.SEEK_SET)
    return os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
