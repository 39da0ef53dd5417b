"""The manifest of a log in several files: what each file must hold, and what they are together."""

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
"""Bytes of a manifest."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of a log.

    Attributes:
        file: Its path, relative to the folder of the manifest.
        rows: Number of its rows.
        episodes: Number of its episodes.
        content_hash: That of the file.
    """

    file: str
    rows: int
    episodes: int
    content_hash: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The files of a log, in the order of its rows.

    Attributes:
        spec_hash: SHA-256 of the specification that all of them share.
        content_hash: That of the log as one dataset; empty while files are still to come.
        attributes: Those of the log as one dataset.
        shards: The files.
        request: What is being written, while files are still to come; else empty.
    """

    spec_hash: str
    content_hash: str
    shards: tuple[Shard, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    request: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(shard.rows for shard in self.shards)

    def paths(self, path: Path) -> list[Path]:
        """The files themselves.

        Args:
            path: Place of the manifest.
        """
        return [path.parent / shard.file for shard in self.shards]


def is_manifest(path: Path, first_bytes: bytes | None = None) -> bool:
    """Whether a file is a manifest; false for what cannot be opened.

    Args:
        path: The file.
        first_bytes: Its first bytes, where they are known.
    """
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
    """The manifest in a file; its shards are not looked at.

    Args:
        path: The file.
        complete: Whether one that is still being written is refused.

    Raises:
        DatasetError: If it cannot be read, is no manifest, names no file or one of them twice, or
            is still being written.
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
    """Writes a manifest completely or not at all.

    Raises:
        OSError: If the disk refuses.
    """
    write_json(path, {**head(KIND, VERSION), **Binder().plain(manifest)})


def relative_to(path: Path, file: Path) -> str:
    """The path of a file as a manifest names it.

    Args:
        path: Place of the manifest.
        file: The file.
    """
    return Path(os.path.relpath(file.absolute(), path.absolute().parent)).as_posix()


def spec_digest(spec: Spec) -> str:
    """SHA-256 of a specification, as it begins the content hash of a dataset."""
    text = json.dumps(plain_spec(spec), sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def refuse_duplicates(path: Path, manifest: Manifest) -> None:
    """Raises where a file, or the rows of one, are named twice.

    Raises:
        DatasetError: Naming it.
    """
    files: dict[str, str] = {}
    contents: dict[str, str] = {}
    for shard in manifest.shards:
        place = os.path.normpath(shard.file)
        if place in files:
            raise DatasetError(f"{path}: {shard.file} is named twice; name every shard once")
        if shard.content_hash in contents:
            raise DatasetError(
                f"{path}: {shard.file} holds the same rows as {contents[shard.content_hash]} "
                "(equal content hashes); name every shard once"
            )
        files[place] = contents[shard.content_hash] = shard.file


def _anything(hint: Any, value: Any, where: str) -> Any:
    return value if hint is Any else NotImplemented
