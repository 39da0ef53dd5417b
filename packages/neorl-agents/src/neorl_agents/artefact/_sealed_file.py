"""One safetensors file whose every byte is covered by a digest inside it."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from neorl_core import InputError
from neorl_core.infrastructure import write_bytes

ENTRY = "neorl_policy"
BLANK = "0" * 64
SEAL = re.compile(rb'\\"seal\\":\\"([0-9a-f]{64})\\"')
"""Position of the seal in the raw bytes: the first field of the JSON text of ENTRY."""

MAX_HEADER_BYTES = 16 * 2**20


class ArtefactError(InputError):
    """A file is not an intact artefact that this version can read."""


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a PyTree with the names that their arrays have in a file, in order."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in flat]


def write_sealed(path: Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> str:
    """Writes arrays and a JSON header as one file, atomically.

    The seal is the SHA-256 of the complete file with 64 zeros in its place. The file is written
    beside its destination, synchronised and renamed, so a reader sees the old file or the new one.

    Returns the seal, 64 hexadecimal digits. Raises a ``ValueError`` if the header is not JSON, and
    an ``OSError`` if it cannot be written; the destination is then unchanged.
    """
    try:
        text = json.dumps({"seal": BLANK, "header": header}, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the metadata of {path} must be plain JSON (text, finite numbers, lists, "
            f"dictionaries): {error}"
        ) from error
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    contiguous = {name: array.reshape(arrays[name].shape) for name, array in contiguous.items()}
    blank = safetensors.numpy.save(contiguous, metadata={ENTRY: text})
    seal = hashlib.sha256(blank).hexdigest()
    start, end = _seal_position(blank)
    write_bytes(path, blank[:start] + seal.encode() + blank[end:])
    return seal


def read_sealed(path: Path, max_bytes: int) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """Reads what :func:`write_sealed` wrote; nothing is interpreted before the seal is checked.

    Files larger than ``max_bytes`` are refused unread. Raises an ``ArtefactError`` if the file is
    too large, not an artefact, truncated or changed, and an ``OSError`` if it cannot be opened.
    """
    size = os.path.getsize(path)
    if size > max_bytes:
        raise ArtefactError(f"{path} has {size} bytes, but at most {max_bytes} are allowed")
    data = path.read_bytes()
    try:
        start, end = _seal_position(data)
    except LookupError as error:
        raise ArtefactError(
            f"{path} is not an artefact: {error}; write one with save_policy or save_critic"
        ) from error
    seal = data[start:end].decode()
    if hashlib.sha256(data[:start] + BLANK.encode() + data[end:]).hexdigest() != seal:
        raise ArtefactError(f"{path} was changed or damaged after it was written; copy it again")
    try:
        return safetensors.numpy.load(data), _header(data), seal
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            f"{path} has a valid seal, but its content cannot be read: {error}"
        ) from error


def _header(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"][ENTRY])["header"]


def _seal_position(data: bytes) -> tuple[int, int]:
    if len(data) < 8:
        raise LookupError("it is shorter than its header")
    length = int.from_bytes(data[:8], "little")
    if length > min(MAX_HEADER_BYTES, len(data) - 8):
        raise LookupError("the length of its header is wrong")
    match = SEAL.search(data, 8, 8 + length)
    if match is None:
        raise LookupError("it has no seal")
    return match.span(1)
