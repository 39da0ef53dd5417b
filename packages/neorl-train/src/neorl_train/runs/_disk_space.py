"""Free disk space: asked for ahead of a large write, and missed in one line."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from neorl_core.boundary import is_full_disk
from neorl_train._errors import BadInputError


def require_free_space(folder: Path, size: int) -> None:
    """Fails before anything is written where ``size`` more bytes would not fit.

    Args:
        folder: Made where it is missing.
        size: In bytes.

    Raises:
        OSError: If the disk is full or the size is above the limit of the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trial = folder / ".free-space"
    with trial.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            if is_full_disk(error):
                raise
        finally:
            trial.unlink(missing_ok=True)


@contextlib.contextmanager
def one_line_when_full(what: str, advice: str) -> Iterator[None]:
    """Turns the errors of a full disk into one line.

    Args:
        what: What was being written, for example ``"checkpoint 4000 of iql"``.
        advice: What to do once there is free space.

    Raises:
        BadInputError: In place of any error that means a full disk.
    """
    try:
        yield
    except Exception as error:
        if is_full_disk(error):
            raise BadInputError(
                f"no free disk space to write {what}: free some, then {advice}"
            ) from error
        raise
