"""The metrics of a run: one line of JSON for every chunk and every validation."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from neorl_core import InputError
from neorl_core.infrastructure import write_text


class Records:
    """Appends lines to a file.

    Args:
        path: File of the records; created if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, line: dict[str, Any]) -> None:
        """Appends one line; it reaches the disk with the next :meth:`sync`."""
        self._file.write(_text(line))

    def sync(self) -> None:
        """Returns when all lines are on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Writes the remaining lines and closes the file."""
        self._file.close()

    def keep(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Drops all other lines and a truncated last one, in a new file if there are any."""
        self._file.close()
        lines = [_text(line) for line in read_records(self.path) if condition(line)]
        if "".join(lines).encode() != self.path.read_bytes():
            write_text(self.path, "".join(lines))
        self._file = self.path.open("a", encoding="utf-8")


class RecordReader:
    """Reads the lines appended since the last call.

    Args:
        path: File of the records; a missing one counts as empty.

    Attributes:
        restarted: Whether the file was replaced, so that :meth:`new` began at its beginning; the
            caller resets it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._offset = 0, 0
        self.restarted = False

    def new(self) -> list[dict[str, Any]]:
        """The complete lines that are new since the last call.

        Raises:
            InputError: If one is damaged.
        """
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            number = os.fstat(file.fileno()).st_ino
            if number != self._file:
                self._file, self._offset = number, 0
                self.restarted = True
            file.seek(self._offset)
            complete, newline, _ = file.read().rpartition(b"\n")
            self._offset += len(complete) + len(newline)
        lines = complete.decode("utf-8", errors="replace").split("\n") if complete else []
        return list(_parse(self._path, lines))


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, in order; a truncated last line is left out.

    Args:
        path: File of the records; a missing one counts as empty.

    Yields:
        One dictionary for each line: ``kind`` (``"chunk"`` or ``"validation"``), ``algorithm``,
        ``seed``, ``step`` (critic gradient steps), ``time`` (seconds since 1970) and ``metrics``
        by name.

    Raises:
        InputError: If a line before the last one is damaged; the message gives its number.
    """
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    yield from _parse(path, text.split("\n")[:-1])


def _parse(path: Path, lines: list[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError
        except ValueError:
            raise InputError(
                f"{path}, line {number} is damaged; delete that line, or restore the file"
            ) from None
        yield value


def _text(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"
