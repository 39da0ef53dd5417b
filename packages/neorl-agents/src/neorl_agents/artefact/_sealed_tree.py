"""A PyTree of a known kind in one sealed file, with rows that verify its answers."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.artefact._sealed_file import (
    ArtefactError,
    named_leaves,
    read_sealed,
    write_sealed,
)
from neorl_core import Spec, spec_from_dict, spec_to_dict
from neorl_core.infrastructure import check_head, head, unknown_name

LEAST_OBSERVATIONS = 32
MAX_BYTES = 256 * 2**20


class SealedTree(NamedTuple):
    """Content of a sealed file.

    Attributes:
        tree: The policy or critic.
        spec: The control problem that it was made for.
        parity: Rows and the answers stored for them, by name.
        metadata: Plain JSON.
        kind: Name of its kind.
        digest: SHA-256 of the file without the digest itself.
    """

    tree: Any
    spec: Spec
    parity: dict[str, np.ndarray]
    metadata: dict[str, Any]
    kind: str
    digest: str


def save_tree(
    path: Path,
    tree: Any,
    *,
    what: str,
    version: int,
    kind: str,
    static: dict[str, Any],
    spec: Spec,
    parity: Mapping[str, np.ndarray],
    metadata: dict[str, Any] | None,
) -> str:
    """Writes a PyTree of arrays, atomically.

    ``what`` is ``"policy"`` or ``"critic"``: the name of the format and of its arrays. ``static``
    and ``metadata`` are plain JSON. Returns the digest of the file. Raises a ``ValueError`` if
    something is not plain JSON, and an ``OSError`` if it cannot be written; the destination is then
    unchanged.
    """
    arrays = {f"{what}/{name}": np.asarray(leaf) for name, leaf in named_leaves(tree)}
    arrays |= {f"parity/{name}": rows for name, rows in parity.items()}
    header = {
        **head(what, version),
        "kind": kind,
        "static": static,
        "spec": spec_to_dict(spec),
        "arrays": {name: _fingerprint(array) for name, array in arrays.items()},
        "metadata": metadata or {},
    }
    return write_sealed(path, arrays, header)


def load_tree(
    path: Path,
    *,
    what: str,
    version: int,
    kinds: Mapping[str, Any],
    template: Callable[[str, Spec, dict[str, Any]], Any],
    parity: tuple[str, ...],
    max_bytes: int,
) -> SealedTree:
    """Reads what :func:`save_tree` wrote; its digest is checked before anything in it is used.

    ``template`` makes the PyTree of a kind with shapes and dtypes in place of its arrays. Files
    larger than ``max_bytes`` are refused unread. Raises an ``ArtefactError`` if it is not intact,
    of an unknown version or kind, or does not fit its kind, and an ``OSError`` if it cannot be
    opened.
    """
    arrays, header, digest = read_sealed(path, max_bytes)
    header = check_head(header, what, version, str(path), ArtefactError)
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        fault = unknown_name(f"{what} kind", str(kind), kinds)
        raise ArtefactError(f"{path} needs a package that is not installed here: {fault}")
    try:
        spec = spec_from_dict(header["spec"])
        shapes = template(kind, spec, header["static"])
        descriptions, metadata = dict(header["arrays"]), dict(header["metadata"])
    except (KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ArtefactError(f"{path} has a malformed header: {reason}") from error
    for name in (*(f"parity/{row_name}" for row_name in parity), *descriptions):
        if name not in arrays:
            raise ArtefactError(f"{path}: array {name} is missing")
    for name, array in arrays.items():
        if descriptions.get(name) != _fingerprint(array):
            raise ArtefactError(f"{path}: array {name} differs from its description in the header")
    rows = {row_name: arrays[f"parity/{row_name}"] for row_name in parity}
    return SealedTree(_fill(path, what, shapes, arrays), spec, rows, metadata, kind, digest)


def _fill(path: Path, what: str, template: Any, arrays: dict[str, np.ndarray]) -> Any:
    leaves = []
    for name, expected in named_leaves(template):
        array = arrays.get(f"{what}/{name}")
        if array is None:
            raise ArtefactError(f"{path}: array {what}/{name} is missing")
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise ArtefactError(
                f"{path}: array {what}/{name} must be {expected.dtype} of shape {expected.shape}, "
                f"got {array.dtype} of shape {array.shape}"
            )
        leaves.append(jnp.asarray(array))
    n_stored = sum(name.startswith(f"{what}/") for name in arrays)
    if n_stored != len(leaves):
        raise ArtefactError(
            f"{path} has {n_stored} arrays of a {what}, expected {len(leaves)} for its kind"
        )
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _fingerprint(array: np.ndarray) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
    }
