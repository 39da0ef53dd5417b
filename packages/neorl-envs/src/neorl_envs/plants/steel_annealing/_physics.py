"""Strip, zones and coils: constants, state, balances."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_envs.blocks import Relation, constant, runge_kutta

Scalar = Float[Array, ""]

ZONES, CELLS_IN_ZONE = 6, 10
CELLS = ZONES * CELLS_IN_ZONE
CELL = 2.0  # m
FURNACE = CELLS * CELL  # m
PERIOD = 20.0  # s
SUBSTEPS = 25  # of 0.8 s: at 2.8 m/s the strip moves 1.1 cells
MOST_CELLS = 1.25  # per substep; beyond 1.39, upwind differences become unstable
KELVIN = 273.15
STEFAN_BOLTZMANN = 5.670374e-8  # W/(m2 K4)
THINNEST, THICKEST = 0.5, 1.4  # mm
NARROWEST, WIDEST = 0.9, 1.5  # m
SHORTEST, LONGEST = 800.0, 1500.0  # m
SETPOINT, SETPOINT_STEP = 750.0, 30.0  # degC: the classes are 720, 750 and 780
OWN = "own choice"
FURNACES = "own choice, sized for 55 t/h"


class Constants(NamedTuple):
    """Physics of the furnace and variability of the coils."""

    density: Scalar = constant(7850.0, "kg/m3", "EN 1993-1-2")
    emissivity: Scalar = constant(
        0.30, "1", "own choice, cold-rolled strip", spread=0.5, domain="fraction"
    )
    ambient: Scalar = constant(30.0, "degC", OWN, domain="real")
    capacity: Scalar = constant(5e6, "J/K", FURNACES)
    efficiency: Scalar = constant(0.70, "1", FURNACES, domain="fraction")
    efficiency_drop: Scalar = constant(2e-4, "1/K", FURNACES)
    burner: Scalar = constant(3.25e6, "W", FURNACES)
    losses: Scalar = constant(700.0, "W/K", FURNACES, spread=1.0)
    exchange: Scalar = constant(1500.0, "W/K", FURNACES)
    mass_flow: Scalar = constant(15.5, "kg/s", FURNACES)
    slowest: Scalar = constant(1.2, "m/s", OWN)
    fastest: Scalar = constant(2.8, "m/s", OWN)
    speed_lag: Scalar = constant(10.0, "s", OWN)
    thickness_walk: Scalar = constant(0.12, "mm", OWN, clean=0.0, domain="not negative")
    width_walk: Scalar = constant(0.03, "m", OWN, clean=0.0, domain="not negative")
    new_setpoint: Scalar = constant(0.3, "1", OWN, clean=0.0, domain="fraction")
    length_range: Scalar = constant(350.0, "m", OWN, clean=0.0, domain="not negative")
    fuel_sd: Scalar = constant(0.015, "1", OWN, clean=0.0, domain="not negative")
    fuel_memory: Scalar = constant(1800.0, "s", OWN)
    inlet_sd: Scalar = constant(5.0, "K", OWN, clean=0.0, domain="not negative")
    inlet_memory: Scalar = constant(900.0, "s", OWN)


RELATIONS = (
    Relation("slowest", "<", "fastest"),
    Relation(
        "fastest",
        "<=",
        MOST_CELLS * CELL * SUBSTEPS / PERIOD,
        "the strip moves a cell and a quarter a substep at most",
    ),
    Relation("ambient", "<", SETPOINT - SETPOINT_STEP, "the furnace heats"),
    Relation("length_range", "<=", (SHORTEST + LONGEST) / 2 - 2 * FURNACE, "one weld is inside"),
    Relation("efficiency_drop", "<", 1 / 200, "burners heat up to the trip at 1100 degC"),
    Relation(0.0, "<", "initial.leaving.thickness"),
    Relation(0.0, "<", "initial.leaving.width"),
    Relation("initial.entered", "<=", "initial.coil.length", "no more has entered"),
)


class Coil(NamedTuple):
    """A coil of strip.

    Attributes:
        thickness: Thickness, mm.
        width: Width, m.
        setpoint: Setpoint of the temperature at the furnace exit, degC.
        length: Length, m.
    """

    thickness: Scalar
    width: Scalar
    setpoint: Scalar
    length: Scalar


class Furnace(NamedTuple):
    """State of the furnace and the line.

    Attributes:
        strip: Temperatures of the cells from entry to exit, degC, shape ``(60,)``.
        zones: Furnace temperatures, degC, shape ``(6,)``.
        speed: Speed of the line, m/s.
        entered: Length of ``coil`` that has entered, m; negative while its head is outside.
        leaving: The coil before it.
        coil: The coil that is entering.
        coming: The coil after it.
    """

    strip: Float[Array, " cell"]
    zones: Float[Array, " zone"]
    speed: Scalar
    entered: Scalar
    leaving: Coil
    coil: Coil
    coming: Coil


class Disturbance(NamedTuple):
    """State of the disturbances; also holds the random numbers that drive them.

    Attributes:
        fuel: Relative deviation of the heating value of the fuel.
        inlet: Deviation of the strip's inlet temperature, K.
        coil: Random numbers in [-1, 1) that determine the coil to be welded on next, shape
            ``(4,)``.
    """

    fuel: Scalar
    inlet: Scalar
    coil: Float[Array, " 4"]


class StripState(NamedTuple):
    """The part of the state that changes within a period."""

    strip: Float[Array, " cell"]
    zones: Float[Array, " zone"]
    speed: Scalar
    entered: Scalar


NOMINAL = Coil(0.9, 1.2, SETPOINT, 1150.0)  # type: ignore[arg-type]
_REACHED = np.expm1(-2.5 * (np.arange(CELLS) + 1) / CELLS) / np.expm1(-2.5)
INITIAL = Furnace(  # type: ignore[arg-type]
    *(30 + 720 * _REACHED, np.array([865.0, 873.0, 890.0, 914.0, 942.0, 964.0])),
    *(1.83, 300.0, NOMINAL, NOMINAL, NOMINAL),
)
"""The furnace close to its steady state with nominal strip."""


def heat_capacity(celsius: Array) -> Array:
    """Specific heat of carbon steel, J/(kg K): EN 1993-1-2, 3.4.1.2, limited to 1500."""
    t = celsius
    low = 425 + t * (0.773 + t * (-1.69e-3 + t * 2.22e-6))
    rising = 666 + 13002 / jnp.maximum(738 - t, 1.0)
    falling = 545 + 17820 / jnp.maximum(t - 731, 1.0)
    peak = jnp.where(t < 735, rising, jnp.where(t < 900, falling, 650.0))
    return jnp.minimum(jnp.where(t < 600, low, peak), 1500.0)


def wanted_speed(c: Constants, thickness: Array, width: Array) -> Array:
    """Speed at which a coil gives the nominal mass flow, within the line's limits, m/s."""
    return jnp.clip(c.mass_flow / (c.density * thickness * 1e-3 * width), c.slowest, c.fastest)


