"""Writes an audit log: appends and rotates, and a failure never damages existing records."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neorl_deploy.audit._chain import (
    HEAD,
    KIND,
    NAME,
    SEED,
    VERSION,
    AuditError,
    files_of,
    head_found,
    line_of,
    opening_of,
    records_of,
    removal_of,
)
from neorl_deploy.bundle._signature import Signer
from neorl_deploy.bundle._strict_json import dump_compact

LARGEST_FILE = 2**26
"""Bytes after which a new file is started."""

AS_BEFORE = 0
"""Keeps as many files as the log did before, under the same key."""


class AuditLog:
    """Appends records to a chain; one writer at a time (a loop locks its folder).

    Args:
        folder: Folder of the files; created if it is missing.
        opening: Additional entries of the first record of every file, such as the bundle's digest.
        largest: Bytes after which a new file is started.
        files: Number of files to keep; older ones are removed, and a record states this. ``None``
            keeps all, and :data:`AS_BEFORE` as many as the last file states.
        signer: Key that signs every removal of files; ``None`` signs none.

    Raises:
        AuditError: If the last file of the existing log was changed, or it cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        opening: Callable[[], dict[str, Any]],
        *,
        largest: int = LARGEST_FILE,
        files: int | None = None,
        signer: Signer | None = None,
    ) -> None:
        self._signer, self._key = signer, None if signer is None else signer.public_key
        self.folder, self._opening, self._largest, self._keep = folder, opening, largest, files
        self._head, self._n, self._number, self._torn = SEED, 0, 0, ""
        self._file = self._head_file = -1
        self._size = 0
        self._starts: dict[int, int] = {}
        self._standing: dict[str, dict[str, Any]] = {}
        self._found: dict[str, Any] | None = None
        self._void: dict[str, Any] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._resume()
            self._keep = self._keep or None
            flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            self._head_file = os.open(folder / HEAD, flags, 0o640)
            _mark_in_use(self._head_file)
            self._begin_file()
        except OSError as error:
            raise AuditError(f"cannot write the audit log {folder}: {error.strerror}") from error

    @property
    def head(self) -> str:
        """Hash of the last record."""
        return self._head

    @property
    def full(self) -> bool:
        """Whether the next record starts a new file."""
        return self._size > self._largest

    def standing(self, kind: str) -> dict[str, Any] | None:
        """The last standing record of a kind, written by this process or an earlier one."""
        return self._standing.get(kind)

    def append(
        self, record: dict[str, Any], *, durable: bool = False, standing: bool = False
    ) -> None:
        """Appends one record.

        Args:
            record: A JSON object; the field ``n`` is added.
            durable: Whether to wait until the record would survive a power failure.
            standing: Whether the record holds until the next one of its kind. It never starts a
                file, and every new file repeats it, so that rotation does not lose it.

        Raises:
            OSError: If it cannot be written; the log then contains no part of it.
        """
        if standing:
            record = {**record, "standing": True}
        elif self.full:
            self._begin_file()
        self._write({**record, "n": self._n}, durable=durable)
        if standing:
            self._standing[record["kind"]] = record

    def close(self) -> None:
        """Closes the files."""
        for handle in (self._file, self._head_file):
            if handle >= 0:
                os.close(handle)
        self._file = self._head_file = -1

    def _resume(self) -> None:
        """Continues the chain at its end; a record cut off by a crash is reported, not removed.

        Only the last file is read whole, and the files before it as long as a crash has kept a file
        from repeating what stands; :func:`verify_chain` checks the others.
        """
        if not any(NAME.fullmatch(path.name) for path in self.folder.iterdir()):
            return
        files = self._with_records(files_of(self.folder))
        if not files:
            self._found = head_found(self.folder, -1, SEED)
            return
        for path in files:
            opening = opening_of(path)
            self._starts[opening["file"]] = opening["n"]
        if self._keep == AS_BEFORE:
            self._keep = opening.get("keep")
            self._key = self._key or opening.get("removals_signed_by")
        count = 1
        while not self._read_end(files[-count:]) and count < len(files):
            count += 1
        self._number = int(files[-1].stem[-6:])
        self._found = head_found(self.folder, self._n - 1, self._head)

    def _with_records(self, files: list[Path]) -> list[Path]:
        """Removes a last file without any complete record, which the next file's opening states.

        A process that was killed as it began a file leaves one, and so does a power failure. No
        record is lost with it: had there been one, ``head.json`` names it, and that is stated too.
        """
        with files[-1].open("rb") as file:
            first = file.readline()
        if first.endswith(b"\n"):
            return files
        self._void = {"bytes": len(first), "sha256": hashlib.sha256(first).hexdigest()}
        self._number = int(files[-1].stem[-6:]) - 1
        files[-1].unlink()
        return files[:-1]

    def _read_end(self, files: list[Path]) -> bool:
        """Reads the last files; whether the first of them repeats all that stood at its start."""
        opening, repeated = {}, 0
        self._standing.clear()
        try:
            for record, digest in records_of(files):
                self._head, self._n = digest, record["n"] + 1
                opening = opening or record
                if record.get("standing"):
                    self._standing[record["kind"]] = record
                    repeated += record["n"] <= opening["n"] + opening.get("repeats", 0)
        except AuditError as error:
            tail = files[-1].read_bytes().rpartition(b"\n")[2]
            if not tail or "cut off" not in str(error):
                raise
            self._torn = hashlib.sha256(tail).hexdigest()
        return repeated == opening.get("repeats")

    def _begin_file(self) -> None:
        number = self._number + 1
        path = self.folder / f"audit-{number:06d}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(path, flags, 0o640)
        before = self._file, self._size
        self._file, self._size = handle, 0
        opening = {"kind": "file", "format": KIND, "version": VERSION, "file": number}
        opening |= {"before": self._head, "torn": self._torn, **self._opening(), "n": self._n}
        start = self._n
        opening |= {"keep": self._keep, "oldest": min(self._starts.values(), default=start)}
        opening |= {"removals_signed_by": self._key}
        opening |= {"repeats": len(self._standing), "head_found": self._found}
        if self._void is not None:
            opening |= {"replaces": self._void}
        try:
            self._write(opening, durable=True)
        except OSError:
            self._file, self._size = before
            os.close(handle)
            path.unlink()
            raise
        if before[0] >= 0:
            os.close(before[0])
        self._number, self._torn, self._starts[number] = number, "", start
        self._found = self._void = None
        for record in self._standing.values():
            self._write({**record, "n": self._n}, durable=True)
        self._forget()

    def _forget(self) -> None:
        if self._keep is None or (self._key is not None and self._signer is None):
            return  # what must be signed is left to a process that has the key
        old = sorted(self._starts)[: -self._keep]
        if not old:
            return
        kept = sorted(self._starts)[-self._keep]
        first = opening_of(self.folder / f"audit-{kept:06d}.jsonl")
        record = {"kind": "forgotten", "before": first["n"], "hash": first["before"]}
        if self._signer is not None:
            record["signature"] = self._signer.sign_removal(removal_of(record))
        record["n"] = self._n
        self._write(record, durable=True)  # recorded before the files are removed
        for number in old:
            (self.folder / f"audit-{number:06d}.jsonl").unlink(missing_ok=True)
            del self._starts[number]

    def _write(self, record: dict[str, Any], *, durable: bool) -> None:
        line, digest = line_of(self._head, record)
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(28, "no space left for a complete record")
            if durable:
                os.fsync(self._file)
        except OSError:
            # The next record must not continue a part of this one.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(line)
        self._head, self._n = digest, record["n"] + 1
        head = dump_compact({"n": record["n"], "hash": digest})
        os.pwrite(self._head_file, head, 0)
        os.ftruncate(self._head_file, len(head))
        if durable:
            os.fsync(self._head_file)


def _mark_in_use(head_file: int) -> None:
    """Locks the head for as long as it is open, so that a check knows that records may follow it.

    A check that looks for the lock holds it for an instant; without the mark, at worst a check
    reports a record behind the head.
    """
    with contextlib.suppress(ImportError):
        import fcntl

        for _ in range(10):
            with contextlib.suppress(OSError):
                fcntl.flock(head_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.01)
