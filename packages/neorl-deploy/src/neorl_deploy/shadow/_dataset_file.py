"""Reads the dataset file from its published layout; h5py comes with the extra ``replay``.

Everything is checked before it is followed or allocated. Text must have a fixed length inside the
headers, whose checksums detect damage. Columns must be stored in this file and must not declare
more than it can contain.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError, missing_extra
from neorl_deploy.bundle._document_heads import head, require_head

if TYPE_CHECKING:
    import h5py

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
UNPACKED_AT_MOST, UNPACKED_RATIO = 2**30, 100


class Stored(NamedTuple):
    """The content of a dataset file with a verified hash."""

    spec: dict[str, Any]
    attributes: dict[str, Any]
    columns: dict[str, np.ndarray]
    content_hash: str


def read_dataset_file(path: Path) -> Stored:
    """Reads a dataset file; any defect is a :class:`DeployError` of one line."""
    try:
        import h5py
    except ImportError as error:
        raise missing_extra("reading a dataset file", "replay", error) from error
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


def require_size(path: Path, name: str, size: int) -> None:
    """Raises if more is declared than a file of this size can contain."""
    largest = max(UNPACKED_AT_MOST, UNPACKED_RATIO * path.stat().st_size)
    if size > largest:
        raise DeployError(f"{path}: {name} declares {size} bytes, far more than the file can hold")


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
        raise DeployError(f"{path}: attribute {name!r} is missing or no text")
    return text


def _columns(path: Path, file: h5py.File) -> dict[str, np.ndarray]:
    present = {name: code for name, code in OPTIONAL_COLUMNS.items() if name in file}
    stored = {name: _column(path, file, name, code) for name, code in (COLUMNS | present).items()}
    declared = sum(math.prod(column.shape) * column.dtype.itemsize for column in stored.values())
    require_size(path, "the file", declared)
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
        raise DeployError(f"{path}: column {name!r} declares {column.shape} and does not store it")
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
