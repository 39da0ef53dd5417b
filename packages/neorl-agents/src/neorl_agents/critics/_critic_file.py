"""The critic artefact: a safety critic or an ensemble in one sealed file."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_agents.artefact._artefact import LEAST_OBSERVATIONS, MAX_BYTES
from neorl_agents.artefact._sealed_file import (
    ArtefactError,
    named_leaves,
    read_sealed,
    write_sealed,
)
from neorl_agents.calibration import MonotoneMap
from neorl_agents.critics._ensemble import Ensemble, disagreement
from neorl_agents.critics._safety_critic import SafetyCritic, largest_risk
from neorl_agents.networks import ACTIVATIONS, MLP, activation_name
from neorl_core import Affine, Spec, as_arrays, spec_from_dict, spec_to_dict
from neorl_core.infrastructure import check_head, head

VERSION = 1
SCORES = {"safety_critic": largest_risk, "ensemble": disagreement}
"""What a monitor asks of each kind; a file may hold no other."""


class CriticArtefact(NamedTuple):
    """A critic with what is needed to trust it.

    Attributes:
        critic: A :class:`SafetyCritic` or an :class:`Ensemble`.
        spec: The control problem that it was fitted for.
        parity_obs: Observations in physical units, shape ``(row, obs)``.
        parity_actions: Actions asked about, shape ``(row, act)``.
        parity_scores: What the critic said of them when it was saved, shape ``(row,)``: the
            largest risk, or the disagreement.
        metadata: Metadata as given to :func:`save_critic`.
        kind: ``"safety_critic"`` or ``"ensemble"``.
        digest: SHA-256 of the file but for the digest itself: its identity.
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
    """Writes a critic as one sealed ``.safetensors`` file, completely or not at all.

    Args:
        path: Destination; an existing file is replaced.
        critic: A fitted safety critic or ensemble.
        spec: The control problem that it was fitted for.
        parity_obs: At least 32 observations in physical units, best rows of the log.
        parity_actions: An action for each. The scores given are stored, so that any other runtime
            can prove that it says the same.
        metadata: Whatever should travel along, as plain JSON: the report of the fit, for one.

    Returns:
        The digest of the file.

    Raises:
        TypeError: If it is neither kind.
        ValueError: If the rows or the metadata are not as stated, or a score is not finite.
        OSError: If the file cannot be written; the destination is then as it was.
    """
    kind = _kind(critic)
    critic = as_arrays(critic)
    obs, actions = np.asarray(parity_obs, np.float32), np.asarray(parity_actions, np.float32)
    rows = max(len(obs), LEAST_OBSERVATIONS)
    if obs.shape != (rows, spec.n_obs) or actions.shape != (rows, spec.n_action):
        raise ValueError(
            f"a critic is stored with at least {LEAST_OBSERVATIONS} observations of {spec.n_obs} "
            f"channels and as many actions of {spec.n_action}, got shapes {obs.shape} and "
            f"{actions.shape}; take rows of the log"
        )
    scores = critic_scores(critic, obs, actions)
    if not np.isfinite(scores).all():
        raise ValueError("the critic gives scores that are not finite; take finite rows of the log")
    arrays = {f"critic/{name}": np.asarray(leaf) for name, leaf in named_leaves(critic)}
    arrays |= {"parity/obs": obs, "parity/actions": actions, "parity/scores": scores}
    header = {
        **head("critic", VERSION),
        "kind": kind,
        "static": _static(critic),
        "spec": spec_to_dict(spec),
        "metadata": metadata or {},
    }
    return write_sealed(Path(path), arrays, header)


