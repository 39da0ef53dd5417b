"""What Orbax prints of a write that failed, kept back: the error is raised to whoever waits for it.

On a full disk its threads log a traceback each and leave callbacks to loops that are closed, which
Python prints at length: more than a thousand lines, with the one that helps beneath them.
"""

import logging
import sys
import threading
from pathlib import Path
from types import TracebackType

CLOSED_LOOP = "Event loop is closed"

_lock = threading.Lock()
_writes = 0
_printed = sys.excepthook


def begin_write() -> None:
    """A write begins; until as many have ended, Orbax is kept from printing."""
    global _writes, _printed
    with _lock:
        if not _writes:
            _printed = sys.excepthook
            sys.excepthook = _unless_closed
            logging.getLogger("absl").addFilter(_unless_orbax)
        _writes += 1


def end_write() -> None:
    """A write ended well; where one failed, its threads go on failing, so silence stays."""
    global _writes
    with _lock:
        _writes -= 1
        if not _writes:
            logging.getLogger("absl").removeFilter(_unless_orbax)
            if sys.excepthook is _unless_closed:
                sys.excepthook = _printed


def _unless_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in Path(record.pathname).parts


def _unless_closed(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    if not (kind is RuntimeError and str(error) == CLOSED_LOOP):
        _printed(kind, error, where)
