"""Safety critics: the risk for every limit, given an observation and a proposed action."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.calibration import MonotoneMap
from neorl_agents.networks import MLP
from neorl_core import Affine

Quantity = Literal["violation", "cost"]
"""What a safety critic predicts; see :class:`SafetyCritic`."""

LEAST_HAZARD = 1e-7
"""Added to a cumulative hazard, so that the logarithm of a probability stays finite."""


class SafetyCritic(eqx.Module):
    """Members that see an observation and an action, with one head per limit and step ahead.

    For ``"violation"``, head ``j`` of a limit is the probability that one of the next ``j`` steps
    counts against it, ``P_j = 1 - exp(-sum_{i <= j} softplus(z_i))``, which grows with the horizon.
    For ``"cost"`` it is the expected cost of the next ``j`` steps, ``sum_{i <= j} z_i``, in units
    of ``scale``. The first step is that of the action itself. The members are averaged.

    Attributes:
        obs: Map that standardises observations.
        action: Map from the range of every action channel to [-1, 1].
        members: Stacked networks with ``cost * horizon`` outputs.
        shift: Added to the outputs of every limit, shape ``(cost,)``.
        scale: Cost of one unit of the heads, shape ``(cost,)``; 1 for probabilities.
        calibration: Map from the last head of every limit to the outcomes of held-out episodes.
        quantity: ``"violation"`` or ``"cost"``; static.
        horizon: Number of heads, the last of which covers that many steps; static.
    """

    obs: Affine
    action: Affine
    members: MLP
    shift: Float[Array, " cost"]
    scale: Float[Array, " cost"]
    calibration: MonotoneMap
    quantity: Quantity = eqx.field(static=True)
    horizon: int = eqx.field(static=True)


def horizon_curve(
    critic: SafetyCritic, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, "cost horizon"]:
    """The prediction of every head, before calibration.

    Args:
        critic: A fitted critic.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units.

    Returns:
        Probabilities, or costs in their units, for 1, 2, ... steps; NaN if an input is NaN.
    """
    inputs = jnp.concatenate([critic.obs.to_scaled(obs), critic.action.to_scaled(action)])
    heads = jax.vmap(raw_heads, in_axes=(0, None, None))(critic.members, inputs, critic.shift)
    return jnp.mean(predictions(heads, critic.quantity), axis=0) * critic.scale[:, None]


def limit_risks(
    critic: SafetyCritic, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, " cost"]:
    """The calibrated prediction for the complete horizon, one number per limit.

    Args:
        critic: A fitted critic.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units.

    Returns:
        Probabilities, or costs in their units; NaN if an input is NaN.
    """
    return critic.calibration(horizon_curve(critic, obs, action)[:, -1])


def largest_risk(
    critic: SafetyCritic, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, ""]:
    """The largest of :func:`limit_risks`, in units of ``scale``, for a monitor.

    It has the signature that ``neorl_safety.monitoring.CriticMonitor`` requires of its ``apply``.

    Args:
        critic: A fitted critic.
        obs: One observation in physical units.
        action: The action proposed for it, in physical units.

    Returns:
        A scalar, larger for a higher risk; NaN if an input is NaN.
    """
    return jnp.max(limit_risks(critic, obs, action) / critic.scale)


def raw_heads(
    network: MLP, inputs: Float[Array, "*batch in"], shift: Float[Array, " cost"]
) -> Float[Array, "*batch cost horizon"]:
    """The outputs of one member, by limit and step ahead."""
    outputs = network(inputs)
    heads = outputs.reshape(*outputs.shape[:-1], shift.shape[0], -1)
    return heads + shift.reshape((1,) * (heads.ndim - 2) + (-1, 1))


def predictions(heads: Float[Array, "*batch horizon"], quantity: Quantity) -> Array:
    """The predictions of raw heads for 1, 2, ... steps."""
    if quantity == "cost":
        return jnp.cumsum(heads, axis=-1)
    return -jnp.expm1(-cumulative_hazard(heads))


def cumulative_hazard(heads: Float[Array, "*batch horizon"]) -> Float[Array, "*batch horizon"]:
    """The negated logarithm of the probability that nothing has happened yet."""
    return jnp.cumsum(jax.nn.softplus(heads), axis=-1) + LEAST_HAZARD
