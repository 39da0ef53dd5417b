"""Allows one process at a time in a run directory, and identifies it."""

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
"""Seconds until a lock counts as held, because a process that only checks it holds it briefly."""


@contextlib.contextmanager
def locked(run: RunDirectory) -> Iterator[None]:
    """Excludes a second process from a run directory.

    Args:
        run: The directory.

    Raises:
        InputError: If another process holds the lock; the message gives its number.
    """
    with file_lock(run.path / LOCK):
        yield


def holder(run: RunDirectory) -> str | None:
    """The process that works on a run at this moment, according to its lock; ``None`` for nobody.

    The record of a killed run says "running" forever, but its lock ended with the process.

    Args:
        run: The directory; nothing is written to it.
    """
    try:
        descriptor = os.open(run.path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        # Two simultaneous checks may see each other's lock, so a held lock is checked twice.
        for pause in (0.0, 0.01):
            time.sleep(pause)
            if lock_descriptor(descriptor, blocking=False):
                unlock_descriptor(descriptor)
                return None
        return _process_of(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def file_lock(path: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Holds a lock that ends with the process, however that ends.

    Args:
        path: The file to lock; created if it is missing, and left in place. It contains the process
            number.
        patience: Seconds to wait for the present holder before refusing.

    Raises:
        InputError: If another process holds it for all that time.
        OSError: If the file cannot be opened, or the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _acquired(descriptor, patience):
            raise InputError(
                f"{path.parent} is in use by process {_process_of(descriptor)}; wait for it or "
                "stop it"
            )
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        # Windows keeps other processes from reading a locked first byte, so the number follows it.
        os.write(descriptor, f" {os.getpid()}\n".encode())
        try:
            yield
        finally:
            unlock_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _acquired(descriptor: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not lock_descriptor(descriptor, blocking=False):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _process_of(descriptor: int) -> str:
    os.lseek(descriptor, 1, os.SEEK_SET)
    return os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
