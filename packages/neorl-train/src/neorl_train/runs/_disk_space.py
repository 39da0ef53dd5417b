"""Free disk space: checked before a large write, and reported in one line when it runs out."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure import is_full_disk


def require_free_space(folder: Path, size: int) -> None:
    """Fails before anything is written if ``size`` more bytes would not fit.

    Raises:
        OSError: If the disk is full or the size is above the process's limit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is None:  # Windows, macOS
        if shutil.disk_usage(folder).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        return
    probe = folder / ".free-space"
    with probe.open("wb") as file:
        try:
            # Checking only free blocks would not suffice: quotas and process limits apply too.
            allocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            if is_full_disk(error):
                raise
        finally:
            probe.unlink(missing_ok=True)


@contextlib.contextmanager
def one_line_when_full(what: str, advice: str) -> Iterator[None]:
    """Turns the errors of a full disk into one line, which names the file if it is known.

    Args:
        what: Name of what was being written, for example ``"checkpoint 4000 of iql"``.
        advice: What to do once there is free space.
    """
    try:
        yield
    except Exception as error:
        if is_full_disk(error):
            file = getattr(error, "filename", None)
            which = "" if file is None else f" ({file})"
            raise InputError(
                f"no free disk space to write {what}{which}; free some space, then {advice}"
            ) from error
        raise