def load_critic(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> CriticArtefact:
    """Reads a critic artefact; its digest is checked before anything in it is used.

    Args:
        path: A file that :func:`save_critic` wrote.
        max_bytes: Larger files are refused unread.

    Returns:
        The artefact; its critic gives on its parity rows the stored scores to the bit, on the
        machine and the versions that wrote it.

    Raises:
        ArtefactError: If the file is no critic, too large, truncated, changed, of an unknown
            version or kind, or its arrays do not fit its kind.
        OSError: If it cannot be opened.
    """
    path = Path(path)
    arrays, header, digest = read_sealed(path, max_bytes)
    header = check_head(header, "critic", VERSION, str(path), ArtefactError)
    try:
        kind = str(header["kind"])
        template = _TEMPLATES[kind](header["static"])
        spec, metadata = spec_from_dict(header["spec"]), dict(header["metadata"])
        parity = [arrays[f"parity/{name}"] for name in ("obs", "actions", "scores")]
        leaves = [jnp.asarray(arrays[f"critic/{name}"]) for name, _ in named_leaves(template)]
        critic = jax.tree.unflatten(jax.tree.structure(template), leaves)
        scored = jax.eval_shape(_scores, critic, *parity[:2]).shape
    except (KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ArtefactError(f"{path} does not fit its kind: {reason}") from error
    if scored != parity[2].shape:
        raise ArtefactError(f"{path} has {parity[2].shape} parity scores, expected {scored}")
    obs, actions, scores = parity
    return CriticArtefact(critic, spec, obs, actions, scores, metadata, kind, digest)


def critic_scores(
    critic: SafetyCritic | Ensemble, obs: Array | np.ndarray, actions: Array | np.ndarray
) -> np.ndarray:
    """The score that a monitor sees, for every row: the largest risk, or the disagreement.

    Args:
        critic: A fitted critic.
        obs: Observations in physical units, shape ``(row, obs)``.
        actions: Actions in physical units, shape ``(row, act)``.

    Returns:
        One score a row.

    Raises:
        TypeError: If it is no critic.
    """
    _kind(critic)
    f32 = (jnp.asarray(x, jnp.float32) for x in (obs, actions))
    return np.asarray(_scores(critic, *f32))


@jax.jit
def _scores(critic: Any, obs: jax.Array, actions: jax.Array) -> jax.Array:
    score = SCORES[_kind(critic)]
    return jax.vmap(score, in_axes=(None, 0, 0))(critic, obs, actions)


def _kind(critic: Any) -> str:
    kinds = {SafetyCritic: "safety_critic", Ensemble: "ensemble"}
    if type(critic) not in kinds:
        raise TypeError(
            f"a {type(critic).__name__} is no critic; give a SafetyCritic or an Ensemble"
        )
    return kinds[type(critic)]


def _static(critic: SafetyCritic | Ensemble) -> dict[str, Any]:
    fields = {"members": _network_static(critic.members)}
    if isinstance(critic, SafetyCritic):
        return fields | {"quantity": critic.quantity, "horizon": critic.horizon}
    priors = None if critic.priors is None else _network_static(critic.priors)
    return fields | {"priors": priors, "target": critic.target}


def _network_static(network: MLP) -> dict[str, Any]:
    return {
        "layers": len(network.weights),
        "activation": activation_name(network.activation),
        "output": activation_name(network.output),
        "layer_norm": bool(network.gains),
    }


def _network(static: dict[str, Any]) -> MLP:
    layers = (0.0,) * int(static["layers"])
    norms = layers[:-1] if static["layer_norm"] else ()
    return MLP(
        layers,  # pyright: ignore[reportArgumentType]
        layers,  # pyright: ignore[reportArgumentType]
        activation=ACTIVATIONS.find(static["activation"]),
        output=ACTIVATIONS.find(static["output"]),
        gains=norms,  # pyright: ignore[reportArgumentType]
        shifts=norms,  # pyright: ignore[reportArgumentType]
    )


def _safety_critic(static: dict[str, Any]) -> Any:
    zero: Any = 0.0
    return SafetyCritic(
        obs=Affine(zero, zero),
        action=Affine(zero, zero),
        members=_network(static["members"]),
        shift=zero,
        scale=zero,
        calibration=MonotoneMap(zero, zero),
        quantity=static["quantity"],
        horizon=int(static["horizon"]),
    )


def _ensemble(static: dict[str, Any]) -> Any:
    zero: Any = 0.0
    priors = None if static["priors"] is None else _network(static["priors"])
    return Ensemble(
        obs=Affine(zero, zero),
        action=Affine(zero, zero),
        members=_network(static["members"]),
        priors=priors,
        prior_scale=zero,
        outputs=Affine(zero, zero),
        typical=zero,
        noise=zero,
        spread=zero,
        width=zero,
        target=static["target"],
    )


_TEMPLATES = {"safety_critic": _safety_critic, "ensemble": _ensemble}
