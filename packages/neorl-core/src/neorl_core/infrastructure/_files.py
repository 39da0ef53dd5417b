"""Files that are complete or not there."""

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_FULL_TEXTS = ("no space left", "file too large", "disk quota exceeded", "errno = 27", "errno = 28")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place when the block ends well.

    What was there stays until the new file is on the disk, and stays for good if the block
    raises. A reader sees the old file or the new one, never a part.

    Args:
        path: Destination; its folder exists.

    Yields:
        The temporary path, which does not exist yet; the block writes it.

    Raises:
        OSError: If it cannot be flushed or renamed, or the block cannot write; it names the
            destination, which is then as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        # Windows flushes only descriptors that may write.
        descriptor = os.open(temporary, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        # The error of the block counts, not that of clearing up after it.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and _is_of(error, temporary):
            error.filename = str(path)
        raise
    sync_folder(path.parent)


def _is_of(error: OSError, temporary: Path) -> bool:
    """Whether an error names the temporary file, or is that of a full disk and names none."""
    if error.filename is None:  # a failed write, unlike a failed open, does not name its file
        return is_full_disk(error)
    return os.fspath(error.filename) == str(temporary)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file completely or not at all.

    Args:
        path: Destination; its folder exists.
        data: Its new content.

    Raises:
        OSError: If it cannot be written; the destination is then as it was.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Like :func:`write_bytes`, with text as UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Like :func:`write_text`, with JSON that refuses what JSON cannot hold (NaN, infinity)."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Makes names in a folder durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, says that nothing more can be written."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if any(text in str(error).lower() for text in _FULL_TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False
