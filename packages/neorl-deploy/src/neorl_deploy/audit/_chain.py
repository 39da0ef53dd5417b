"""The hash chain of an audit log: the layout of a record, and how changes are detected.

A line is ``HASH BODY``: 64 hexadecimal digits, a space, canonical JSON. ``HASH`` is the SHA-256 of
the previous hash and the body, so each hash depends on all earlier records. ``head.json`` beside
the files names the last record written, so that records missing at the end are detected. The first
record of a file also states how many files are kept and which record was then the oldest, so that
nobody can claim afterwards that rotation removed what was deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from neorl_deploy._errors import BundleError, DeployError
from neorl_deploy.bundle._signature import is_signed_removal
from neorl_deploy.bundle._strict_json import dump_compact, parse_strict

KIND, VERSION = "neorl-audit", 1
SEED = hashlib.sha256(b"neorl-audit-v1").hexdigest()
"""Used in place of the previous hash for the first record."""
HEAD = "head.json"
NAME = re.compile(r"audit-(\d{6})\.jsonl")
ROTATIONS = 10
"""Times that a log in use is read anew because its writer has removed a file or writes the head."""


KILLED = (
    "a process was killed as it began this file, or a person emptied it: the next start of the "
    "loop replaces it and records this"
)


class AuditError(DeployError):
    """The audit log was changed or is not one; the one-line message names file and record."""


class _AbsentError(AuditError):
    """A file is not there, which may be the rotation of a log in use."""


class Chain(NamedTuple):
    """Summary of a verified log.

    Attributes:
        records: Number of its records.
        first: Number of its first record; above zero if rotation removed older files.
        head: Hash of the last record, which identifies the whole log. Keep a copy elsewhere.
        files: Its files, oldest first.
        in_use: Whether a loop writes to it now; then it is good up to ``head``.
    """

    records: int
    first: int
    head: str
    files: tuple[Path, ...]
    in_use: bool = False


def link(before: str, body: bytes) -> str:
    """The hash of a record: of its canonical JSON and the hash of the record before it."""
    return hashlib.sha256(bytes.fromhex(before) + body).hexdigest()


def line_of(before: str, record: dict[str, Any]) -> tuple[bytes, str]:
    """A record as a line, with its hash."""
    body = dump_compact(record).rstrip(b"\n")
    digest = link(before, body)
    return digest.encode() + b" " + body + b"\n", digest


def files_of(folder: Path) -> list[Path]:
    """The files of a log, oldest first.

    Raises:
        AuditError: If there are none, or one in the sequence is missing.
    """
    try:
        numbers = {int(m[1]): p for p in folder.iterdir() if (m := NAME.fullmatch(p.name))}
    except OSError as error:
        raise AuditError(f"cannot read the audit log {folder}: {error.strerror}") from error
    if not numbers:
        raise AuditError(f"{folder} holds no audit log")
    for number in range(min(numbers), max(numbers)):
        if number not in numbers:
            raise AuditError(f"{folder}: the file audit-{number:06d}.jsonl is missing")
    return [numbers[number] for number in sorted(numbers)]


def verify_chain(folder: Path, *, head: str | None = None, trusted_key: str | None = None) -> Chain:
    """Checks every byte of a log, also while a loop writes to it.

    This detects any record or file that was changed, removed, added, swapped or truncated. A forger
    who rewrites the whole log is detected by a head that was noted elsewhere. So is one who deletes
    old files and claims that rotation did: only a rotation that was stated before the noted record
    may have removed files.

    Records of periods are not parsed here, because their hash covers every byte of them;
    :func:`records` parses them.

    Args:
        folder: The folder of the log.
        head: Hash of a record that the log must contain, as noted elsewhere.
        trusted_key: Hexadecimal public key that must have signed every removal of files. With
            ``None``, what was removed after the noted record must be signed by the key, if any,
            that the file of that record states.

    Returns:
        A summary of the log.

    Raises:
        AuditError: If anything differs from what was written.
    """
    for _ in range(ROTATIONS - 1):
        in_use = is_in_use(folder)
        try:
            return _verify(folder, head, trusted_key, in_use=in_use)
        except _AbsentError:  # perhaps removed by the rotation of the loop that writes
            if not in_use:
                raise
    return _verify(folder, head, trusted_key, in_use=is_in_use(folder))


def _verify(folder: Path, noted: str | None, trusted_key: str | None, *, in_use: bool) -> Chain:
    files_of(folder)  # what holds no log is told as such
    # The head before the records: whatever a loop appends in the meantime then follows it.
    named = _head(folder, in_use=in_use)
    files = files_of(folder)
    walk, found, rule, last = _Walk(), "", None, SEED
    for body, last, where in _links(files, in_use=in_use):
        walk.take(body, where)
        if walk.n == named["n"]:
            found = last
        if last == noted:
            rule = walk.opening
    if walk.first > walk.forgotten:  # a removal is recorded before it takes place
        raise _AbsentError(
            f"{folder}: the records before {walk.first} are missing, and no rotation is recorded"
        )
    if found != named["hash"]:
        raise AuditError(f"{folder / HEAD} names a record that is not in the log: some are missing")
    key = trusted_key
    if noted is not None:
        key = key or _stated_key(folder, noted, rule, walk.first)
    _require_removal(folder, walk, key)
    if named["n"] != walk.n and not in_use:
        in_use = _head(folder, in_use=True) != named  # where the system has no locks
        if not in_use:
            raise AuditError(
                f"{folder / HEAD} says that record {named['n']} is the last, but the log ends with "
                f"record {walk.n}: what follows was left by a crash, or added by a person"
            )
    return Chain(walk.n + 1 - walk.first, walk.first, last, tuple(files), in_use)


class _Walk:
    """What a check knows while it reads a log.

    Attributes:
        first: Number of the first record.
        n: Number of the last record read.
        forgotten: Number before which rotation has removed the records.
        anchor: Hash before the first record.
        removals: The records of removals that include all before the first.
        opening: The first record of the file that is read.
    """

    def __init__(self) -> None:
        self.first = self.n = -1
        self.forgotten, self.anchor = 0, SEED
        self.removals: list[dict[str, Any]] = []
        self.opening: dict[str, Any] = {}

    def take(self, body: bytes, where: str) -> None:
        """Checks the number of one more record, and parses it if it is not that of a period."""
        self.n += 1
        if b'"kind":"cycle"' not in body:  # a quotation mark inside a text has a backslash
            record = _parsed(body, where)
            if self.first < 0:
                self.first, self.anchor = record["n"], record["before"]
                self.n = self.first
            if record["kind"] == "file":
                self.opening = record
            elif record["kind"] == "forgotten":
                self.forgotten = max(self.forgotten, record["before"])
                if record["before"] >= self.first:
                    self.removals.append(record)
                if self.opening.get("keep", 0) is None:
                    raise AuditError(
                        f"{where} says that files were removed, but its file states that all are "
                        "kept"
                    )
        if b'"n":%d,' % self.n not in body and b'"n":%d}' % self.n not in body:
            raise AuditError(f"{where}: record {self.n} is missing, another one follows")


def removal_of(record: dict[str, Any]) -> bytes:
    """What is signed of a removal: the first record that is kept, and the hash before it."""
    return dump_compact({"before": record["before"], "hash": record["hash"]})


def _require_removal(folder: Path, walk: _Walk, key: str | None) -> None:
    """Requires that the first record follows what a removal names, and the key's signature."""
    # A removal of more than is missing may still be under way.
    fitting = [
        one
        for one in walk.removals
        if one["before"] > walk.first or one.get("hash", walk.anchor) == walk.anchor
    ]
    if key is not None:
        fitting = [
            one
            for one in fitting
            if "hash" in one and is_signed_removal(key, one.get("signature"), removal_of(one))
        ]
    if walk.first == 0:
        return
    if not fitting:
        by = "" if key is None else f", signed by {key}"
        raise AuditError(
            f"{folder}: the records before {walk.first} are missing, and no removal that fits"
            f"{by} is recorded"
        )


