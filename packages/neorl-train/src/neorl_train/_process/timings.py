"""Time taken by the parts of a command, counted from the start of its process."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path

_IMPORTED = time.monotonic()

IMPORTS = "start of Python, imports"
"""Name of the first stage of every command."""
REST_OF_IMPORTS = "imports of the training code"
"""Name of the stage for the imports that follow the configuration."""


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
