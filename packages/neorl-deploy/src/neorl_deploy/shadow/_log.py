"""Reads a log for replay: a dataset file or a NeoRL-2 archive.

The layout and the rules are those of ``docs/pages/reference/dataset-file.md``; no code of the
package that writes it is used. HDF5 needs the extra ``replay``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError, needs
from neorl_deploy.bundle._strict_json import head, require_head

if TYPE_CHECKING:
    import h5py

# Reads NumPy archives, checking sizes and types before allocating memory.


UNPACKED_AT_MOST, UNPACKED_RATIO = 2**30, 100
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
ARCHIVE_REFUSALS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_archive(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """The named arrays of an ``.npz`` file.

    Raises:
        DeployError: If it is damaged, or an array is missing, does not contain real numbers, or
            declares more than the archive can contain.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            missing = [key for key in keys if key not in members]
            if missing:
                raise DeployError(
                    f"{path} has no {missing[0]!r} (it holds {', '.join(sorted(members))}); "
                    f"expected the arrays of NeoRL-2: {', '.join(keys)}"
                )
            _require_size(path, "archive", sum(members[key].file_size for key in keys))
            for key in keys:
                _require_numbers(path, key, archive, members[key])
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in keys}
    except DeployError:
        raise
    except ARCHIVE_REFUSALS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DeployError(f"{path} is a damaged archive: {reason}; copy it again") from error


def _require_numbers(
    path: Path, key: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo
) -> None:
    with archive.open(entry) as stream:
        shape, _, dtype = HEADERS[np.lib.format.read_magic(stream)](stream)
    if dtype.kind not in "biuf":
        raise DeployError(f"{path}: {key!r} holds {dtype}, expected real numbers")
    if math.prod(shape) * dtype.itemsize > entry.file_size:
        raise DeployError(f"{path}: {key!r} has shape {shape} but no data for it")


# Reads the dataset file from its published layout; h5py comes with the extra ``replay``.
#
# Everything is checked before it is followed or allocated. Text must have a fixed length inside
# the headers, whose checksums detect damage. Columns must be stored in this file and must not
# declare more than it can contain.


KIND, VERSION = "dataset", 2
COLUMNS = {
    "obs": "<f4",
    "action": "<f4",
    "reward": "<f4",
    "cost": "<f4",
    "next_obs": "<f4",
    "next_action": "<f4",
    "terminated": "|u1",
    "truncated": "|u1",
    "mask": "|u1",
    "episode_starts": "<i8",
}
OPTIONAL_COLUMNS = {
    "behaviour": "<i4",
    "behaviour_log_prob": "<f4",
    "requested": "<f4",
    "time": "<f8",
    "mode": "|u1",
    "setpoint": "<f4",
    "test_signal": "<f4",
    "term": "<f4",
}
FLAGS = ("terminated", "truncated", "mask", "mode")
REALS = ("low", "high", "limit", "dt")
LONGEST_TEXT = 2**26
REFUSALS = (
    OSError,
    KeyError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)
"""Exceptions that h5py raises for a damaged file."""


class Stored(NamedTuple):
    """The content of a dataset file with a verified hash."""

    spec: dict[str, Any]
    attributes: dict[str, Any]
    columns: dict[str, np.ndarray]
    content_hash: str


def read_dataset_file(path: Path) -> Stored:
    """Reads a dataset file; any defect is a :class:`DeployError` of one line."""
    with needs("reading a dataset file", "replay"):
        import h5py
    try:
        with h5py.File(path, "r") as file:
            _check_head(path, file)
            texts = {n: _text(path, file, n) for n in ("spec", "attributes", "content_hash")}
            columns = _columns(path, file)
    except DeployError:
        raise
    except REFUSALS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DeployError(f"{path} is damaged or incomplete: {reason}; copy it again") from error
    spec, attributes = (_parse(path, name, texts[name]) for name in ("spec", "attributes"))
    digest = _content_hash(path, spec, columns)
    if digest != texts["content_hash"]:
        raise DeployError(
            f"{path}: the columns do not match their content hash; it was changed or damaged, copy "
            "it again"
        )
    return Stored(spec, attributes, columns, digest)


def _require_size(path: Path, kind: str, declared: int) -> None:
    """Raises if more is declared than a file of this size can contain."""
    if declared > max(UNPACKED_AT_MOST, UNPACKED_RATIO * path.stat().st_size):
        raise DeployError(
            f"{path}: the {kind} declares {declared} bytes, far more than the file can hold"
        )


def _check_head(path: Path, file: h5py.File) -> None:
    stored: dict[str, Any] = {**head(KIND, VERSION), "version": _attribute(path, file, "version")}
    require_head(stored, KIND, VERSION, str(path))  # another version may store its text differently
    require_head({**stored, "format": _attribute(path, file, "format")}, KIND, VERSION, str(path))


