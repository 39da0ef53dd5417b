"""The state of a run's lock, which ends with the process that holds it."""

import os
from pathlib import Path

from neorl_deploy.training_run._names import LOCK


def holder(run: Path) -> str | None:
    """Identifies the process that is training or continuing a run.

    Returns:
        Its process number as written in the lock file, ``"unknown"`` if the file has none; ``None``
        if nobody holds the lock, or the system has no such locks.
    """
    try:
        import fcntl

        descriptor = os.open(run / LOCK, os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None
