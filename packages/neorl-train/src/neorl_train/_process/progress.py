"""What a command says of its work: progress as a live bar or lines, timings, a profiler trace."""

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

_IMPORTED = time.monotonic()

IMPORTS = "start of Python, imports"
"""Name of the first stage of every command."""
REST_OF_IMPORTS = "imports of the training code"
"""Name of the stage for the imports that follow the configuration."""

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


def process_seconds() -> float:
    """Seconds since this process started, or since this module was imported if that is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    return time.monotonic() - _IMPORTED


@dataclasses.dataclass
class Timings:
    """Stages in the order in which they began, and individual moments.

    Attributes:
        stages: Name and seconds of every stage that ended.
        moments: Seconds after the start of the process, by name.
    """

    stages: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    moments: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def since_start(cls, name: str) -> "Timings":
        """Timings whose first stage is everything since the process started."""
        return cls([(name, process_seconds())])

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts the time of the context under ``name``."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.stages.append((name, time.monotonic() - started))

    def mark(self, name: str) -> None:
        """Notes the first time that something happened."""
        self.moments.setdefault(name, process_seconds())

    def to_dict(self) -> dict[str, object]:
        """The timings in seconds, ready for JSON."""
        return {
            "stages": [{"name": name, "seconds": round(s, 3)} for name, s in self.stages],
            "moments": {name: round(s, 3) for name, s in self.moments.items()},
        }

    def table(self) -> str:
        """The timings as a table, with one line for each stage and moment."""
        width = max([len(name) for name, _ in self.stages] + [len(n) for n in self.moments] + [8])
        lines = [f"{name:<{width}}  {seconds:8.2f} s" for name, seconds in self.stages]
        lines += [f"{name:<{width}}  {s:8.2f} s after start" for name, s in self.moments.items()]
        return "\n".join(lines)


CHUNKS = 1
"""Number of chunks of each learner in a trace, which also contains the beginning of the next."""


class Profile:
    """Traces the first chunks of every learner; does nothing if no folder is given.

    Args:
        folder: Folder for one trace per learner, by name.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._left = 0

    def begin(self, name: str) -> None:
        """Starts the trace before the first chunk of a learner."""
        if self._folder is None:
            return
        import jax

        self.end()
        options: Any = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # Python calls would make up most of the trace
        # Perfetto, which needs no installation, reads the second file.
        jax.profiler.start_trace(
            str(self._folder / name), create_perfetto_trace=True, profiler_options=options
        )
        self._left = CHUNKS

    def chunk(self) -> None:
        """Counts a finished chunk."""
        if self._left:
            self._left -= 1
            if not self._left:
                self._stop()

    def end(self) -> None:
        """Ends the trace when the training is over, however it ended."""
        if self._left:
            self._left = 0
            self._stop()

    def _stop(self) -> None:
        import jax

        jax.profiler.stop_trace()
