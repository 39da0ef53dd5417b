"""Suppresses Orbax's output about failed writes, whose errors are raised to the waiting caller.

On a full disk, each of its threads logs a traceback and leaves callbacks to closed loops, which
Python prints at length: more than a thousand lines, below which the one helpful line is buried.
"""

import logging
import sys
import threading
from pathlib import Path
from types import TracebackType

CLOSED_LOOP = "Event loop is closed"

_lock = threading.Lock()
_writes = 0
_previous_hook = sys.excepthook


def begin_write() -> None:
    """Marks the beginning of a write; Orbax's output is suppressed until all writes have ended."""
    global _writes, _previous_hook
    with _lock:
        if not _writes:
            _previous_hook = sys.excepthook
            sys.excepthook = _unless_closed
            logging.getLogger("absl").addFilter(_unless_orbax)
        _writes += 1


def end_write() -> None:
    """Marks a successful end; after a failure the output stays off, as threads keep failing."""
    global _writes
    with _lock:
        _writes -= 1
        if not _writes:
            logging.getLogger("absl").removeFilter(_unless_orbax)
            if sys.excepthook is _unless_closed:
                sys.excepthook = _previous_hook


def _unless_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in Path(record.pathname).parts


def _unless_closed(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    if not (kind is RuntimeError and str(error) == CLOSED_LOOP):
        _previous_hook(kind, error, where)
