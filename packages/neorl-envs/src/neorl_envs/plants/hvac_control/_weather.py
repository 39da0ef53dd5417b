"""Disturbances of the building: weather, people and prices, sampled or recorded."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_envs.blocks import autoregressive
from neorl_envs.plants.hvac_control._physics import DT, DT_HOURS, Constants

AN_HOUR = 4
PRICES = (0.0444, 0.0842, 0.13814)
"""Off-peak, mid-peak and on-peak price, $/kWh: the dynamic price of BOPTEST's bestest_air."""


class World(NamedTuple):
    """The state of weather and people.

    Attributes:
        season: 1 in the warmest week of the year, -1 in the coldest.
        front: Deviation of the temperature from the climate, K.
        cloud: Deviation of the clearness from its mean.
        crowd: Deviation of the occupancy from its mean.
    """

    season: Float[Array, ""]
    front: Float[Array, ""]
    cloud: Float[Array, ""]
    crowd: Float[Array, ""]


class Conditions(NamedTuple):
    """Disturbances of the building in one period.

    Attributes:
        temperature: Outdoor temperature, degC.
        radiation: Global horizontal radiation, W/m2.
        people: Fraction of all people who are present.
        price: Price of electricity, $/kWh.
    """

    temperature: Float[Array, ""]
    radiation: Float[Array, ""]
    people: Float[Array, ""]
    price: Float[Array, ""]


def world_at_start(c: Constants, key: PRNGKeyArray) -> World:
    """Samples a week of the year and its weather."""
    keys = jax.random.split(key)
    day = c.day + c.day_spread * jax.random.uniform(keys[0], (), c.day.dtype, -1, 1)
    normal = jax.random.normal(keys[1], (3,), c.day.dtype)
    return World(
        season=jnp.cos(2 * jnp.pi / 365 * (day - 200)),
        front=c.front_sd * normal[0],
        cloud=c.clearness_sd * normal[1],
        crowd=c.crowd_sd * normal[2],
    )


def world_later(c: Constants, world: World, normal: Float[Array, "3"]) -> World:
    """Weather and people one period later, from standard normal numbers."""
    return World(
        world.season,
        autoregressive(world.front, normal[0], sd=c.front_sd, memory=c.front_memory, dt=DT),
        autoregressive(world.cloud, normal[1], sd=c.clearness_sd, memory=c.cloud_memory, dt=DT),
        autoregressive(world.crowd, normal[2], sd=c.crowd_sd, memory=c.crowd_memory, dt=DT),
    )


def hour_of(time: Array, dtype: Any) -> Float[Array, ""]:
    """Hour of the day."""
    return (time % 96).astype(dtype) * DT_HOURS


def is_open(time: Array) -> Array:
    """Whether the office is open: 8 to 18 h on the first five days of a week."""
    hour = time % 96
    return (hour >= 32) & (hour < 72) & (time // 96 % 7 < 5)


def conditions(c: Constants, world: World, time: Array, ahead: int = 0) -> Conditions:
    """Weather, people and price at a step, or their expectation some steps ahead.

    In the expectation, the current deviations from the climate decay; for recorded weather it is
    the record itself.
    """
    dtype = world.front.dtype
    later = time + ahead
    hour = hour_of(later, dtype)
    mean, amplitude, daily = c.climate
    front = world.front * jnp.exp(-ahead * DT / c.front_memory)
    temperature = mean + amplitude * world.season + front
    temperature = temperature + daily * jnp.cos(2 * jnp.pi * (hour - 15) / 24)
    length = c.day_length[0] + c.day_length[1] * world.season
    height = jnp.maximum(jnp.sin(jnp.pi * ((hour - 12) / length + 0.5)), 0)
    height = jnp.where(jnp.abs(hour - 12) < length / 2, height, 0)
    clear = c.clearness + world.cloud * jnp.exp(-ahead * DT / c.cloud_memory)
    noon = c.sun[0] + c.sun[1] * world.season
    radiation = noon * height * jnp.clip(clear, 0.1, 1.0)
    people = jnp.where(is_open(later), jnp.clip(c.crowd + world.crowd, 0.1, 1.0), 0)
    sampled = (temperature, radiation, _price(later, hour, dtype))
    records = (c.temperature_record, c.radiation_record, c.price_record)
    mixed = [
        share * _entry(record, later) + (1 - share) * value
        for share, record, value in zip(c.recorded, records, sampled, strict=True)
    ]
    return Conditions(mixed[0], mixed[1], people.astype(dtype), mixed[2])


def _price(time: Array, hour: Array, dtype: Any) -> Float[Array, ""]:
    off, mid, peak = jnp.asarray(PRICES, dtype)
    price = jnp.where((hour >= 9) & (hour < 21), mid, off)
    price = jnp.where((hour >= 14) & (hour < 18), peak, price)
    return jnp.where(time // 96 % 7 < 5, price, off)


def _entry(record: Array, time: Array) -> Array:
    record = jnp.atleast_1d(record)
    return record[jnp.clip(time, 0, record.shape[0] - 1)]


def replace_series(
    c: Constants,
    steps: int,
    *,
    temperature: Float[ArrayLike, " time"] | None = None,
    radiation: Float[ArrayLike, " time"] | None = None,
    price: Float[ArrayLike, " time"] | None = None,
) -> Constants:
    """The constants with a user's own series in place of sampled ones."""
    names = ("temperature", "radiation", "price")
    for i, (name, series) in enumerate(zip(names, (temperature, radiation, price), strict=True)):
        if series is None:
            continue
        array = np.asarray(series, np.float64)
        if array.ndim != 1 or array.size < steps:
            raise ValueError(
                f"{name} must have shape (time,) with at least {steps} steps of {DT:g} s (the "
                f"horizon and an hour), got {array.shape}; interpolate hourly data"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite; fill them")
        values = {f"{name}_record": jnp.asarray(array, c.day.dtype)}
        c = c._replace(recorded=c.recorded.at[i].set(1.0), **values)
    return c
