"""Files that are either complete or absent, and the first fields of every document in them."""

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from neorl_core._vocabulary.errors import InputError

# Writing files so that they are either complete or absent.


_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_FULL_TEXTS = ("no space left", "file too large", "disk quota exceeded", "errno = 27", "errno = 28")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path whose file replaces ``path`` when the block ends without an error.

    The old file stays until the new one is on the disk, and stays for good if the block raises. A
    reader sees the old file or the new one, never a part.

    Args:
        path: Destination; its folder exists.

    Yields:
        The temporary path, which does not exist yet; the block writes it.

    Raises:
        OSError: If the file cannot be flushed or renamed, or the block cannot write. The error
            names the destination, which then is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        # Windows flushes only descriptors opened for writing.
        descriptor = os.open(temporary, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        # Let the block's own error through, not one from clearing up after it.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and _is_of(error, temporary):
            error.filename = str(path)
        raise
    sync_folder(path.parent)


def _is_of(error: OSError, temporary: Path) -> bool:
    """Whether an error names the temporary file, or reports a full disk without naming a file."""
    if error.filename is None:  # a failed write, unlike a failed open, does not name its file
        return is_full_disk(error)
    return os.fspath(error.filename) == str(temporary)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file completely or not at all.

    Args:
        path: Destination; its folder exists.
        data: New content.

    Raises:
        OSError: If it cannot be written; the destination is then unchanged.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Like :func:`write_bytes`, with text as UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Like :func:`write_text`, for JSON; NaN and infinity, which JSON lacks, are errors."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable, if the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, reports that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if any(text in str(error).lower() for text in _FULL_TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False


# The first fields of every JSON document and file of neorl.


def head(kind: str, version: int) -> dict[str, Any]:
    """The first two fields of a document.

    Args:
        kind: Kind of document, in lower case: ``"run"`` gives the format ``"neorl-run"``.
        version: Version of the layout; a reader accepts one version.

    Returns:
        ``{"format": "neorl-<kind>", "version": version}``.

    Example:
        >>> from neorl_core.infrastructure import head
        >>> head("verdict", 1)
        {'format': 'neorl-verdict', 'version': 1}
    """
    return {"format": f"neorl-{kind}", "version": version}


def check_head(
    document: Any, kind: str, version: int, source: str, error: type[InputError] = InputError
) -> dict[str, Any]:
    """Checks the head of a document and returns its other fields.

    Args:
        document: The value that was read.
        kind: Expected kind of document, as for :func:`head`.
        version: The version that the caller supports.
        source: File or place it was read from, for the message.
        error: Class of the error.

    Returns:
        The fields without ``format`` and ``version``.

    Raises:
        InputError: If it is not an object, or has another format or version.

    Example:
        >>> from neorl_core.infrastructure import check_head
        >>> check_head({"format": "neorl-run", "version": 1, "id": 3}, "run", 1, "a.json")
        {'id': 3}
    """
    if not isinstance(document, Mapping):
        actual = type(document).__name__
        raise error(
            f"{source} holds a {actual}, expected a JSON object of format neorl-{kind}; "
            "is it the right file?"
        )
    expected = head(kind, version)
    if document.get("format") != expected["format"]:
        raise error(
            f"{source} has format {document.get('format')!r}, expected {expected['format']!r}; "
            "is it the right file?"
        )
    actual = document.get("version")
    if type(actual) is not int or actual != version:
        raise error(
            f"{source} has version {actual!r} of {expected['format']}, this version of neorl reads "
            f"{version}; read it with the version that wrote it, or write it again"
        )
    return {name: value for name, value in document.items() if name not in expected}
