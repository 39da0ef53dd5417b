"""A file object that hides disk errors from HDF5 until writing has finished."""

import io
import os
from pathlib import Path
from typing import Any


class DeferredErrorFile(io.RawIOBase):
    """Writes to a new file until a write fails, then discards further writes and keeps the error.

    The HDF5 library can crash the process if a write fails while it closes a file (disk full, file
    size limit). This object hides the failure from it, and :meth:`finish` raises the first error.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("x+b", buffering=0)
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves the position."""
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        """Reads bytes; bytes that were never written are zero."""
        view = memoryview(buffer).cast("B")
        count = self._file.readinto(view) or 0
        view[count:] = bytes(len(view) - count)
        return len(view)

    def write(self, data: Any, /) -> int:
        """Writes all of ``data``, or keeps the error."""
        view = memoryview(data).cast("B")
        try:
            rest = view if self.error is None else view[:0]
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.error = error
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the length, or keeps the error."""
        try:
            if self.error is None:
                return self._file.truncate(size)
        except OSError as error:
            self.error = error
        return size or 0

    def finish(self) -> None:
        """Flushes the content to disk, and raises the first ``OSError`` of any write."""
        if self.error is not None:
            raise self.error
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()
