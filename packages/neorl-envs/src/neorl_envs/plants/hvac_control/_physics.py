"""Five zones of an office as a network of resistances and capacities, and its disturbances."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core.linear_systems import zero_order_hold
from neorl_envs.blocks import Relation, autoregressive, constant

DT = 900.0
DT_HOURS = DT / 3600
ZONES = ("core", "south", "north", "east", "west")
OFFICE = "ASHRAE 90.1 small office, areas and U values as in SustainGym (Yeh et al. 2023)"
OWN = "own choice"


class Constants(NamedTuple):
    """The building, its heat pumps, its use and the weather.

    The zones are core, south, north, east and west, in this order.

    Attributes:
        air_capacity: Heat capacity of air and furniture, six times that of the air, MJ/K.
        mass_capacity: Heat capacity of floors and walls, MJ/K.
        outdoor: Conductance of air to outdoors, including infiltration, W/K.
        ground: Conductance of air to the ground, W/K.
        surface: Conductance of air to mass, W/K.
        core_to_sides: Conductance of the core to south, north, east, west, W/K.
        corners: Conductance between south or north and east or west, W/K.
        floor: Floor area, m2.
        window: Window area, m2.
        solar_gain: Fraction of the radiation on a window that enters.
        ground_temperature: Temperature of the ground, degC.
        cooling: Coefficient of performance at 30 degC and its slope, 1/K.
        heating: Coefficient of performance at 8 degC and its slope, 1/K.
        fans: Electric power of the fans per unit of thermal power.
        person: Heat of a person, W.
        area_a_person: Floor area per person, m2.
        equipment: Power of plugs and lights in use, W/m2.
        standby: Fraction of it that runs when nobody is present.
        crowd: Mean fraction of people present during opening hours.
        crowd_sd: Standard deviation of this fraction.
        day: Day of the year on which the week begins.
        day_spread: Half-width of its uniform distribution.
        climate: Yearly mean, yearly amplitude and daily amplitude of the temperature, K.
        front_sd: Standard deviation of the weather about the climate, K.
        front_memory: Time constant of the weather, s.
        sun: Yearly mean and amplitude of the noon radiation under a clear sky, W/m2.
        day_length: Yearly mean and amplitude of the length of the day, h.
        clearness: Mean fraction of the radiation that passes the clouds.
        clearness_sd: Standard deviation of this fraction.
        cloud_memory: Time constant of the clouds, s.
        crowd_memory: Time constant of the occupancy, s.
        recorded: Three flags, 1 if temperature, radiation or price comes from a record, else 0.
        temperature_record: Outdoor temperature by step, degC.
        radiation_record: Global horizontal radiation by step, W/m2.
        price_record: Price of electricity by step, $/kWh.
    """

    air_capacity: Array = constant((3.30, 2.50, 2.50, 1.49, 1.49), "MJ/K", OFFICE, spread=1.0)
    mass_capacity: Array = constant(
        (24.7, 18.7, 18.7, 11.1, 11.1), "MJ/K", "165 kJ/K m2, ISO 13790 medium", spread=1.0
    )
    outdoor: Array = constant(
        (67.0, 137.6, 129.4, 82.5, 82.5),
        "W/K",
        "ASHRAE 90.1, 0.2 ach",
        spread=1.0,
    )
    ground: Array = constant((23.9, 18.1, 18.1, 10.7, 10.7), "W/K", "half of ASHRAE 90.1")
    surface: Array = constant(
        (1192.0, 903.0, 903.0, 536.0, 536.0), "W/K", "8 W/(m2 K) of floor, own choice", spread=1.0
    )
    core_to_sides: Array = constant((97.1, 97.1, 46.4, 46.4), "W/K", "U 1.8 W/m2 K, own choice")
    corners: Array = constant(38.8, "W/K", "U 1.8 W/m2 K, own choice")
    floor: Array = constant((149.66, 113.45, 113.45, 67.30, 67.30), "m2", OFFICE)
    window: Array = constant((0.0, 20.64, 16.73, 11.16, 11.16), "m2", OFFICE, domain="not negative")
    solar_gain: Array = constant(0.39, "1", "ASHRAE 90.1 glass", spread=1.0, domain="fraction")
    ground_temperature: Array = constant(14.0, "degC", OWN, domain="real")
    cooling: Array = constant((3.6, 0.06), "1, 1/K", OWN)
    heating: Array = constant((3.2, 0.06), "1, 1/K", OWN)
    fans: Array = constant(0.05, "kW/kW", OWN)
    person: Array = constant(70.0, "W", "ASHRAE 90.1 office")
    area_a_person: Array = constant(18.6, "m2", "ASHRAE 90.1 office")
    equipment: Array = constant(14.0, "W/m2", "ASHRAE 90.1 office", spread=1.0)
    standby: Array = constant(0.1, "1", OWN, domain="fraction")
    crowd: Array = constant(0.85, "1", OWN, domain="fraction")
    crowd_sd: Array = constant(0.1, "1", OWN, clean=0.0, domain="not negative")
    day: Array = constant(200.0, "d", OWN, domain="real")
    day_spread: Array = constant(182.5, "d", OWN, clean=0.0, domain="not negative")
    climate: Array = constant((11.0, 12.0, 6.0), "degC, K, K", OWN, domain="real")
    front_sd: Array = constant(1.44, "K", OWN, clean=0.0, domain="not negative")
    front_memory: Array = constant(29548.0, "s", "0.97 a step, own choice")
    sun: Array = constant((700.0, 250.0), "W/m2", OWN)
    day_length: Array = constant((12.0, 3.0), "h", "latitude 40 degrees")
    clearness: Array = constant(0.75, "1", OWN, domain="fraction")
    clearness_sd: Array = constant(0.2, "1", OWN, clean=0.0, domain="not negative")
    cloud_memory: Array = constant(7200.0, "s", OWN)
    crowd_memory: Array = constant(7200.0, "s", OWN)
    recorded: Array = constant((0.0, 0.0, 0.0), "1", OWN, domain="fraction")
    temperature_record: Array = constant(0.0, "degC", "a user's file", domain="real")
    radiation_record: Array = constant(0.0, "W/m2", "a user's file", domain="not negative")
    price_record: Array = constant(0.0, "$/kWh", "a user's file", domain="real")


RELATIONS = (
    Relation("air_capacity", "<", "mass_capacity", "air is the fast part of a zone"),
    Relation("sun[1]", "<", "sun[0]", "the sun shines in the darkest week too"),
    Relation("day_length[1]", "<", "day_length[0]", "the shortest day has some length"),
    Relation("day_length[0] + day_length[1]", "<=", 24.0, "no day is longer"),
)


class Building(NamedTuple):
    """Temperatures in degC.

    Attributes:
        air: Air temperature of the zones, shape ``(5,)``.
        mass: Temperature of floors and walls, shape ``(5,)``; not measured.
    """

    air: Float[Array, "5"]
    mass: Float[Array, "5"]


class Sampled(NamedTuple):
    """The discrete-time network over one period.

    Attributes:
        transition: Transition matrix of the ten temperatures, air first, shape ``(10, 10)``.
        inputs: Input matrix for outdoor and ground temperature in degC, and the heat in kW to air
            and mass of every zone, shape ``(10, 12)``.
    """

    transition: Float[Array, "10 10"]
    inputs: Float[Array, "10 12"]


def network(c: Constants) -> tuple[Float[Array, "10 10"], Float[Array, "10 12"]]:
    """``A`` and ``B`` of the continuous network ``C T' = -L T + inputs``, per second."""
    south, north, east, west = 1, 2, 3, 4
    links = jnp.zeros((5, 5), c.outdoor.dtype).at[0, 1:].set(c.core_to_sides)
    for side in (south, north):
        links = links.at[side, jnp.asarray((east, west))].set(c.corners)
    links = links + links.T
    air, mass = 1e6 * c.air_capacity, 1e6 * c.mass_capacity
    losses = c.outdoor + c.ground + c.surface + links.sum(axis=1)
    a = jnp.block(
        [
            [(links - jnp.diag(losses)) / air[:, None], jnp.diag(c.surface / air)],
            [jnp.diag(c.surface / mass), jnp.diag(-c.surface / mass)],
        ]
    )
    weather = jnp.stack([c.outdoor / air, c.ground / air], axis=1)
    b = jnp.zeros((10, 12), a.dtype).at[:5, :2].set(weather)
    heat = jnp.concatenate([1e3 / air, 1e3 / mass])
    return a, b.at[:, 2:].set(jnp.diag(heat))


