"""Three actuators: ranges, slew limits and the feed lock of the recipe."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from neorl_core import Channel, highs, lows
from neorl_envs.chemical_reactor._parameters import Scalar

ACTION = (
    Channel("feed", "kg/h", 0.0, 30_000.0),
    Channel("T_in_M", "K", 333.15, 373.15),
    Channel("T_in_EK", "K", 333.15, 373.15),
)
SLEWS = (6000.0, 4.0, 4.0)  # largest change a control period: kg/h, K, K
START = (0.0, 363.15, 353.15)  # positions at the start of a batch
FEED_LOCK = 30_000.0  # kg of accumulated feed: the recipe has no more


class Inputs(NamedTuple):
    """What the actuators deliver during one control period.

    Attributes:
        feed: kg/h.
        jacket: Inlet temperature of the jacket, K.
        exchanger: Inlet temperature of the external heat exchanger, K.
    """

    feed: Scalar
    jacket: Scalar
    exchanger: Scalar


def at_start(dtype: DTypeLike) -> Inputs:
    """Positions at the start of a batch."""
    return Inputs(*(jnp.asarray(value, dtype) for value in START))


def deliver(action: Float[Array, " act"], last: Inputs, fed: Scalar, hours: float) -> Inputs:
    """What the actuators deliver when ``action`` is demanded.

    Args:
        action: Demand in kg/h and K. A channel that is NaN leaves its actuator where it is.
        last: What they delivered in the last period.
        fed: Feed accumulated so far, kg.
        hours: Control period.

    Returns:
        Inside range and slew limit; the feed never exceeds what is left of the recipe.

    Raises:
        ValueError: If the action has another shape than ``(3,)``.
    """
    if action.shape != (len(ACTION),):
        raise ValueError(f"an action has shape ({len(ACTION)},), got {action.shape}")
    position = jnp.stack(last)
    slew = jnp.asarray(SLEWS, position.dtype)
    wanted = jnp.where(jnp.isnan(action), position, action).astype(position.dtype)
    inside = jnp.clip(wanted, jnp.asarray(lows(ACTION)), jnp.asarray(highs(ACTION)))
    feed, jacket, exchanger = jnp.clip(inside, position - slew, position + slew)
    left = jnp.maximum(FEED_LOCK - fed, 0) / hours
    dtype = position.dtype
    return Inputs(jnp.minimum(feed, left).astype(dtype), jacket.astype(dtype), exchanger)
