"""The critic artefact: a safety critic or an ensemble in one sealed file."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_agents.artefact._artefact import (
    LEAST_OBSERVATIONS,
    MAX_BYTES,
    load_tree,
    save_tree,
)
from neorl_agents.artefact._kinds import nested_static, nested_template
from neorl_agents.critics._ensemble import Ensemble, disagreement
from neorl_agents.critics._safety_critic import SafetyCritic, largest_risk
from neorl_core import Spec, as_arrays

VERSION = 2
KINDS: dict[str, type] = {"safety_critic": SafetyCritic, "ensemble": Ensemble}
SCORES = {"safety_critic": largest_risk, "ensemble": disagreement}
"""The function that a monitor evaluates for each kind; a file cannot hold any other kind."""


class CriticArtefact(NamedTuple):
    """A critic, with the data needed to verify it.

    Attributes:
        critic: A :class:`SafetyCritic` or an :class:`Ensemble`.
        spec: The control problem that it was fitted for.
        parity_obs: Observations in physical units, shape ``(row, obs)``.
        parity_actions: An action for each of them, shape ``(row, act)``.
        parity_scores: The critic's scores of them when it was saved, shape ``(row,)``: the
            largest risk, or the disagreement.
        metadata: Metadata as given to :func:`save_critic`.
        kind: ``"safety_critic"`` or ``"ensemble"``.
        digest: SHA-256 of the file without the digest itself, which identifies it.
    """

    critic: SafetyCritic | Ensemble
    spec: Spec
    parity_obs: np.ndarray
    parity_actions: np.ndarray
    parity_scores: np.ndarray
    metadata: dict[str, Any]
    kind: str
    digest: str


def save_critic(
    path: str | os.PathLike[str],
    critic: SafetyCritic | Ensemble,
    spec: Spec,
    parity_obs: Float[np.ndarray, "row obs"],
    parity_actions: Float[np.ndarray, "row act"],
    metadata: dict[str, Any] | None = None,
) -> str:
    """Writes a critic as one sealed ``.safetensors`` file, atomically.

    Args:
        path: Destination; an existing file is replaced.
        critic: A fitted safety critic or ensemble.
        spec: The control problem that it was fitted for.
        parity_obs: At least 32 observations in physical units, preferably rows of the log.
        parity_actions: An action for each. The resulting scores are stored, so that any other
            runtime can prove that it computes the same.
        metadata: Anything that should be stored with it, as plain JSON, such as the fit report.

    Returns:
        The digest of the file.

    Raises:
        TypeError: If ``critic`` is of neither kind.
        ValueError: If the rows or the metadata are not as stated, or a score is not finite.
        OSError: If the file cannot be written; the destination is then unchanged.
    """
    kind = _kind(critic)
    critic = as_arrays(critic)
    obs, actions = np.asarray(parity_obs, np.float32), np.asarray(parity_actions, np.float32)
    rows = max(len(obs), LEAST_OBSERVATIONS)
    if obs.shape != (rows, spec.n_obs) or actions.shape != (rows, spec.n_action):
        raise ValueError(
            f"parity_obs and parity_actions must be at least {LEAST_OBSERVATIONS} observations of "
            f"{spec.n_obs} channels and as many actions of {spec.n_action}, got shapes {obs.shape} "
            f"and {actions.shape}; take rows of the log"
        )
    scores = critic_scores(critic, obs, actions)
    if not np.isfinite(scores).all():
        raise ValueError(
            "the critic gives scores that are not finite; take rows of the log without NaN"
        )
    return save_tree(
        Path(path),
        critic,
        what="critic",
        version=VERSION,
        kind=kind,
        static=nested_static(critic),
        spec=spec,
        parity={"obs": obs, "actions": actions, "scores": scores},
        metadata=metadata,
    )


def load_critic(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> CriticArtefact:
    """Reads a critic artefact; its digest is checked before anything in it is used.

    Args:
        path: A file that :func:`save_critic` wrote.
        max_bytes: Larger files are refused unread.

    Returns:
        The artefact. On the machine and versions that wrote it, its critic reproduces the stored
        scores of its parity rows bit by bit.

    Raises:
        ArtefactError: If the file is not a critic, too large, truncated, changed, of an unknown
            version or kind, or its arrays do not fit its kind.
        OSError: If it cannot be opened.
    """
    loaded = load_tree(
        Path(path),
        what="critic",
        version=VERSION,
        kinds=KINDS,
        template=_template,
        parity=("obs", "actions", "scores"),
        max_bytes=max_bytes,
    )
    return CriticArtefact(
        critic=loaded.tree,
        spec=loaded.spec,
        parity_obs=loaded.parity["obs"],
        parity_actions=loaded.parity["actions"],
        parity_scores=loaded.parity["scores"],
        metadata=loaded.metadata,
        kind=loaded.kind,
        digest=loaded.digest,
    )


def critic_scores(
    critic: SafetyCritic | Ensemble, obs: Array | np.ndarray, actions: Array | np.ndarray
) -> np.ndarray:
    """The score that a monitor uses, for every row: the largest risk, or the disagreement.

    Args:
        critic: A fitted critic.
        obs: Observations in physical units, shape ``(row, obs)``.
        actions: Actions in physical units, shape ``(row, act)``.

    Returns:
        One score per row.

    Raises:
        TypeError: If ``critic`` is not a critic.
    """
    _kind(critic)
    f32 = (jnp.asarray(x, jnp.float32) for x in (obs, actions))
    return np.asarray(_scores(critic, *f32))


@jax.jit
def _scores(critic: Any, obs: jax.Array, actions: jax.Array) -> jax.Array:
    score = SCORES[_kind(critic)]
    return jax.vmap(score, in_axes=(None, 0, 0))(critic, obs, actions)


def _kind(critic: Any) -> str:
    for name, kind in KINDS.items():
        if type(critic) is kind:
            return name
    raise TypeError(f"expected a SafetyCritic or an Ensemble, got a {type(critic).__name__}")


def _template(kind: str, spec: Spec, static: dict[str, Any]) -> Any:
    return eqx.filter_eval_shape(nested_template(KINDS[kind]), spec, static)
