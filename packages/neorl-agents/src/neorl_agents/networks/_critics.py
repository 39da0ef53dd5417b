"""Ensembles of action-value networks, stacked along a leading axis."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks._encoders import Encoding, Network, init_network
from neorl_agents.networks._mlp import Initialiser, ensemble


def init_critics(
    widths: tuple[int, ...],
    key: PRNGKeyArray,
    *,
    initialiser: Initialiser = "uniform",
    members: int = 2,
    encoding: Encoding | None = None,
    **options: Any,
) -> Network:
    """``members`` networks from ``(obs, action)`` to one number, with independent weights.

    Args:
        widths: Lengths of the input and of the hidden layers.
        key: Random key; consumed.
        initialiser: Initialiser of the weights of every member.
        members: Number of networks.
        encoding: Form of the observation in the inputs; ``None`` is the observation itself.
        **options: Further options of :func:`init_mlp`.

    Returns:
        The stacked networks.
    """

    def critic(member_key: PRNGKeyArray) -> Network:
        return init_network(
            (*widths, 1), member_key, encoding=encoding, initialiser=initialiser, **options
        )

    return ensemble(members, critic, key)


def q_values(
    critics: Network, obs: Float[Array, "batch obs"], action: Float[Array, "batch act"]
) -> Float[Array, "ens batch"]:
    """The value that every member assigns to every row, in scaled units."""
    inputs = jnp.concatenate([obs, action], axis=-1)
    return jax.vmap(_value, in_axes=(0, None))(critics, inputs)


def sampled_q_values(
    critics: Network, obs: Float[Array, "batch obs"], actions: Float[Array, "batch sample act"]
) -> Float[Array, "ens batch sample"]:
    """The values of several actions for every row."""
    batch, n, act = actions.shape
    repeated = jnp.broadcast_to(obs[:, None, :], (batch, n, obs.shape[-1]))
    q = q_values(critics, repeated.reshape(batch * n, -1), actions.reshape(batch * n, act))
    return q.reshape(-1, batch, n)


def first_q_value(
    critics: Network, obs: Float[Array, "batch obs"], action: Float[Array, "batch act"]
) -> Float[Array, " batch"]:
    """The values of only the first member."""
    inputs = jnp.concatenate([obs, action], axis=-1)
    return _value(jax.tree.map(_first, critics), inputs)


def _value(critic: Network, inputs: Float[Array, "batch in"]) -> Float[Array, " batch"]:
    return critic(inputs)[..., 0]


def _first(x: Array) -> Array:
    return x[0]
