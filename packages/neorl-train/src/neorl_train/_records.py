"""The truth of a run: one line of JSON for every block and every probe."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from neorl_train._errors import BadInputError
from neorl_train._files import write_text


class Records:
    """Appends lines to a file.

    Args:
        path: Made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, line: dict[str, Any]) -> None:
        """Appends one line; it reaches the disk with the next :meth:`sync`."""
        self._file.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")

    def sync(self) -> None:
        """Returns when all lines are on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Writes what is left and lets go of the file."""
        self._file.close()

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Drops all other lines, and a last one that was cut short."""
        self._file.close()
        kept = [line for line in read_records(self.path) if wanted(line)]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept)
        write_text(self.path, text)
        self._file = self.path.open("a", encoding="utf-8")


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, in order; a last line that was cut short is left out.

    Args:
        path: May be missing, which is an empty file.

    Yields:
        One dictionary for each line: ``kind`` (``"block"`` or ``"probe"``), ``algorithm``,
        ``seed``, ``step`` (critic gradient steps), ``time`` (seconds since 1970) and ``metrics``
        by name.

    Raises:
        BadInputError: If a line before the last one is damaged; it is numbered.
    """
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError
        except ValueError:
            raise BadInputError(
                f"{path}, line {number}: damaged; delete that line, or restore the file"
            ) from None
        yield value