def _attribute(path: Path, file: h5py.File, name: str) -> Any:
    if name not in file.attrs:
        return None
    kind = file.attrs.get_id(name)
    attributes: Any = file.attrs
    if kind.shape == () and kind.dtype.kind in "iu":
        return int(attributes[name])
    if kind.shape == () and kind.dtype.kind == "S" and kind.dtype.itemsize <= LONGEST_TEXT:
        return bytes(attributes[name]).decode()
    raise DeployError(
        f"{path}: attribute {name!r} is {kind.dtype} of shape {kind.shape}, expected text of fixed "
        "length or an integer"
    )


def _text(path: Path, file: h5py.File, name: str) -> str:
    text = _attribute(path, file, name)
    if not isinstance(text, str):
        raise DeployError(f"{path}: attribute {name!r} is missing or is not text")
    return text


def _columns(path: Path, file: h5py.File) -> dict[str, np.ndarray]:
    present = {name: code for name, code in OPTIONAL_COLUMNS.items() if name in file}
    stored = {name: _column(path, file, name, code) for name, code in (COLUMNS | present).items()}
    declared = sum(math.prod(column.shape) * column.dtype.itemsize for column in stored.values())
    _require_size(path, "file", declared)
    columns = {name: column[()] for name, column in stored.items()}
    for name in FLAGS:
        if name in columns and (columns[name] > 1).any():
            raise DeployError(f"{path}: column {name!r} holds a number that is neither 0 nor 1")
    return columns


def _column(path: Path, file: h5py.File, name: str, code: str) -> h5py.Dataset:
    import h5py

    link = file.get(name, getlink=True)
    column: Any = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(column, h5py.Dataset) or column.external or column.is_virtual:
        raise DeployError(f"{path}: column {name!r} is missing, or not stored in this file")
    if column.dtype.str != code:
        raise DeployError(f"{path}: column {name!r} is {column.dtype}, expected {code}")
    if column.shape is None or (column.size and not _complete(column)):
        raise DeployError(f"{path}: column {name!r} has shape {column.shape} but no data")
    return column


