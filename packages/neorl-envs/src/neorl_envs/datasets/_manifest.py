"""The manifest of a log in several files: the content of each file and of the whole log."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neorl_core import InputError, Spec
from neorl_core.infrastructure import Binder, check_head, head, write_json
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._specification import plain_spec

KIND, VERSION = "shards", 1
FORMAT = head(KIND, VERSION)["format"]
SUFFIX = ".shards.json"
LARGEST = 2**28
"""Largest size of a manifest, bytes."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of a log.

    Attributes:
        file: Path relative to the folder of the manifest.
        rows: Number of rows.
        episodes: Number of episodes.
        content_hash: Content hash of the file.
    """

    file: str
    rows: int
    episodes: int
    content_hash: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The files of a log, in the order of its rows.

    Attributes:
        spec_hash: SHA-256 of the specification, which all files share.
        content_hash: Content hash of the log as one dataset; empty until all files are written.
        attributes: Attributes of the log as one dataset.
        shards: The files.
        request: Description of the log being written; empty once all files are written.
    """

    spec_hash: str
    content_hash: str
    shards: tuple[Shard, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    request: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Total number of rows of all files."""
        return sum(shard.rows for shard in self.shards)

    def paths(self, path: Path) -> list[Path]:
        """The paths of the files, given that of the manifest."""
        return [path.parent / shard.file for shard in self.shards]


def is_manifest(path: Path, first_bytes: bytes | None = None) -> bool:
    """Whether a file is a manifest; false if it cannot be opened."""
    try:
        if first_bytes is None:
            with path.open("rb") as file:
                first_bytes = file.read(8)
        if not first_bytes.lstrip().startswith(b"{"):
            return False
        with path.open("rb") as file:
            return f'"{FORMAT}"'.encode() in file.read(512)
    except OSError:
        return False


def read_manifest(path: Path, *, complete: bool = True) -> Manifest:
    """Reads a manifest; its shards are not opened.

    ``complete`` refuses one whose files are still being written. Raises a ``DatasetError`` if the
    file cannot be read or is not a manifest, if it lists no file or one file twice, or if it is
    refused as incomplete.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise DatasetError(f"{path}: a manifest has at most {LARGEST} bytes")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(f"{path}: cannot read the manifest: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"{path}: expected a manifest as JSON, got something else ({error}); write it again "
            "with `neorl-envs shard`"
        ) from error
    fields = check_head(document, KIND, VERSION, str(path), DatasetError)
    try:
        manifest = Binder(special=_anything).bound(Manifest, fields)
    except InputError as error:
        raise DatasetError(f"{path}: {error}") from error
    if complete and manifest.request:
        raise DatasetError(
            f"{path}: the log is not complete: {manifest.rows} rows in {len(manifest.shards)} "
            "files so far; run the command that began it again, and it goes on from there"
        )
    if complete and not manifest.shards:
        raise DatasetError(f"{path}: the manifest names no file; expected at least one shard")
    refuse_duplicates(path, manifest)
    return manifest


def save_manifest(path: Path, manifest: Manifest) -> None:
    """Writes a manifest completely or not at all; an ``OSError`` if the file cannot be written."""
    write_json(path, {**head(KIND, VERSION), **Binder().plain(manifest)})


def relative_to(path: Path, file: Path) -> str:
    """The path of a file relative to the folder of a manifest."""
    return Path(os.path.relpath(file.absolute(), path.absolute().parent)).as_posix()


def spec_digest(spec: Spec) -> str:
    """SHA-256 of a specification, with which the content hash of a dataset begins."""
    text = json.dumps(plain_spec(spec), sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def refuse_duplicates(path: Path, manifest: Manifest) -> None:
    """Raises a ``DatasetError`` if a file, or one with the same content, is listed twice."""
    files: dict[str, str] = {}
    contents: dict[str, str] = {}
    for shard in manifest.shards:
        normalised_path = os.path.normpath(shard.file)
        if normalised_path in files:
            raise DatasetError(f"{path}: {shard.file} is named twice; name every shard once")
        if shard.content_hash in contents:
            raise DatasetError(
                f"{path}: {shard.file} holds the same rows as {contents[shard.content_hash]} "
                "(equal content hashes); name every shard once"
            )
        files[normalised_path] = contents[shard.content_hash] = shard.file


def _anything(hint: Any, value: Any, where: str) -> Any:
    return value if hint is Any else NotImplemented