def discretise(c: Constants) -> Sampled:
    """The exact discretisation of the network with inputs held over one period."""
    return Sampled(*zero_order_hold(*network(c), dt=DT))


def gains(
    c: Constants, radiation: Array, people: Array, hour: Array
) -> tuple[Float[Array, "5"], Float[Array, "5"]]:
    """Heat from the sun and from use in kW, each of shape ``(5,)``.

    The direct radiation on a window is a sine of the hour that peaks at 12 h in the south, 8 h in
    the east and 16 h in the west, in addition to 25 % of diffuse light. The power of the equipment
    is its stand-by power plus a part proportional to the occupancy.
    """
    noon = jnp.asarray((12.0, 12.0, 12.0, 8.0, 16.0), radiation.dtype)
    direct = jnp.asarray((0.0, 0.45, 0.0, 0.55, 0.55), radiation.dtype)
    facing = 0.25 + direct * jnp.maximum(jnp.cos(jnp.pi / 12 * (hour - noon)), 0)
    sun = 1e-3 * c.solar_gain * c.window * facing * radiation
    running = c.standby + (1 - c.standby) * people
    use = 1e-3 * c.floor * (c.person / c.area_a_person * people + c.equipment * running)
    return sun, use


def held_inputs(
    c: Constants,
    heat: Float[Array, "5"],
    outdoor: Array,
    sun: Float[Array, "5"],
    use: Float[Array, "5"],
) -> Float[Array, "12"]:
    """Inputs held over a period, in the order of :func:`network`; ``heat`` and gains in kW."""
    to_air, to_mass = heat + 0.5 * sun + 0.6 * use, 0.5 * sun + 0.4 * use
    weather = jnp.stack([outdoor, c.ground_temperature])
    return jnp.concatenate([weather, to_air, to_mass])


def evolve_building(step: Sampled, building: Building, held: Float[Array, "12"]) -> Building:
    """The building one period later, under inputs that are held."""
    x = step.transition @ jnp.concatenate(building) + step.inputs @ held
    return Building(x[:5], x[5:])


def electric_power(c: Constants, heat: Float[Array, "5"], outdoor: Array) -> Float[Array, ""]:
    """Power of the heat pumps and fans, kW."""
    cooling = jnp.clip(c.cooling[0] - c.cooling[1] * (outdoor - 30), 2.0, 5.0)
    heating = jnp.clip(c.heating[0] + c.heating[1] * (outdoor - 8), 1.6, 4.5)
    one = jnp.abs(heat) * (1 / jnp.where(heat < 0, cooling, heating) + c.fans)
    return one.sum()


# Disturbances of the building: weather, people and prices, sampled or recorded.


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
