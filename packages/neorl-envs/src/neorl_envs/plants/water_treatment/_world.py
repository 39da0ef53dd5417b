"""Disturbances of the works: raw water and demand."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_envs.blocks import autoregressive
from neorl_envs.plants.water_treatment._chemistry import Scalar, carbonate_of_water
from neorl_envs.plants.water_treatment._physics import PERIOD, Constants, Raw

WANDERS = ("turbidity", "alkalinity", "ph", "temperature", "demand")
SD = (0.35, 0.12, 0.10, 2.0, 0.05)  # logarithm, part, 1, K, part
MEMORY = (6 * 3600.0, 24 * 3600.0, 12 * 3600.0, 48 * 3600.0, 2 * 3600.0)  # s
DAY = 86400.0


class World(NamedTuple):
    """State of the disturbances.

    Attributes:
        wander: Standardised fluctuations in the order of ``WANDERS``, shape ``(5,)``.
        upstream: Storm turbidity in the catchment, NTU.
        storm: Storm turbidity at the intake, NTU.
        hour: Time of day, s.
    """

    wander: Float[Array, " process"]
    upstream: Scalar
    storm: Scalar
    hour: Scalar


class Draws(NamedTuple):
    """Random numbers of a step: normal ones for fluctuations, uniform ones for storms."""

    normal: Float[Array, " process"]
    storm: Float[Array, " 2"]


def move_disturbances(c: Constants, world: World, draws: Draws) -> World:
    """The disturbances one period later."""
    wander = autoregressive(
        world.wander,
        draws.normal,
        sd=jnp.ones_like(world.wander),
        memory=jnp.asarray(MEMORY, world.wander.dtype),
        dt=PERIOD,
    )
    storm_begins = draws.storm[0] < -jnp.expm1(-PERIOD / c.storms_apart)
    size = c.storm * (0.5 + draws.storm[1])
    upstream = world.upstream * jnp.exp(-PERIOD / c.storm_decay) + jnp.where(
        storm_begins, size, 0.0
    )
    rise = -jnp.expm1(-PERIOD / c.storm_rise)
    hour = jnp.mod(world.hour + PERIOD, DAY)
    return World(wander, upstream, world.storm + rise * (upstream - world.storm), hour)


def raw_water(c: Constants, world: World) -> Raw:
    """The raw water at the intake."""
    deviation = c.wander * world.wander * jnp.asarray(SD, world.wander.dtype)
    strength = jnp.minimum(world.storm / c.storm, 1.2)
    alkalinity = c.raw_alkalinity * (1 + jnp.clip(deviation[1], -0.4, 0.4))
    alkalinity = alkalinity * (1 - c.storm_dilution * strength)
    ph = c.raw_ph + jnp.clip(deviation[2], -0.4, 0.4) - 0.2 * strength
    return Raw(
        turbidity=c.raw_turbidity * jnp.exp(jnp.clip(deviation[0], -1.5, 1.5)) + world.storm,
        ph=ph,
        alkalinity=alkalinity,
        carbonate=carbonate_of_water(alkalinity, ph),
        temperature=c.raw_temperature + jnp.clip(deviation[3], -8, 8),
    )


def demand(c: Constants, world: World) -> Array:
    """Demand of the town, m3/s, highest in the early evening."""
    daily = c.day * jnp.sin(2 * jnp.pi * (world.hour / DAY - 0.45))
    wander = c.wander * jnp.clip(SD[4] * world.wander[4], -0.15, 0.15)
    return c.demand * (1 + daily + wander)