def next_coil(c: Constants, before: Coil, draw: Float[Array, " 4"]) -> Coil:
    """The coil after another one, from random numbers in [-1, 1).

    Thickness and width change by uniform steps with the standard deviations of the constants. The
    setpoint changes to a neighbouring class with probability ``new_setpoint``.
    """
    root = float(np.sqrt(3.0))
    step = jnp.where(jnp.abs(draw[2]) < c.new_setpoint, jnp.sign(draw[2]) * SETPOINT_STEP, 0.0)
    setpoint = before.setpoint + step
    outside = jnp.abs(setpoint - SETPOINT) > SETPOINT_STEP
    return Coil(
        thickness=_reflect(
            before.thickness + root * c.thickness_walk * draw[0], THINNEST, THICKEST
        ),
        width=_reflect(before.width + root * c.width_walk * draw[1], NARROWEST, WIDEST),
        setpoint=jnp.where(outside, before.setpoint - step, setpoint),
        length=before.length * 0 + (SHORTEST + LONGEST) / 2 + c.length_range * draw[3],
    )


def _reflect(value: Array, low: float, high: float) -> Array:
    """Reflects a random walk at the ends of its range."""
    value = jnp.where(value < low, 2 * low - value, value)
    return jnp.where(value > high, 2 * high - value, value)


