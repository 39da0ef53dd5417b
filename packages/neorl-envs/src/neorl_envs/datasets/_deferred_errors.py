"""A file that HDF5 may write to without ever meeting an error of the disk."""

import io
import os
from pathlib import Path
from typing import Any


class DeferredErrorFile(io.RawIOBase):
    """Passes writes on to a new file until one fails, then swallows them and keeps the error.

    The HDF5 library can crash the process when a write fails while it closes a file (full disk,
    limit of the file size). It sees no failure here; :meth:`finish` raises the first one.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("x+b", buffering=0)
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves the position."""
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        """Reads; what was never written is zero."""
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
        """Makes the content durable.

        Raises:
            OSError: The first error of any write.
        """
        if self.error is not None:
            raise self.error
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()
