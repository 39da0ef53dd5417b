"""The policy artefact: the policy that a training run exports."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array, Float

from neorl_agents.artefact._kinds import POLICY_KINDS, abstract_policy, kind_of
from neorl_core import InputError, Policy, Spec, as_arrays, spec_from_dict, spec_to_dict
from neorl_core.infrastructure import check_head, head, unknown_name, write_bytes

ENTRY = "neorl_policy"
BLANK = "0" * 64
SEAL = re.compile(rb'\\"seal\\":\\"([0-9a-f]{64})\\"')
"""Position of the seal in the raw bytes: the first field of the JSON text of ENTRY."""

MAX_HEADER_BYTES = 16 * 2**20
VERSION = 1
LEAST_OBSERVATIONS = 32
MAX_BYTES = 256 * 2**20
PARITY = ("obs", "actions")
"""Names of the rows that verify a policy's actions."""


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
            f"{path} is not an artefact: {error}; write one with save_policy"
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


class PolicyArtefact(NamedTuple):
    """A policy, with the data needed to verify it.

    Attributes:
        policy: The policy in physical units, ready to act.
        spec: The control problem that it was made for.
        parity_obs: Observations in physical units, shape ``(row, obs)``.
        parity_actions: Action of ``policy`` on each of them in a fresh episode when it was saved,
            shape ``(row, act)``.
        metadata: Metadata as given to :func:`save_policy`.
        kind: Name of its kind: ``"network"``, ``"pid"``, ``"constant"`` or a registered one.
        digest: SHA-256 of the file without the digest itself, which identifies it.
    """

    policy: Policy
    spec: Spec
    parity_obs: np.ndarray
    parity_actions: np.ndarray
    metadata: dict[str, Any]
    kind: str
    digest: str


def save_policy(
    path: str | os.PathLike[str],
    policy: Policy,
    spec: Spec,
    parity_obs: Float[Array, "row obs"] | np.ndarray,
    metadata: dict[str, Any] | None = None,
) -> str:
    """Writes a policy as one sealed ``.safetensors`` file, atomically.

    Args:
        path: Destination, by convention ``*.safetensors``; an existing file is replaced.
        policy: A network policy, a PID, a constant, or of a kind in ``artefact.POLICY_KINDS``.
        spec: The control problem that it was made for.
        parity_obs: At least 32 observations in physical units, preferably rows of the log. The
            resulting actions are stored, so that any other runtime can prove that it acts the same.
        metadata: Anything to store with it (algorithm, hyperparameters, run), as plain JSON.

    Returns:
        The digest of the file.

    Raises:
        TypeError: If the policy is of none of the kinds.
        ValueError: If observations or metadata are not as stated, or the policy gives an action
            that is not finite on one of them.
        OSError: If the file cannot be written; the destination is then unchanged.
    """
    kind = kind_of(policy)
    policy = as_arrays(policy)
    parity_rows = _checked_observations(np.asarray(parity_obs, np.float32), spec)
    actions = np.asarray(policy_actions(policy, parity_rows))
    if actions.shape != (len(parity_rows), spec.n_action) or not np.all(np.isfinite(actions)):
        not_finite = "" if np.all(np.isfinite(actions)) else " with numbers that are not finite"
        raise ValueError(
            f"the policy must give {spec.n_action} finite numbers for each observation, got an "
            f"array of shape {actions.shape}{not_finite}"
        )
    arrays = {f"policy/{name}": np.asarray(leaf) for name, leaf in named_leaves(policy)}
    arrays |= {"parity/obs": parity_rows, "parity/actions": actions}
    header = {
        **head("policy", VERSION),
        "kind": kind,
        "static": POLICY_KINDS[kind].static(policy),
        "spec": spec_to_dict(spec),
        "arrays": {name: _fingerprint(array) for name, array in arrays.items()},
        "metadata": metadata or {},
    }
    return write_sealed(Path(path), arrays, header)


def load_policy(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> PolicyArtefact:
    """Reads a policy artefact; its digest is checked before anything in it is used.

    Args:
        path: A file that :func:`save_policy` wrote.
        max_bytes: Larger files are refused unread.

    Returns:
        The artefact. On the machine and versions that wrote it, its policy reproduces the stored
        actions of its parity observations bit by bit.

    Raises:
        ArtefactError: If the file is not an artefact, too large, truncated, changed, of an unknown
            version or kind, or its arrays do not fit its kind.
        OSError: If it cannot be opened.
    """
    path = Path(path)
    arrays, header, digest = read_sealed(path, max_bytes)
    header = check_head(header, "policy", VERSION, str(path), ArtefactError)
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in POLICY_KINDS:
        fault = unknown_name("policy kind", str(kind), POLICY_KINDS)
        raise ArtefactError(f"{path} needs a package that is not installed here: {fault}")
    try:
        spec = spec_from_dict(header["spec"])
        shapes = abstract_policy(kind, spec, header["static"])
        descriptions, metadata = dict(header["arrays"]), dict(header["metadata"])
    except (KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ArtefactError(f"{path} has a malformed header: {reason}") from error
    for name in (*(f"parity/{rows}" for rows in PARITY), *descriptions):
        if name not in arrays:
            raise ArtefactError(f"{path}: array {name} is missing")
    for name, array in arrays.items():
        if descriptions.get(name) != _fingerprint(array):
            raise ArtefactError(f"{path}: array {name} differs from its description in the header")
    obs, actions = (arrays[f"parity/{rows}"] for rows in PARITY)
    return PolicyArtefact(_fill(path, shapes, arrays), spec, obs, actions, metadata, kind, digest)


@jax.jit
def policy_actions(
    policy: Policy, obs: Float[Array, "row obs"] | np.ndarray
) -> Float[Array, "row act"]:
    """The action of a fresh episode's first step for each observation, physical units."""

    def act(row: Float[Array, " obs"]) -> Float[Array, " act"]:
        return policy(policy.initial_carry(), row, None)[1]

    return jax.vmap(act)(jnp.asarray(obs))


def _checked_observations(obs: np.ndarray, spec: Spec) -> np.ndarray:
    if obs.ndim != 2 or obs.shape[1] != spec.n_obs or len(obs) < LEAST_OBSERVATIONS:
        raise ValueError(
            f"parity_obs must be at least {LEAST_OBSERVATIONS} observations of {spec.n_obs} "
            f"channels, got shape {obs.shape}; take rows of the log"
        )
    if not np.all(np.isfinite(obs)):
        raise ValueError("parity_obs must be finite; take rows of the log without NaN or infinity")
    return obs


def _fill(path: Path, template: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The policy of a template with shapes and dtypes in place of its arrays."""
    leaves = []
    for name, expected in named_leaves(template):
        array = arrays.get(f"policy/{name}")
        if array is None:
            raise ArtefactError(f"{path}: array policy/{name} is missing")
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise ArtefactError(
                f"{path}: array policy/{name} must be {expected.dtype} of shape {expected.shape}, "
                f"got {array.dtype} of shape {array.shape}"
            )
        leaves.append(jnp.asarray(array))
    n_stored = sum(name.startswith("policy/") for name in arrays)
    if n_stored != len(leaves):
        raise ArtefactError(
            f"{path} has {n_stored} arrays of a policy, expected {len(leaves)} for its kind"
        )
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _fingerprint(array: np.ndarray) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
    }
