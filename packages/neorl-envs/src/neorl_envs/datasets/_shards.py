"""Logs stored in several dataset files, which are read like a single one."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core import InputError, Spec, Transition
from neorl_core.infrastructure import Binder, check_head, head, write_json
from neorl_envs.datasets._checks import DatasetError, JoinedColumn, plain_spec
from neorl_envs.datasets._dataset import NAMED, OPTIONAL, Dataset, content_digest
from neorl_envs.datasets._file import (
    map_unchecked,
    open_hdf5,
    read_neorl_hdf5,
    require_file_hash,
    write_dataset,
)

# The manifest of a log in several files: the content of each file and of the whole log.


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


BY_EPISODE = ("episode_starts", "behaviour")
"""Columns that must be renumbered, not just concatenated, when files are joined."""


def stored_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files that hold the rows of a log: the file itself, or those listed in its manifest.

    Raises a ``DatasetError`` if the path is a manifest that cannot be used.
    """
    path = Path(path)
    return read_manifest(path).paths(path) if is_manifest(path) else [path]


def stored_bytes(path: str | os.PathLike[str]) -> int:
    """Size of a log on disk in bytes; for a manifest, the total of all its files.

    Raises:
        DatasetError: If the path is a manifest that cannot be used or that lists a missing file.
        OSError: If the path is any other file and does not exist.
    """
    path, files = Path(path), stored_files(path)
    if files == [path]:
        return path.stat().st_size
    return sum(_present(path, file).stat().st_size for file in files)


def read_shards(path: Path, *, memory_map: bool) -> Dataset:
    """Reads the files of a manifest as one dataset.

    If the files are read into memory, the content hashes of each file and of the whole log are
    checked. If they are mapped, the stored hashes are trusted;
    :func:`neorl_envs.datasets.require_content_hash` checks them.

    Raises a ``DatasetError`` if a file is missing, was changed, or does not match the other files.
    """
    manifest = read_manifest(path)
    dataset = _join(path, manifest, memory_map=memory_map)
    if memory_map:
        dataset.__dict__["content_hash"] = manifest.content_hash
    elif dataset.content_hash != manifest.content_hash:
        raise _other_log(path, manifest, dataset.content_hash)
    return dataset


def require_content_hash(dataset: Dataset, source: str) -> None:
    """Raises unless the columns of a mapped dataset have the hash that its file records.

    Args:
        dataset: Result of :func:`neorl_envs.read_dataset` with ``memory_map``, which trusts the
            stored hash.
        source: The file or manifest of the dataset, for error messages.

    Raises:
        DatasetError: Naming the file that was changed, and both hashes.
    """
    if not isinstance(dataset.transitions.reward, JoinedColumn):
        require_file_hash(dataset, source)
        return
    actual = content_digest(dataset)
    if actual != dataset.content_hash:
        manifest = read_manifest(Path(source))
        for file in manifest.paths(Path(source)):
            require_file_hash(map_unchecked(file), str(file))
        raise _other_log(Path(source), manifest, actual)


def write_manifest(path: str | os.PathLike[str], files: Sequence[str | os.PathLike[str]]) -> Path:
    """Combines dataset files with the same specification into one log without copying them.

    The log has the attributes that are equal in all files, and the names of all behaviours.

    Args:
        path: Path of the manifest; its name ends with ``.shards.json``.
        files: The dataset files, in the order of their rows.

    Returns:
        The path of the manifest.

    Raises:
        DatasetError: If a file cannot be mapped, was changed, differs from the first file in its
            specification or optional columns, or holds the same rows as another file.
        OSError: If the file cannot be written.

    Example:
        >>> write_manifest("log.shards.json", ["may.h5", "june.h5"])  # doctest: +SKIP
        PosixPath('log.shards.json')
    """
    path = Path(path)
    if not files:
        raise DatasetError(f"{path}: expected at least one file for a manifest, got none")
    shards, attributes = [], []
    for file in map(Path, files):
        part = map_unchecked(file)
        require_file_hash(part, str(file))
        shards.append(
            Shard(relative_to(path, file), part.n_rows, part.n_episodes, part.content_hash)
        )
        attributes.append(part.attributes)
    return finish_manifest(path, shards, _shared_attributes(attributes))


def write_shards(path: str | os.PathLike[str], dataset: Dataset, *, rows: int = 1_000_000) -> Path:
    """Writes a log as several dataset files and a manifest, without splitting any episode.

    Args:
        path: Path of the manifest; its name ends with ``.shards.json``. The files are written to
            the same folder: ``log-00000.h5`` and so on for ``log.shards.json``.
        dataset: The log; a mapped one may be larger than memory.
        rows: A file ends with the episode in which it reaches this many rows.

    Returns:
        The path of the manifest.

    Raises:
        DatasetError: If ``rows`` is below one, or the dataset is not valid.
        OSError: If the file cannot be written.
    """
    path = Path(path)
    if rows < 1:
        raise DatasetError(f"rows of a shard must be 1 or more, got {rows}")
    shards, first, ends = [], 0, dataset.episode_ends
    while first < dataset.n_episodes:
        least_stop = min(int(dataset.episode_starts[first]) + rows, dataset.n_rows)
        stop = int(np.searchsorted(ends, least_stop)) + 1
        part = dataset.select_episodes(np.arange(first, stop))
        shards.append(write_shard(path, len(shards), part))
        first = stop
    return finish_manifest(path, shards, dict(dataset.attributes))


def write_shard(path: Path, number: int, part: Dataset) -> Shard:
    """Writes one file of a log, numbered from 0, to the folder of its manifest."""
    name = path.name.removesuffix(".json").removesuffix(".shards")
    file = write_dataset(path.with_name(f"{name}-{number:05d}.h5"), part)
    return Shard(relative_to(path, file), part.n_rows, part.n_episodes, part.content_hash)