def _complete(column: h5py.Dataset) -> bool:
    if column.chunks is None:
        return column.id.get_storage_size() >= column.size * column.dtype.itemsize
    pairs = zip(column.shape, column.chunks, strict=True)
    return column.id.get_num_chunks() >= math.prod(-(-rows // chunk) for rows, chunk in pairs)


def _parse(path: Path, name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DeployError(f"{path}: attribute {name!r} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise DeployError(f"{path}: attribute {name!r} is not a JSON object")
    return value


def _content_hash(path: Path, spec: dict[str, Any], columns: dict[str, np.ndarray]) -> str:
    try:
        plain = json.dumps(_plain(spec), sort_keys=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise DeployError(f"{path}: attribute 'spec' holds no number: {error}") from error
    digest = hashlib.sha256(plain.encode())
    for name, column in columns.items():
        stored = np.ascontiguousarray(column)
        digest.update(f"{name} {stored.dtype.str} {list(stored.shape)}\n".encode())
        digest.update(stored.tobytes())
    return f"sha256:{digest.hexdigest()}"


def _plain(value: Any) -> Any:
    """Native real numbers without negative zeros, as the hash requires."""
    if isinstance(value, dict):
        return {n: float(v) + 0.0 if n in REALS else _plain(v) for n, v in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


NEORL2_KEYS = ("obs", "action", "done", "truncated")
HDF5_MAGIC, ZIP_MAGIC = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"


@dataclasses.dataclass(frozen=True)
class Log:
    """The parts of a log that a replay needs.

    Attributes:
        source: Path of the file, as given.
        obs: Observation before each action, shape ``(row, obs)``, float32.
        action: Action that the plant received, shape ``(row, act)``, float32.
        mask: False for a row that enters no statistic, shape ``(row,)``.
        starts: First row of every episode, ascending.
        obs_channels: Name and unit of each observed channel.
        action_channels: Name and unit of each manipulated channel.
        content_hash: Identity of the data, verified; empty if the format has none.
        attribution: Citation of third-party data; empty if the data are our own.
        dt: Seconds between two rows; NaN if the format does not state it.
        ranges: Lower and upper end of each observed, then each manipulated channel, shape ``(obs +
            act, 2)``; NaN if the format does not state them.
    """

    source: str
    obs: np.ndarray
    action: np.ndarray
    mask: np.ndarray
    starts: np.ndarray
    obs_channels: tuple[tuple[str, str], ...]
    action_channels: tuple[tuple[str, str], ...]
    content_hash: str
    attribution: str
    dt: float
    ranges: np.ndarray


def read_log(path: str | os.PathLike[str]) -> Log:
    """Reads a log; its format is recognised by its content.

    Args:
        path: A dataset file (HDF5), or an ``.npz`` archive of NeoRL-2.

    Returns:
        The log.

    Raises:
        DeployError: If it is missing, of another format or damaged, or the extra ``replay`` is not
            installed; one line.
    """
    path = Path(path)
    try:
        if not path.is_file() and path.exists() and not path.is_dir():
            raise DeployError(f"{path} is not a log but a pipe, a socket or a device")
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise DeployError(f"cannot read the log {path}: {error.strerror}") from error
    if magic.startswith(HDF5_MAGIC):
        return _read_hdf5(path)
    if magic.startswith(ZIP_MAGIC):
        return _read_neorl2(path)
    raise DeployError(
        f"{path} is not a log: expected a dataset file (HDF5) or a NeoRL-2 .npz, got a file that "
        f"starts with {magic!r}; make one from a CSV or Parquet file and its plant.toml "
        "with `neorl-envs convert` of neorl-envs[etl], on any machine"
    )


def _read_hdf5(path: Path) -> Log:
    stored = read_dataset_file(path)
    columns, spec = stored.columns, stored.spec
    log = Log(
        source=str(path),
        obs=columns["obs"],
        action=columns["action"],
        mask=columns["mask"].astype(bool),
        starts=columns["episode_starts"],
        obs_channels=_channels(path, spec, "obs"),
        action_channels=_channels(path, spec, "action"),
        content_hash=stored.content_hash,
        attribution=str(stored.attributes.get("attribution", "")),
        dt=_seconds(path, spec),
        ranges=_ranges(path, spec),
    )
    return _validate(log)


def _read_neorl2(path: Path) -> Log:
    arrays = read_archive(path, NEORL2_KEYS)
    obs, action = (np.asarray(arrays[key], np.float32) for key in ("obs", "action"))
    ended = (arrays["done"] != 0) | (arrays["truncated"] != 0)
    if obs.ndim != 2 or action.ndim != 2 or ended.shape != obs.shape[:1]:
        got = ", ".join(f"{key} {arrays[key].shape}" for key in NEORL2_KEYS)
        raise DeployError(
            f"{path}: the arrays have shapes that do not match: obs and action must be (row, "
            f"channel), done and truncated (row,), got {got}"
        )
    log = Log(
        source=str(path),
        obs=obs,
        action=action,
        mask=np.ones(len(obs), bool),
        starts=np.append(0, np.flatnonzero(ended[:-1]) + 1),
        obs_channels=tuple((f"obs_{i}", "?") for i in range(obs.shape[1])),
        action_channels=tuple((f"action_{i}", "?") for i in range(action.shape[1])),
        content_hash="",
        attribution="NeoRL-2 (polixir/NeoRL2), data licensed CC-BY-4.0",
        dt=math.nan,
        ranges=np.full((obs.shape[1] + action.shape[1], 2), np.nan),
    )
    return _validate(log)


def _validate(log: Log) -> Log:
    rows = len(log.obs)
    if rows == 0:
        raise DeployError(f"{log.source} has no rows; a replay needs at least one")
    widths = (rows, len(log.obs_channels)), (rows, len(log.action_channels))
    if (log.obs.shape, log.action.shape) != widths or log.mask.shape != (rows,):
        raise DeployError(
            f"{log.source}: obs {log.obs.shape}, action {log.action.shape} and mask "
            f"{log.mask.shape} do not fit {len(log.obs_channels)} and {len(log.action_channels)} "
            "channels"
        )
    starts = log.starts
    if not (len(starts) and starts[0] == 0 and (np.diff(starts) > 0).all() and starts[-1] < rows):
        raise DeployError(f"{log.source}: the episode starts are not ascending rows from 0")
    return log


def _channels(path: Path, spec: Any, kind: str) -> tuple[tuple[str, str], ...]:
    try:
        channels = tuple((entry["name"], entry["unit"]) for entry in spec[kind])
    except (KeyError, TypeError) as error:
        raise DeployError(f"{path}: attribute 'spec' lists no channels for {kind}") from error
    for channel in channels:
        if not all(isinstance(text, str) for text in channel):
            raise DeployError(f"{path}: attribute 'spec' calls a channel of {kind} {channel}")
    return channels


def _seconds(path: Path, spec: Any) -> float:
    dt = spec.get("dt")
    number = isinstance(dt, int | float) and not isinstance(dt, bool)
    if not (number and 0 < dt < math.inf):
        raise DeployError(f"{path}: attribute 'spec' has a period of {dt!r}, expected seconds")
    return float(dt)


def _ranges(path: Path, spec: Any) -> np.ndarray:
    try:
        ends = [[entry["low"], entry["high"]] for entry in [*spec["obs"], *spec["action"]]]
        return np.array(ends, np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DeployError(f"{path}: attribute 'spec' has a channel without a range") from error