def _stated_key(folder: Path, noted: str, rule: dict[str, Any] | None, first: int) -> str | None:
    """The key that must have signed what was removed after a noted record, as its file states.

    Raises:
        AuditError: If the record is not there, or its file states that no file is removed.
    """
    if rule is None:
        raise AuditError(f"{folder}: the record {noted} that was noted is not in this log")
    if first > rule.get("oldest", first) and rule["keep"] is None:
        raise AuditError(
            f"{folder}: the records from {rule['oldest']} to {first - 1} are missing, which were "
            "there when the noted record was written and were to be kept"
        )
    return rule.get("removals_signed_by") if first > rule.get("oldest", first) else None


def records(folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields every record with its hash, checked against the record before it.

    Args:
        folder: The folder of the log.

    Raises:
        AuditError: At the first record that breaks the chain.
    """
    in_use = is_in_use(folder)
    return records_of(files_of(folder), in_use=in_use)


def records_of(
    files: Sequence[Path], *, in_use: bool = False
) -> Iterator[tuple[dict[str, Any], str]]:
    """As :func:`records`, for consecutive files."""
    for body, digest, where in _links(files, in_use=in_use):
        yield _parsed(body, where), digest


def opening_of(path: Path) -> dict[str, Any]:
    """The first record of a file; its hash is not checked."""
    with _opened(path) as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        raise AuditError(f"{path}: it holds no complete record")
    _require_form(line, f"{path}, line 1")
    record = _parsed(line[65:-1], f"{path}, line 1")
    if type(record.get("file")) is not int:
        raise AuditError(f"{path}, line 1: it is not the first record of a file")
    return record


def head_found(folder: Path, n: int, digest: str) -> dict[str, Any] | None:
    """What ``head.json`` says if it does not name the last record; empty if it cannot be read."""
    try:
        head = _head(folder, in_use=False)
    except AuditError:
        return {}
    return None if head == {"n": n, "hash": digest} else head


def is_in_use(folder: Path) -> bool:
    """Whether a process writes to a log; false where the system has no locks."""
    try:
        import fcntl

        with (folder / HEAD).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # what cannot be read is reported by the check itself
        return False
    return False


def _links(files: Sequence[Path], *, in_use: bool) -> Iterator[tuple[bytes, str, str]]:
    """The body, the hash and the place of every record, checked against the record before it.

    Of a log in use, the last record may be incomplete.
    """
    before, torn = b"", b""
    for path in files:
        tail, count = b"", 0
        with _opened(path) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    tail = line
                    break
                count += 1
                body = line[65:-1]
                if count == 1:
                    _require_form(line, f"{path}, line 1")
                    before = _opened_after(body, path, before, torn)
                link = hashlib.sha256(before + body)
                digest = link.hexdigest()
                if line[:65] != b"%b " % digest.encode():
                    _require_form(line, f"{path}, line {count}")
                    raise AuditError(
                        f"{path}, line {count} was changed, or does not follow the record before it"
                    )
                before = link.digest()
                yield body, digest, f"{path}, line {count}"
        if count == 0 and not (in_use and path == files[-1]):
            left = "" if path != files[-1] else f"; {KILLED}"
            raise AuditError(f"{path}: it holds no complete record{left}")
        torn = tail
    if torn and not in_use:
        raise AuditError(f"{files[-1]}: the last record is cut off, by a crash or by a person")


def _opened_after(body: bytes, path: Path, before: bytes, torn: bytes) -> bytes:
    """The hash before a file's first record, which names the file and the end of the one before."""
    record = _parsed(body, f"{path}, line 1")
    named = record.get("before", "")
    if not isinstance(named, str) or not re.fullmatch("[0-9a-f]{64}", named):
        raise AuditError(f"{path}, line 1: it is not the first record of a file")
    oldest = not before  # older files may have been removed
    if oldest:
        before = bytes.fromhex(SEED if record["n"] == 0 else named)
    expected = {
        "kind": "file",
        "format": KIND,
        "version": VERSION,
        "file": int(path.stem[-6:]),
        "before": before.hex(),
    }
    odd = [name for name, value in expected.items() if record.get(name) != value]
    if odd:
        raise AuditError(
            f"{path}: its first record differs from the expected one in {', '.join(odd)}"
        )
    unknown = oldest and record["n"] > 0
    if not unknown and record.get("torn") != (hashlib.sha256(torn).hexdigest() if torn else ""):
        raise AuditError(
            f"{path}: the previous file was changed or cut: its end does not match the first "
            "record of this file"
        )
    return before


def _require_form(line: bytes, where: str) -> None:
    if not re.fullmatch(b"[0-9a-f]{64} ", line[:65]):
        raise AuditError(f"{where} is not a record")


def _parsed(body: bytes, where: str) -> dict[str, Any]:
    record = _json(body, where)
    if not isinstance(record, dict) or type(record.get("n")) is not int or "kind" not in record:
        raise AuditError(f"{where} is not a record")
    if dump_compact(record).rstrip(b"\n") != body:
        raise AuditError(f"{where} is not in the form of a record")
    return record


def _head(folder: Path, *, in_use: bool) -> dict[str, Any]:
    """What ``head.json`` says; read again if a writer may be in the middle of it."""
    path = folder / HEAD
    for _ in range(ROTATIONS if in_use else 1):
        data = _read(path)
        with contextlib.suppress(AuditError):
            head = _json(data, str(path))
            if isinstance(head, dict) and set(head) == {"n", "hash"} and dump_compact(head) == data:
                return head
    raise AuditError(f"{path} does not name a record; was it changed or cut?")


def _json(data: bytes, where: str) -> Any:
    try:
        return parse_strict(data, where)
    except BundleError as error:
        raise AuditError(str(error)) from error


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise _AbsentError(f"cannot read {path}: {error.strerror}") from error
    except OSError as error:
        raise AuditError(f"cannot read {path}: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AuditError(f"cannot read {path}: {error.strerror}") from error
