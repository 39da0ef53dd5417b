"""Ensembles of action-value networks, stacked along a leading axis."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.networks._encoders import Network


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
