"""Three actuators: ranges, slew limits and the feed lock of the recipe."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from neorl_core import Channel, highs, lows
from neorl_envs.plants.chemical_reactor._parameters import Scalar

ACTION = (
    Channel("feed", "kg/h", 0.0, 30_000.0),
    Channel("T_in_M", "K", 333.15, 373.15),
    Channel("T_in_EK", "K", 333.15, 373.15),
)
SLEWS = (6000.0, 4.0, 4.0)  # largest change a control period: kg/h, K, K
START = (0.0, 363.15, 353.15)  # positions at the start of a batch
FEED_LOCK = 30_000.0  # kg of accumulated feed: the recipe has no more


class Inputs(NamedTuple):
    """Positions of the actuators during one control period.

    Attributes:
        feed: Feed flow, kg/h.
        jacket: Inlet temperature of the jacket, K.
        exchanger: Inlet temperature of the external heat exchanger, K.
    """

    feed: Scalar
    jacket: Scalar
    exchanger: Scalar


def at_start(dtype: DTypeLike) -> Inputs:
    """Positions at the start of a batch."""
    return Inputs(*(jnp.asarray(value, dtype) for value in START))


def moved(action: Float[Array, " act"], last: Inputs) -> Inputs:
    """Where the actuators go when ``action`` is demanded.

    Args:
        action: Demand in kg/h and K. A channel that is NaN leaves its actuator where it is.
        last: Last positions of the actuators.

    Returns:
        The new positions, inside range and slew limit.

    Raises:
        ValueError: If the action has another shape than ``(3,)``.
    """
    if action.shape != (len(ACTION),):
        raise ValueError(f"an action has shape ({len(ACTION)},), got {action.shape}")
    position = jnp.stack(last)
    dtype = position.dtype
    slew, low, high = (jnp.asarray(x, dtype) for x in (SLEWS, lows(ACTION), highs(ACTION)))
    # NaN means "leave it": a channel in manual whose position nobody knows.
    demand = jnp.where(jnp.isnan(action), position, action.astype(dtype))
    inside = jnp.clip(demand, low, high)
    return Inputs(*jnp.clip(inside, position - slew, position + slew))


def delivered(inputs: Inputs, fed: Scalar, hours: float) -> Inputs:
    """What flows into the reactor: an open feed valve gives nothing once the recipe is used up.

    Args:
        inputs: Positions of the actuators.
        fed: Feed accumulated so far, kg.
        hours: Control period.

    Returns:
        The inputs, with the feed limited to what is left of the recipe over this period.
    """
    left = jnp.maximum(FEED_LOCK - fed, 0) / hours
    return inputs._replace(feed=jnp.minimum(inputs.feed, left))