def rates(
    now: StripState,
    c: Constants,
    fuel: Float[Array, " zone"],
    inlet: Scalar,
    target_speed: Scalar,
    leaving: Coil,
    coil: Coil,
) -> StripState:
    """Time derivatives, per second, with a weld between the two coils at ``now.entered``."""
    edges = CELL * jnp.arange(CELLS, dtype=now.strip.dtype)
    inside = jnp.clip((now.entered - edges) / CELL, 0, 1)
    furnace4 = (now.zones + KELVIN) ** 4
    radiated = (
        (2 * STEFAN_BOLTZMANN)
        * c.emissivity
        * (jnp.repeat(furnace4, CELLS_IN_ZONE) - (now.strip + KELVIN) ** 4)
    )
    inverse = inside / coil.thickness + (1 - inside) / leaving.thickness
    width = inside * coil.width + (1 - inside) * leaving.width
    before = jnp.concatenate([inlet[None], now.strip[:-1]])
    heated = radiated * inverse * 1e3 / (c.density * heat_capacity(now.strip))
    absorbed = jnp.sum((radiated * width).reshape(ZONES, CELLS_IN_ZONE), axis=1) * CELL
    steps = c.exchange * jnp.diff(now.zones)
    nothing = jnp.zeros_like(steps[:1])
    exchanged = jnp.concatenate([steps, nothing]) - jnp.concatenate([nothing, steps])
    burner_heat = c.efficiency * (1 - c.efficiency_drop * (now.zones - 900)) * c.burner * fuel
    losses = c.losses * (now.zones - c.ambient)
    return StripState(
        strip=heated - now.speed / CELL * (now.strip - before),
        zones=(burner_heat - absorbed - losses + exchanged) / c.capacity,
        speed=(target_speed - now.speed) / c.speed_lag,
        entered=now.speed,
    )


def speed_in_period(c: Constants, entered: Scalar, leaving: Coil, coil: Coil) -> Scalar:
    """Target speed of the line, m/s: with a weld inside, that of the slower of the two coils."""
    old, new = (wanted_speed(c, one.thickness, one.width) for one in (leaving, coil))
    return jnp.where(entered < FURNACE, jnp.where(entered > 0, jnp.minimum(old, new), old), new)


def advance(
    c: Constants,
    plant: Furnace,
    fuel: Float[Array, " zone"],
    inlet: Scalar,
    following: Coil,
    *,
    substeps: int = SUBSTEPS,
) -> Furnace:
    """The furnace one period later.

    A coil that enters within the period is welded on at its start, while its head is still outside.
    At most one weld is therefore inside, and it moves through the cells without being smeared.

    ``fuel`` are fractions of the burners, ``inlet`` is the temperature of the strip in degC,
    ``following`` the coil after ``plant.coming``. The period has ``substeps`` steps of the
    classical Runge-Kutta method.
    """
    ends = plant.entered + c.fastest * PERIOD >= plant.coil.length
    shift = (plant.coil, plant.coming, following)
    stay = (plant.leaving, plant.coil, plant.coming)
    leaving, coil, coming = jax.tree.map(lambda new, old: jnp.where(ends, new, old), shift, stay)
    entered = jnp.where(ends, plant.entered - plant.coil.length, plant.entered)
    target_speed = speed_in_period(c, entered, leaving, coil)
    strip_state = StripState(plant.strip, plant.zones, plant.speed, entered)
    run = (c, fuel, inlet, target_speed, leaving, coil)
    strip_state = runge_kutta(rates, strip_state, *run, width=PERIOD, substeps=substeps)
    return Furnace(*strip_state, leaving, coil, coming)