def finish_manifest(path: Path, shards: Sequence[Shard], attributes: Mapping[str, Any]) -> Path:
    """Writes the manifest once all files exist; reads them once to hash the whole log."""
    first = map_unchecked(path.parent / shards[0].file)
    manifest = Manifest(spec_digest(first.spec), "", tuple(shards), attributes)
    refuse_duplicates(path, manifest)
    content_hash = content_digest(_join(path, manifest, memory_map=True))
    save_manifest(path, dataclasses.replace(manifest, content_hash=content_hash))
    return path


def _join(path: Path, manifest: Manifest, *, memory_map: bool) -> Dataset:
    """Joins all files into one dataset, with mapped columns or one array in memory per column."""
    pieces: dict[str, list[Any]] = {}
    columns: dict[str, Any] = {}
    starts, behaviour, row, first = [], [], 0, None
    names = list(manifest.attributes.get("behaviours", ()))
    for part in _parts(path, manifest, memory_map=memory_map):
        for name, column in part.columns():
            if name in BY_EPISODE:
                continue
            if memory_map:
                pieces.setdefault(name, []).append(column)
                continue
            if name not in columns:
                columns[name] = np.empty((manifest.rows, *column.shape[1:]), column.dtype)
            columns[name][row : row + part.n_rows] = column
        starts.append(part.episode_starts + row)
        if part.behaviour is not None:
            part_names = part.attributes["behaviours"]
            behaviour.append(np.array([names.index(name) for name in part_names])[part.behaviour])
        row += part.n_rows
        first = first or part
    assert first is not None  # a manifest lists at least one file
    columns |= {name: JoinedColumn(parts) for name, parts in pieces.items()}
    labels = {"behaviour": np.concatenate(behaviour).astype(np.int32)} if behaviour else {}
    return Dataset(
        Transition(**{name: columns[name] for name in Transition._fields}),
        np.concatenate(starts),
        first.spec,
        manifest.attributes,
        **labels,
        **{name: columns[name] for name in OPTIONAL if name in columns},
    )


def _parts(path: Path, manifest: Manifest, *, memory_map: bool) -> Iterator[Dataset]:
    """Reads every file and checks that it is the one listed and matches the first file."""
    first: tuple[Path, Dataset] | None = None
    for shard, file in zip(manifest.shards, manifest.paths(path), strict=True):
        with open_hdf5(_present(path, file)) as stored:
            part = read_neorl_hdf5(stored, str(file), memory_map=memory_map)
        if part.content_hash != shard.content_hash:
            raise DatasetError(
                f"{file}: it is not the file that {path} names: expected content hash "
                f"{shard.content_hash}, got {part.content_hash}; restore it, or write the manifest "
                "again with `neorl-envs shard`"
            )
        _require_alike(file, part, first or (file, part))
        if manifest.spec_hash != spec_digest(part.spec):
            raise DatasetError(
                f"{file}: its specification differs from that of {path}; write the manifest "
                "again with `neorl-envs shard`"
            )
        first = first or (file, part)
        yield part


def _present(path: Path, file: Path) -> Path:
    if not file.exists():
        raise DatasetError(
            f"{file}: the shard is missing that {path} names; copy it there, or write the manifest "
            "again with `neorl-envs shard`"
        )
    return file


def _require_alike(file: Path, part: Dataset, first: tuple[Path, Dataset]) -> None:
    """Raises unless a file has the specification and the columns of the first one."""
    other, reference = first
    if part.spec != reference.spec:
        raise DatasetError(
            f"{file}: its specification differs from that of {other}: "
            f"{_difference(part.spec, reference.spec)}; "
            "shards of one log have one specification"
        )
    actual, expected_names = ({name for name, _ in one.columns()} for one in (part, reference))
    for name in sorted(actual ^ expected_names):
        file_with, file_without = (file, other) if name in actual else (other, file)
        raise DatasetError(
            f"{file_without}: it has no column '{name}', and {file_with} has one; shards of one "
            "log have "
            "the same columns"
        )
    for name in NAMED.values():
        actual, expected = (one.attributes.get(name) for one in (part, reference))
        if actual != expected:
            raise DatasetError(
                f"{file}: attribute {name!r} is {actual}, expected {expected} as in {other}"
            )


def _difference(spec: Spec, expected: Spec) -> str:
    """The first thing in which two specifications differ, in words."""
    actual_spec, expected_spec = plain_spec(spec), plain_spec(expected)
    for name, value in expected_spec.items():
        actual = actual_spec[name]
        if not isinstance(value, list):
            if actual != value:
                return f"{name} is {actual}, expected {value}"
            continue
        if len(actual) != len(value):
            return f"it has {len(actual)} channels in {name}, expected {len(value)}"
        for number, (a, b) in enumerate(zip(actual, value, strict=True)):
            field = next((field for field in b if a[field] != b[field]), None)
            if field is not None:
                return f"the {field} of {name} {number} is {a[field]!r}, expected {b[field]!r}"
    return "they differ"


def _shared_attributes(attributes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The attributes that are equal in all files, and the names of all behaviours."""
    first, *others = attributes
    shared = {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }
    names = dict.fromkeys(name for one in attributes for name in one.get("behaviours", ()))
    return {**shared, **({"behaviours": list(names)} if names else {})}


def _other_log(path: Path, manifest: Manifest, actual: str) -> DatasetError:
    return DatasetError(
        f"{path}: the shards together do not have the recorded content hash: expected "
        f"{manifest.content_hash}, got {actual}; were they put into another order? Write the "
        "manifest again with `neorl-envs shard`"
    )
