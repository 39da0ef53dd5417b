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
        print_line: Called with one line if a signal was received but is handled later.
    """

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line
        self._later = False
        self._before: dict[int, Any] = {}
        self.number: int | None = None

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
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

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._later and self.number is None:
            self.number = number
            self._print_line(
                "stopping at the end of this chunk; send the signal once more to stop immediately"
            )
            return
        raise InterruptedRunError(number)
