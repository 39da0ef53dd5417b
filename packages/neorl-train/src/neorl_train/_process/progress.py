"""Continuous progress: a live bar on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

PLAIN_INTERVAL = 5.0
"""Seconds between two plain lines of the same stage."""


class Reporter:
    """Reports what is going on and how far it has progressed.

    Args:
        stream: Stream to write to; it gets a live bar if it is a terminal.
        quiet: Whether to print only what is passed to :meth:`print_line`.
        brief: Whether to print, besides that, only one line for each stage, when it ends.
    """

    def __init__(
        self, stream: TextIO | None = None, *, quiet: bool = False, brief: bool = False
    ) -> None:
        self._stream = stream or sys.stderr
        self._quiet, self._brief = quiet, brief
        self._live: Any = None
        self._task: Any = None
        self._name, self._unit, self._total = "", "", 0.0
        self._started = self._last_print = self._first_done = 0.0

    def print_line(self, line: str) -> None:
        """Prints one permanent line."""
        if self._live is not None:
            self._live.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            print(line, file=self._stream, flush=True)

    def note(self, line: str) -> None:
        """Prints one permanent line unless ``quiet`` or ``brief`` is set."""
        if not (self._quiet or self._brief):
            self.print_line(line)

    def stage(self, name: str, *, total: float = 0.0, done: float = 0.0, unit: str = "") -> None:
        """Begins a stage and ends the previous one.

        Args:
            name: Description of the stage.
            total: Amount of work; zero if unknown.
            done: Amount of work that is already done.
            unit: Unit of the speed, such as ``"updates/s"``.
        """
        self.end()
        self._name, self._unit, self._total = name, unit, total
        self._started = self._last_print = time.monotonic()
        self._first_done = done
        if self._quiet:
            return
        if self._stream.isatty():
            self._live = _live_bar(self._stream, known=total > 0)
            shown = _shorten(name, self._live.console.width // 3)
            self._task = self._live.add_task(shown, total=total or None, completed=done, text="")
            self._live.start()
        else:
            self.note(f"{name} ...")

    def update(self, done: float, text: str = "") -> None:
        """Reports the completed fraction of the stage, with a short remark."""
        if self._quiet:
            return
        now = time.monotonic()
        text = f"{self._pace(done, now)}  {text}".strip()
        if self._live is not None:
            width = _text_width(self._live)
            self._live.update(self._task, completed=done, text=_shorten(text, width))
        elif now - self._last_print >= PLAIN_INTERVAL:
            self._last_print = now
            percentage = f"{done / self._total:.0%}  " if self._total else ""
            self.note(f"{self._name}  {percentage}{text}")

    def end(self, text: str = "") -> None:
        """Ends the stage and reports how long it took."""
        if not self._name:
            return
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        name, self._name = self._name, ""
        if not self._quiet:
            seconds = time.monotonic() - self._started
            if self._brief:
                self.print_line(f"{seconds:6.1f} s  {name}")
            else:
                self.print_line(f"{name}  done in {seconds:.1f} s{'  ' if text else ''}{text}")

    def drop(self) -> None:
        """Ends the stage silently; an error message follows."""
        live, self._live, self._name = self._live, None, ""
        if live is not None:
            live.stop()

    def _pace(self, done: float, now: float) -> str:
        elapsed, progress = now - self._started, done - self._first_done
        if not self._total or elapsed <= 0 or progress <= 0:
            return ""
        rate = progress / elapsed
        seconds_left = max(self._total - done, 0) / rate
        shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        # The duration after the last step, such as that of an evaluation that compiles, is unknown.
        rest = f"{seconds_left:.0f} s left" if done < self._total else "finishing"
        return f"{shown} {self._unit}  {rest}"


@contextlib.contextmanager
def only_stage(name: str) -> Iterator[None]:
    """Context of a command's single long stage, which ends silently if it fails."""
    reporter = Reporter()
    reporter.stage(name)
    try:
        yield
    except BaseException:
        reporter.drop()
        raise
    reporter.end()


BAR, WIDE = 24, 100
"""Width of the bar, and the width of a terminal that has room for it."""
FIXED = len("x 100 % 0:00:00 ") + 1
"""Columns of the spinner, the percentage and the time, with the gaps between all columns."""


def _text_width(live: Any) -> int:
    """Columns that remain for the text, so that nothing in the line is cut or wrapped."""
    width = live.console.width
    bar = BAR + 1 if width >= WIDE else 0
    return max(width - FIXED - bar - len(live.tasks[0].description), 0)


def _shorten(text: str, width: int) -> str:
    """The words of a text that fit into this many columns, followed by an ellipsis."""
    if len(text) <= width:
        return text
    words = text[: max(width - 1, 0)]
    at_word_end = text[len(words) : len(words) + 1].isspace()
    whole = words if at_word_end else words.rpartition(" ")[0]
    return f"{whole.rstrip(' ,')}\N{HORIZONTAL ELLIPSIS}" if whole.strip() else ""


def _live_bar(stream: TextIO, *, known: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(file=stream)
    columns: list[Any] = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if known:
        columns += [BarColumn(bar_width=BAR)] * (console.width >= WIDE)
        columns.append(TextColumn("{task.percentage:>3.0f} %"))
    columns += [TimeElapsedColumn(), TextColumn("{task.fields[text]}", markup=False)]
    return Progress(*columns, console=console, transient=True, refresh_per_second=4)
