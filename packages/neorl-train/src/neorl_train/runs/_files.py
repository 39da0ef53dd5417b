"""Files that are whole or not there."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neorl_train._errors import BadInputError

FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_FULL_TEXTS = ("no space left", "file too large", "disk quota exceeded", "errno = 27", "errno = 28")


def write_text(path: Path, text: str) -> None:
    """Writes a file all or nothing: what was there stays until the new text is on the disk.

    Args:
        path: Destination; its folder exists.
        text: Written as UTF-8.

    Raises:
        OSError: If it cannot be written; the destination is then as it was.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Like :func:`write_text`, with JSON that refuses what JSON cannot hold."""
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
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(text in str(error).lower() for text in _FULL_TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False


def require_room(folder: Path, size: int) -> None:
    """Fails before anything is written where ``size`` more bytes would not fit.

    Args:
        folder: Made where it is missing.
        size: In bytes.

    Raises:
        OSError: If the disk is full or the size is above the limit of the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trial = folder / ".room"
    with trial.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            if error.errno in FULL:
                raise
        finally:
            trial.unlink(missing_ok=True)


@contextlib.contextmanager
def one_line_when_full(what: str, advice: str) -> Iterator[None]:
    """Turns the errors of a full disk into one line.

    Args:
        what: What was being written, for example ``"checkpoint 4000 of iql"``.
        advice: What to do once there is room.

    Raises:
        BadInputError: In place of any error that means a full disk.
    """
    try:
        yield
    except Exception as error:
        if is_full_disk(error):
            raise BadInputError(
                f"no room to write {what}: free some space, then {advice}"
            ) from error
        raise
