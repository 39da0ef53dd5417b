"""The log to replay: a small reader of the dataset file and of NeoRL-2 archives.

The layout and the rules are those of ``docs/pages/reference/dataset-file.md``; nothing of the
package that writes it is used. HDF5 needs the extra ``replay``.
"""

import dataclasses
import hashlib
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy._errors import DeployError, missing_extra
from neorl_deploy.bundle._document_heads import require_head

KIND, VERSION = "dataset", 1
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
OPTIONAL_COLUMNS = {"behaviour": "<i4", "behaviour_log_prob": "<f4"}
NEORL2_KEYS = ("obs", "action", "done", "truncated")
HDF5_MAGIC, ZIP_MAGIC = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
UNPACKED_AT_MOST, UNPACKED_RATIO = 2**30, 100


@dataclasses.dataclass(frozen=True)
class Log:
    """What a replay needs of a log.

    Attributes:
        source: Path of the file, as named.
        obs: Observation before each action, shape ``(row, obs)``, float32.
        action: Action that the plant received, shape ``(row, act)``, float32.
        mask: False where a row reaches no statistic, shape ``(row,)``.
        starts: First row of every episode, ascending.
        obs_channels: Name and unit of each observed channel.
        action_channels: Name and unit of each manipulated channel.
        content_hash: Identity of the data, checked; empty where the format has none.
        attribution: Citation of third-party data; empty where it is our own.
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


def read_log(path: str | os.PathLike[str]) -> Log:
    """Reads a log, recognised by its content.

    Args:
        path: A dataset file (HDF5), or an ``.npz`` archive of NeoRL-2.

    Returns:
        The log.

    Raises:
        DeployError: If it is missing, of another format, damaged, or the extra ``replay`` is not
            installed; one line.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise DeployError(f"cannot read the log {path}: {error.strerror}") from error
    if magic.startswith(HDF5_MAGIC):
        return _read_hdf5(path)
    if magic.startswith(ZIP_MAGIC):
        return _read_neorl2(path)
    raise DeployError(
        f"{path} is no log: expected a dataset file (HDF5) or a NeoRL-2 .npz, got a file that "
        f"starts with {magic!r}"
    )


def _read_hdf5(path: Path) -> Log:
    try:
        import h5py
    except ImportError as error:
        raise missing_extra("reading a dataset file", "replay", error) from error
    try:
        with h5py.File(path, "r") as file:
            stored = {name: file.attrs.get(name) for name in ("format", "version")}
            if isinstance(stored["version"], np.integer):
                stored["version"] = int(stored["version"])  # HDF5 gives NumPy's integers
            require_head(stored, KIND, VERSION, str(path))
            texts = {n: str(file.attrs[n]) for n in ("spec", "attributes", "content_hash")}
            columns = _hdf5_columns(path, file, h5py)
    except (OSError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise DeployError(f"{path} is damaged or incomplete: {reason}; copy it again") from error
    spec, attributes = (_parsed(path, name, texts[name]) for name in ("spec", "attributes"))
    digest = _content_hash(spec, columns)
    if digest != texts["content_hash"]:
        raise DeployError(
            f"{path}: the columns do not match their content hash; it was changed or damaged, copy "
            "it again"
        )
    log = Log(
        source=str(path),
        obs=columns["obs"],
        action=columns["action"],
        mask=columns["mask"].astype(bool),
        starts=columns["episode_starts"],
        obs_channels=_channels(path, spec, "obs"),
        action_channels=_channels(path, spec, "action"),
        content_hash=digest,
        attribution=str(attributes.get("attribution", "")),
    )
    return _checked(log)


def _hdf5_columns(path: Path, file: Any, h5py: Any) -> dict[str, np.ndarray]:
    columns = {}
    present = {name: code for name, code in OPTIONAL_COLUMNS.items() if name in file}
    for name, code in {**COLUMNS, **present}.items():
        link = file.get(name, getlink=True)
        column: Any = file[name] if isinstance(link, h5py.HardLink) else None
        if not isinstance(column, h5py.Dataset) or column.external or column.is_virtual:
            raise DeployError(f"{path}: column {name!r} is missing, or not stored in this file")
        if column.dtype.str != code:
            raise DeployError(f"{path}: column {name!r} is {column.dtype}, expected {code}")
        _require_size(path, name, int(column.size) * column.dtype.itemsize)
        columns[name] = column[()]
    return columns


def _content_hash(spec: dict[str, Any], columns: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode())
    for name, column in columns.items():
        stored = np.ascontiguousarray(column)
        digest.update(f"{name} {stored.dtype.str} {list(stored.shape)}\n".encode())
        digest.update(stored.tobytes())
    return f"sha256:{digest.hexdigest()}"


def _read_neorl2(path: Path) -> Log:
    try:
        with zipfile.ZipFile(path) as archive:
            _require_size(path, "the archive", sum(e.file_size for e in archive.infolist()))
        with np.load(path, allow_pickle=False) as archive:
            missing = [key for key in NEORL2_KEYS if key not in archive.files]
            if missing:
                raise DeployError(
                    f"{path} has no {missing[0]!r} (it holds {sorted(archive.files)}); expected "
                    "the arrays of NeoRL-2"
                )
            arrays = {key: archive[key] for key in NEORL2_KEYS}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError) as error:
        if isinstance(error, DeployError):
            raise
        raise DeployError(f"{path} is a damaged archive: {error}; copy it again") from error
    obs, action = (np.asarray(arrays[key], np.float32) for key in ("obs", "action"))
    ended = (arrays["done"] != 0) | (arrays["truncated"] != 0)
    if obs.ndim != 2 or action.ndim != 2 or ended.shape != obs.shape[:1] or not len(obs):
        raise DeployError(f"{path}: the arrays have shapes that do not fit one another")
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
    )
    return _checked(log)


def _checked(log: Log) -> Log:
    rows = len(log.obs)
    widths = (rows, len(log.obs_channels)), (rows, len(log.action_channels))
    if (log.obs.shape, log.action.shape) != widths or log.mask.shape != (rows,) or rows == 0:
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
        return tuple((str(entry["name"]), str(entry["unit"])) for entry in spec[kind])
    except (KeyError, TypeError) as error:
        raise DeployError(f"{path}: attribute 'spec' lists no channels for {kind}") from error


def _parsed(path: Path, name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DeployError(f"{path}: attribute {name!r} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise DeployError(f"{path}: attribute {name!r} is no JSON object")
    return value


def _require_size(path: Path, name: str, size: int) -> None:
    largest = max(UNPACKED_AT_MOST, UNPACKED_RATIO * path.stat().st_size)
    if size > largest:
        raise DeployError(f"{path}: {name} declares {size} bytes, far more than the file can hold")
