"""Expected content of a checkpoint, leaf by leaf: names, shapes, types and digests."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import check_head, head

VERSION = 1


class DamagedError(Exception):
    """The stored bytes differ from those that were saved."""


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by dotted path, in the order of the tree."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in flat}


def stored_leaves(tree: Any) -> dict[str, Any]:
    """The leaves that are written; empty ones are left out, because Orbax hangs on them."""
    return {
        name: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        for name, leaf in named_leaves(tree).items()
        if leaf.size
    }


def make_manifest(tree: Any, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a tree of arrays.

    Args:
        tree: Tree of NumPy or JAX arrays, which may include typed keys.
        identity: Run, algorithm and step that the tree belongs to, as plain JSON.

    Returns:
        A JSON object that contains its own digest.
    """
    leaves = {
        name: {**_form(leaf), "sha256": leaf_digest(leaf)}
        for name, leaf in named_leaves(tree).items()
    }
    body = {**head("checkpoint", VERSION), "identity": dict(identity), "leaves": leaves}
    return {**body, "digest": _digest(body)}


def leaf_digest(leaf: Any) -> str:
    """SHA-256 of the values of one array; for a typed key, of its data."""
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return hashlib.sha256(np.ascontiguousarray(np.asarray(leaf)).tobytes()).hexdigest()


def tree_digest(tree: Any) -> str:
    """SHA-256 over the names and values of all leaves."""
    digests = {name: leaf_digest(leaf) for name, leaf in named_leaves(tree).items()}
    return f"sha256:{_digest(digests)}"


def check_manifest(manifest: Any) -> None:
    """Refuses a manifest that does not match its digest.

    Raises:
        DamagedError: If it does not match.
    """
    try:
        check_head(manifest, "checkpoint", VERSION, "its manifest")
    except InputError as error:
        raise DamagedError(str(error)) from None
    body = {name: value for name, value in manifest.items() if name != "digest"}
    if manifest.get("digest") != _digest(body):
        raise DamagedError("its manifest has changed since it was written")


def check_template(template: Any, manifest: Mapping[str, Any], where: str) -> None:
    """Refuses to restore into a tree of another form; nothing is ever cast.

    Args:
        template: Arrays or ``jax.ShapeDtypeStruct`` with the form of the saved tree.
        manifest: Manifest of the checkpoint.
        where: Name of the checkpoint in messages.

    Raises:
        InputError: Names the first path that is missing, unexpected, or of another shape or type.
    """
    expected, stored = named_leaves(template), manifest["leaves"]
    for name, leaf in expected.items():
        if name not in stored:
            raise InputError(
                f"{where} has no {name}; it was written by another version or algorithm"
            )
        ours, theirs = _form(leaf), {key: stored[name][key] for key in ("shape", "dtype")}
        if ours != theirs:
            raise InputError(
                f"{where}: {name} is {theirs['dtype']}{theirs['shape']}, "
                f"expected {ours['dtype']}{ours['shape']}"
            )
    extra = [name for name in stored if name not in expected]
    if extra:
        raise InputError(
            f"{where} has {extra[0]}, which is not expected; "
            "it was written by another version or algorithm"
        )


def check_leaves(leaves: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """Compares loaded values with the digests computed when they were saved.

    Raises:
        DamagedError: Names the first leaf that differs.
    """
    for name, leaf in leaves.items():
        if leaf_digest(leaf) != manifest["leaves"][name]["sha256"]:
            raise DamagedError(f"the values of {name} have changed since they were written")


def _form(leaf: Any) -> dict[str, Any]:
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
