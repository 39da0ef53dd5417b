"""The hash chain of an audit log: the layout of a record, and how changes are detected.

A line is ``HASH BODY``: 64 hexadecimal digits, a space, canonical JSON. ``HASH`` is the SHA-256 of
the previous hash and the body, so each hash depends on all earlier records. ``head.json`` beside
the files names the last record written, so that records missing at the end are detected.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from neorl_deploy._errors import BundleError, DeployError
from neorl_deploy.bundle._strict_json import dump_compact, parse_strict

KIND, VERSION = "neorl-audit", 1
SEED = hashlib.sha256(b"neorl-audit-v1").hexdigest()
"""Used in place of the previous hash for the first record."""
HEAD = "head.json"
NAME = re.compile(r"audit-(\d{6})\.jsonl")


class AuditError(DeployError):
    """The audit log was changed or is not one; the one-line message names file and record."""


class Chain(NamedTuple):
    """Summary of a verified log.

    Attributes:
        records: Number of its records.
        first: Number of its first record; above zero if rotation removed older files.
        head: Hash of the last record, which identifies the whole log. Keep a copy elsewhere.
        files: Its files, oldest first.
    """

    records: int
    first: int
    head: str
    files: tuple[Path, ...]


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


def verify_chain(folder: Path, *, head: str | None = None) -> Chain:
    """Checks every byte of a log.

    This detects any record or file that was changed, removed, added, swapped or truncated. A forger
    who rewrites the whole log is detected by a head that was noted elsewhere.

    Args:
        folder: The folder of the log.
        head: Hash of a record that the log must contain, as noted elsewhere.

    Returns:
        A summary of the log.

    Raises:
        AuditError: If anything differs from what was written.
    """
    first, count, forgotten, last = 0, 0, 0, SEED
    numbers: dict[str, int] = {}
    files = files_of(folder)
    for record, digest in records(folder):
        if not numbers:
            first = count = record["n"]
        if record["n"] != count:
            raise AuditError(f"{folder}: record {count} is missing, {record['n']} follows")
        if record["kind"] == "forgotten":
            forgotten = max(forgotten, record["before"])
        numbers[digest] = count
        last, count = digest, count + 1
    if first != forgotten:
        raise AuditError(
            f"{folder}: the records before {first} are missing, and no rotation is recorded"
        )
    _require_head(folder, numbers, count)
    if head is not None and head not in numbers:
        raise AuditError(f"{folder}: the record {head} that was noted is not in this log")
    return Chain(count - first, first, last, tuple(files))


def records(folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields every record with its hash, checked against the record before it.

    Args:
        folder: The folder of the log.

    Raises:
        AuditError: At the first record that breaks the chain.
    """
    before, torn = "", b""
    for path in files_of(folder):
        data = _read(path)
        lines = data.split(b"\n")
        tail, count = lines.pop(), 0
        for line in lines:
            count += 1
            record, digest = _parse_record(line, before, f"{path}, line {count}")
            if count == 1:
                _require_opening(record, path, before, torn)
            yield record, digest
            before = digest
        if count == 0:
            raise AuditError(f"{path}: it holds no complete record")
        torn = tail
    if torn:
        raise AuditError(f"{path}: the last record is cut off, by a crash or by a person")


def _require_opening(record: dict[str, Any], path: Path, before: str, torn: bytes) -> None:
    """Checks that a file's first record names the file and the last hash of the previous file."""
    if not before:
        before, torn = (SEED, b"") if record["n"] == 0 else (record["before"], torn)
    expected = {
        "kind": "file",
        "format": KIND,
        "version": VERSION,
        "file": int(path.stem[-6:]),
        "before": before,
    }
    odd = [name for name, value in expected.items() if record.get(name) != value]
    if odd:
        raise AuditError(
            f"{path}: its first record differs from the expected one in {', '.join(odd)}"
        )
    if record.get("torn") != (hashlib.sha256(torn).hexdigest() if torn else ""):
        raise AuditError(
            f"{path}: the previous file was changed or cut: its end does not match the first "
            "record of this file"
        )


def _parse_record(line: bytes, before: str, where: str) -> tuple[dict[str, Any], str]:
    digest, blank, body = line[:64].decode("ascii", "replace"), line[64:65], line[65:]
    if blank != b" " or not re.fullmatch("[0-9a-f]{64}", digest):
        raise AuditError(f"{where} is not a record")
    record = _json(body, where)
    if not isinstance(record, dict) or type(record.get("n")) is not int:
        raise AuditError(f"{where} is not a record")
    if not before:  # older files may have been removed
        before = record.get("before", "")
        if not isinstance(before, str) or not re.fullmatch("[0-9a-f]{64}", before):
            raise AuditError(f"{where}: it is not the first record of a file")
    if link(before, body) != digest:
        raise AuditError(f"{where} was changed, or does not follow the record before it")
    if dump_compact(record).rstrip(b"\n") != body:
        raise AuditError(f"{where} is not in the form of a record")
    return record, digest


def _require_head(folder: Path, numbers: dict[str, int], count: int) -> None:
    source = str(folder / HEAD)
    head = _json(_read(folder / HEAD), source)
    fits = (
        isinstance(head, dict)
        and set(head) == {"n", "hash"}
        and numbers.get(head["hash"]) == head["n"]
    )
    if not fits or _read(folder / HEAD) != dump_compact(head):
        raise AuditError(f"{source} names a record that is not in the log: some are missing")
    if not count - 2 <= head["n"] < count:  # a crash may lose the last head
        raise AuditError(
            f"{source} says that record {head['n']} is the last, but the log ends with record "
            f"{count - 1}"
        )


def _json(data: bytes, where: str) -> Any:
    try:
        return parse_strict(data, where)
    except BundleError as error:
        raise AuditError(str(error)) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AuditError(f"cannot read {path}: {error.strerror}") from error
