"""Handles Ctrl-C and SIGTERM: immediately if safe, at the end of the chunk in training."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from neorl_train._errors import InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Turns signals into :class:`InterruptedRunError`: immediately, or on request in :meth:`later`.

    A context manager; outside the main thread it does nothing.

    Args:
        say: Called with one line if a signal was received but is handled later.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._later = False
        self._before: dict[int, Any] = {}
        self.number: int | None = None

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heed) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def later(self) -> Iterator[None]:
        """In this context, a first signal only sets :attr:`number`; a second stops immediately."""
        self._later = True
        try:
            yield
        finally:
            self._later = False

    def requested(self) -> bool:
        """Whether a signal was received."""
        return self.number is not None

    def check(self) -> None:
        """Raises :class:`InterruptedRunError` if a signal was received."""
        if self.number is not None:
            raise InterruptedRunError(self.number)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._later and self.number is None:
            self.number = number
            self._say("stopping at the end of this chunk; once more to stop at once")
            return
        raise InterruptedRunError(number)
