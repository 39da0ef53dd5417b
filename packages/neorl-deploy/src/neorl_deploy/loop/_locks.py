"""Locks of this machine: one loop in a folder, and one that writes an actuator."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from neorl_deploy._errors import DeployError
from neorl_deploy.loop._tags import TagMap

SHARED = Path("/dev/shm")
"""A folder that all accounts share, and services with temporary folders of their own, too."""


@contextlib.contextmanager
def loop_lock(folder: Path) -> Iterator[None]:
    """Locks a folder for one loop for the lifetime of its process.

    Raises:
        DeployError: If another process holds the lock, or the folder cannot be written.
    """
    try:
        (folder / "orders").mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a+")
    except OSError as error:
        raise DeployError(f"cannot write to {folder}: {error.strerror}") from error
    with file:
        if not _take_lock(file):
            raise DeployError(
                f"another loop runs in {folder}; two on one plant would fight. End that one first"
            )
        with contextlib.suppress(OSError):  # only needed for a stop on a disk that fails later
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


def is_idle(folder: Path) -> bool:
    """Whether no process has locked a folder; false if the system cannot tell."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    path = folder / "lock"
    with path.open("r+" if os.access(path, os.W_OK) else "r") as file:
        return _take_lock(file)


class ActuatorLocks:
    """Locks on the tags that a loop writes directly, held while it writes to them.

    With a block, the plant grants one loop and shows its number. With direct writing, only the
    heartbeat tells that somebody else writes, and no tag says who. On one machine, these locks do:
    there is a file for each tag of each connection, in a folder that all accounts share. They say
    nothing of another machine, another container, or a server that is named by another address.

    Args:
        tags: The tag map.
        owner: What another loop is told, such as the folder of this one.
        shared: Folder of the files.
    """

    def __init__(self, tags: TagMap, owner: str, shared: Path | None = None) -> None:
        self._owner = f"{owner} (process {os.getpid()})"
        folder = shared or next(p for p in (SHARED, Path(tempfile.gettempdir())) if p.is_dir())
        place = _place(tags)
        self._paths = {
            output.tag: folder / f"neorl-{_digest([*place, output.tag])}.lock"
            for output in sorted(tags.outputs, key=lambda output: output.tag)
        }
        self._held: list[IO[str]] = []

    def take(self) -> str:
        """Takes every lock, or none.

        Returns:
            Who writes to which tag; empty if all locks are held now, or the system has none.
        """
        if self._held:
            return ""
        for tag, path in self._paths.items():
            try:
                file = _shared_file(path)
            except OSError:  # without the file, the heartbeat still detects a second loop
                continue
            if not _take_lock(file):
                with file:
                    other = " ".join(file.read(4096).split()) or "another loop"
                self.give()
                return f"{other} on this machine writes {tag} already: open or end that one first"
            self._held.append(file)
            with contextlib.suppress(OSError):
                file.truncate(0)
                file.write(self._owner)
                file.flush()
        return ""

    def give(self) -> None:
        """Gives all locks back."""
        while self._held:
            self._held.pop().close()


def _place(tags: TagMap) -> list[str]:
    """Where the tags of a connection are: as much of it as names a device, in one spelling."""
    address = tags.connection.get("address")
    if not isinstance(address, str):
        return [json.dumps(tags.connection, sort_keys=True, default=str)]
    named = re.sub(r"//(localhost|\[::1\])(?=[:/]|$)", "//127.0.0.1", address.lower())
    return [str(tags.connection["kind"]), named.rstrip("/"), str(tags.connection.get("unit", 1))]


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _shared_file(path: Path) -> IO[str]:
    """Opens a file that every account may lock; no link is followed."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        number = os.open(path, flags)
    except FileNotFoundError:
        number = os.open(path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):  # whatever the mask of this process
            os.chmod(path, 0o666)
    return os.fdopen(number, "r+")


def _take_lock(file: IO[str]) -> bool:
    """Whether this process now holds a lock file; true if the system has no such locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # the heartbeat still detects a second loop
        return True
    except OSError:
        return False
    return True
