"""The policy artefact: the policy that a training run exports."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_agents.artefact._kinds import POLICY_KINDS, abstract_policy, kind_of
from neorl_agents.artefact._sealed_tree import (
    LEAST_OBSERVATIONS,
    MAX_BYTES,
    load_tree,
    save_tree,
)
from neorl_core import Policy, Spec, as_arrays

VERSION = 1


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
    return save_tree(
        Path(path),
        policy,
        what="policy",
        version=VERSION,
        kind=kind,
        static=POLICY_KINDS[kind].static(policy),
        spec=spec,
        parity={"obs": parity_rows, "actions": actions},
        metadata=metadata,
    )


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
    loaded = load_tree(
        Path(path),
        what="policy",
        version=VERSION,
        kinds=POLICY_KINDS,
        template=abstract_policy,
        parity=("obs", "actions"),
        max_bytes=max_bytes,
    )
    return PolicyArtefact(
        policy=loaded.tree,
        spec=loaded.spec,
        parity_obs=loaded.parity["obs"],
        parity_actions=loaded.parity["actions"],
        metadata=loaded.metadata,
        kind=loaded.kind,
        digest=loaded.digest,
    )


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
