"""SteelAnnealing-v0: limits, reward, controllers and declarations of the plant."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel, CostChannel, Policy
from neorl_core.control import ConstantPolicy, standard_pid
from neorl_envs.blocks import (
    Actuator,
    FeedforwardPID,
    Instrument,
    Limit,
    Term,
    autoregressive,
    constant_values,
    handle,
    no_feedforward,
)
from neorl_envs.plants._simulated import Moment, SimulatedPlant
from neorl_envs.plants.steel_annealing import _physics as physics
from neorl_envs.plants.steel_annealing._physics import (
    FURNACE,
    PERIOD,
    SETPOINT,
    ZONES,
    Coil,
    Constants,
    Furnace,
    wanted_speed,
)

# Controllers of the furnace: zone PI loops trimmed by the exit, and PI with feed-forward.


NAME = "SteelAnnealing-v0"
ORDINARY, REFERENCE = "zone PI with exit trim", "PI feed-forward"
HANDLES = (
    handle("zone temperature for nominal strip", "needed", "degC", shift=2.0),
    handle("its change with the strip's mass flow", "by_flow", "K per kg/(s m)", factor=0.1),
    handle("its change with the setpoint", "by_setpoint", factor=0.05),
    handle("gain of the zones", "zone_gain", "1/K", factor=0.3),
    handle("look-ahead to a weld", "look_ahead", "s", factor=0.3),
)
TRIM_HANDLES = (
    handle("temperatures of the zones", "zones", "degC", shift=2.0, count=ZONES),
    handle("their change with the setpoint", "by_setpoint", factor=0.05),
    handle("their change with the exit's error", "by_exit", factor=0.3),
)
PATTERN = (-43.0, -35.0, -18.0, 6.0, 34.0, 56.0)  # K, zones relative to their mean
NEEDED = 908.0  # degC, mean of the zones for 750 degC at 12.92 kg/(s m)


class Numbers(NamedTuple):
    """Parameters of the furnace that the feed-forward uses.

    Attributes:
        constants: Nominal physics.
        pattern: Zone temperatures relative to their mean, K, shape ``(6,)``.
        needed: Mean zone temperature for nominal strip, degC.
        by_flow: Change of ``needed`` with the mass flow of strip per width, K per kg/(s m).
        by_setpoint: Change of ``needed`` with the setpoint, 1.
        heat: Heat that strip absorbs up to 750 degC, J/kg.
        heat_slope: Change of ``heat`` with the setpoint, J/(kg K).
        zone_gain: Additional fuel per kelvin by which a zone is too cold, 1/K.
        look_ahead: Time before a weld leaves at which the furnace begins to change over, s.
    """

    constants: Constants
    pattern: Float[Array, " zone"]
    needed: Array
    by_flow: Array
    by_setpoint: Array
    heat: Array
    heat_slope: Array
    zone_gain: Array
    look_ahead: Array


def exit_errors(numbers: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " zone"]:
    """The error of the exit temperature, repeated for every loop, K."""
    return jnp.broadcast_to(obs[2 * ZONES - 1] - obs[2 * ZONES], (ZONES,))


def static_inverse(numbers: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " zone"]:
    """Fuel that brings the zones to the temperatures that the current and next coil need."""
    n, c = numbers, numbers.constants
    setpoint, thickness, width, speed, following, coming, weld = obs[2 * ZONES : -1]
    share = jnp.clip(1 - weld / (jnp.maximum(speed, c.slowest) * n.look_ahead), 0, 1)
    setpoint = setpoint + share * (coming - setpoint)
    flows = [c.density * d * 1e-3 * wanted_speed(c, d, width) for d in (thickness, following)]
    flow = flows[0] + share * (flows[1] - flows[0])
    mean = n.needed + n.by_flow * (flow - 12.92) + n.by_setpoint * (setpoint - SETPOINT)
    target = mean + n.pattern
    heat = (n.heat + n.heat_slope * (setpoint - SETPOINT)) * flow * width / ZONES
    useful = c.efficiency * (1 - c.efficiency_drop * (target - 900)) * c.burner
    steady = (heat + c.losses * (mean - c.ambient)) / useful
    return steady + n.zone_gain * (target - obs[:ZONES])


def feedforward_pi(
    *, zone_gain: float = 0.0155, look_ahead: float = 240.0, kp: float = 0.0055, ti: float = 160.0
) -> FeedforwardPID:
    """PI on the exit temperature for all zones, added to a static inverse of the furnace.

    Args:
        zone_gain: Additional fuel per kelvin by which a zone is too cold, 1/K.
        look_ahead: Time before a weld leaves at which the furnace begins to change over, s.
        kp: Fuel per kelvin at the exit, 1/K.
        ti: Integral time, s.
    """
    real = jnp.asarray
    return FeedforwardPID(
        feedback=standard_pid(
            gain=kp,
            integral_time=ti,
            setpoint=0.0,
            low=-3.0,
            high=3.0,
            measured=tuple(range(ZONES)),
            dt=PERIOD,
            tracking_time=100.0,
        ),
        numbers=Numbers(
            constant_values(Constants(), dtype=jnp.float32),
            real(PATTERN),
            *map(real, (NEEDED, 17.5, 0.92, 4.83e5, 1310.0, zone_gain, look_ahead)),
        ),
        low=jnp.zeros(ZONES),
        high=jnp.ones(ZONES),
        measure=exit_errors,
        feedforward=static_inverse,
        origin=(NAME, REFERENCE),
        handles=HANDLES,
    )


class Trim(NamedTuple):
    """Setpoints of the zones.

    Attributes:
        zones: Zone temperatures that nominal strip needs, degC, shape ``(6,)``.
        by_setpoint: Change of the setpoints with the setpoint of the exit, 1.
        by_exit: Change of the setpoints with the error of the exit, 1.
    """

    zones: Float[Array, " zone"]
    by_setpoint: Array
    by_exit: Array


def zone_errors(trim: Trim, obs: Float[Array, " obs"]) -> Float[Array, " zone"]:
    """Temperatures of the zones above their setpoints, K."""
    exit_now, setpoint = obs[2 * ZONES - 1], obs[2 * ZONES]
    target_exit = trim.by_setpoint * (setpoint - SETPOINT) - trim.by_exit * (exit_now - setpoint)
    return obs[:ZONES] - trim.zones - target_exit


def zone_pi() -> FeedforwardPID:
    """PI of each zone (0.02/K, 300 s) to the recipe temperature, trimmed by the exit error."""
    return FeedforwardPID(
        feedback=standard_pid(
            gain=0.02,
            integral_time=300.0,
            setpoint=0.0,
            bias=0.8,
            low=0.0,
            high=1.0,
            measured=tuple(range(ZONES)),
            dt=PERIOD,
            tracking_time=100.0,
        ),
        numbers=Trim(NEEDED + jnp.asarray(PATTERN), jnp.asarray(0.92), jnp.asarray(1.2)),
        low=jnp.zeros(ZONES),
        high=jnp.ones(ZONES),
        measure=zone_errors,
        feedforward=no_feedforward,
        origin=(NAME, ORDINARY),
        handles=TRIM_HANDLES,
    )


def tunings() -> dict[str, Policy]:
    """An ordinary controller and the reference."""
    return {ORDINARY: zone_pi(), REFERENCE: feedforward_pi()}


def bad_policy() -> ConstantPolicy:
    """All burners at 60 %, with which the strip stays far too cold."""
    return ConstantPolicy(jnp.full(ZONES, 0.6))


# Reward of the line, and its limits.


TOLERANCE = 10.0  # K
WORTHLESS = 30.0  # K
HOTTEST_ZONE, ZONE_TRIP = 1040.0, 1100.0  # degC
EXIT_TRIP = 900.0  # degC
BUDGET = 1800.0  # K min in an episode
FUEL_PRICE = 0.1  # t of strip per MWh
TRIP_COST = 100.0  # t

TERMS = (
    Term("good strip", "t", 1.0),
    Term("fuel", "MWh", -FUEL_PRICE),
    Term("trips", "1", -TRIP_COST),
)
COSTS = (CostChannel("temperature_profile", "K min", BUDGET, "episode"),)
LIMITS = (
    Limit(
        "exit_error",
        low=-TOLERANCE,
        high=TOLERANCE,
        cost="temperature_profile",
        factor=PERIOD / 60,
        unit="K",
    ),
    Limit(
        "zone_temperature",
        high=HOTTEST_ZONE,
        cost="temperature_profile",
        factor=PERIOD / 60,
        unit="degC",
    ),
    Limit("zone_temperature", high=ZONE_TRIP, trip=True, unit="degC"),
    Limit("exit_temperature", high=EXIT_TRIP, trip=True, unit="degC"),
)


class Exit(NamedTuple):
    """The strip at the furnace exit.

    Attributes:
        coil: The coil at the exit.
        following: The coil after it.
        weld: Distance of the weld between them from the exit, m.
    """

    coil: Coil
    following: Coil
    weld: Array


def at_exit(plant: Furnace) -> Exit:
    """The coil that leaves the furnace, and the coil after it."""
    out = plant.entered < FURNACE
    old = Exit(plant.leaving, plant.coil, FURNACE - plant.entered)
    new = Exit(plant.coil, plant.coming, plant.coil.length + FURNACE - plant.entered)
    return jax.tree.map(lambda a, b: jnp.where(out, a, b), old, new)


def quantities(plant: Furnace) -> dict[str, Array]:
    """The limited quantities."""
    exit_temperature = plant.strip[-1]
    return {
        "exit_error": exit_temperature - at_exit(plant).coil.setpoint,
        "exit_temperature": exit_temperature,
        "zone_temperature": jnp.max(plant.zones),
    }


def tonnes(c: Constants, plant: Furnace) -> Array:
    """Strip that leaves the furnace in a period, t."""
    coil = at_exit(plant).coil
    return c.density * coil.thickness * 1e-6 * coil.width * plant.speed * PERIOD


def amounts(c: Constants, plant: Furnace, fuel: Array, trip: Array) -> dict[str, Array]:
    """Tonnes of good strip, MWh of fuel and trips of a period.

    Strip within 10 K of the setpoint counts fully, strip that is 30 K off counts nothing, and the
    value is linear in between.
    """
    coil = at_exit(plant).coil
    error = jnp.abs(plant.strip[-1] - coil.setpoint)
    good = jnp.clip((WORTHLESS - error) / (WORTHLESS - TOLERANCE), 0, 1)
    energy = jnp.sum(fuel) * c.burner * (PERIOD / 3.6e9)
    return {"good strip": good * tonnes(c, plant), "fuel": energy, "trips": trip}


def reward(c: Constants, plant: Furnace, fuel: Array, trip: Array) -> Array:
    """Tonnes of good strip, minus the price of fuel and trips."""
    amounts_of_step = amounts(c, plant, fuel, trip)
    earnings = amounts_of_step["good strip"] - FUEL_PRICE * amounts_of_step["fuel"]
    return earnings - jnp.where(trip, TRIP_COST, 0.0)


NUMBERED_ZONES = range(1, ZONES + 1)


class SteelAnnealing(SimulatedPlant):
    """Radiant annealing furnace of a strip line: six zones, 120 m, coil after coil."""

    horizon: int = eqx.field(static=True, default=720)
    name: ClassVar[str] = "SteelAnnealing-v0"
    dt = physics.PERIOD
    reward_unit: ClassVar[str] = "t"
    terms: ClassVar[tuple[Term, ...]] = TERMS
    reference: ClassVar[str] = "PI feed-forward"
    glossary: ClassVar[str] = (
        "A return is the tonnes of strip annealed within tolerance, minus the price of the fuel. "
        "The controllers hold zone temperatures, with or without a static inverse model of the "
        "furnace."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: temperatures of the six zones and of the strip behind each, exit setpoint, "
        "thickness, width and speed of the strip, next thickness and setpoint, distance to the "
        "weld, total fuel. Manipulated: the fuel of every zone as a fraction of its burners' "
        "capacity."
    )
    tracked: ClassVar[Mapping[str, str]] = {"T_strip_6": "T_set"}
    exogenous: ClassVar[tuple[str, ...]] = (
        "T_set",
        "thickness",
        "width",
        "next_thickness",
        "next_T_set",
        "weld_distance",
    )
    constants = physics.Constants()
    relations = physics.RELATIONS
    initial = physics.INITIAL
    initial_spread = jax.tree.map(lambda _: 0.0, physics.INITIAL)._replace(
        zones=15.0,
        entered=250.0,
        leaving=physics.Coil(0.35, 0.25, 1.5 * physics.SETPOINT_STEP, 0.0),  # type: ignore[arg-type]
    )
    instruments = (
        *(Instrument(Channel(f"T_zone_{i}", "degC", 0.0, 1200.0), sd=1.0) for i in NUMBERED_ZONES),
        *(Instrument(Channel(f"T_strip_{i}", "degC", 0.0, 1000.0), sd=1.5) for i in NUMBERED_ZONES),
        Instrument(Channel("T_set", "degC", 700.0, 800.0)),
        Instrument(Channel("thickness", "mm", 0.4, 1.5), sd=0.003),
        Instrument(Channel("width", "m", 0.8, 1.6)),
        Instrument(Channel("speed", "m/s", 0.0, 3.0), relative=0.002),
        Instrument(Channel("next_thickness", "mm", 0.4, 1.5)),
        Instrument(Channel("next_T_set", "degC", 700.0, 800.0)),
        Instrument(Channel("weld_distance", "m", 0.0, 1700.0)),
        Instrument(Channel("fuel_power", "MW", 0.0, 30.0), relative=0.005),
    )
    actuators = tuple(
        Actuator(Channel(f"fuel_{i}", "1", 0.0, 1.0), start=0.8, speed=0.1 / 20, lag=15.0)
        for i in NUMBERED_ZONES
    )
    costs = COSTS
    limits = LIMITS
    penalties: ClassVar[dict[str, float]] = {"temperature_profile": 0.02}

    def begin(self, c: Any, initial: physics.Furnace, key: PRNGKeyArray) -> physics.Furnace:
        """Samples three consecutive coils, the position of the first weld, and the line speed."""
        drawn = initial.leaving
        classes = jnp.round((drawn.setpoint - physics.SETPOINT) / physics.SETPOINT_STEP)
        leaving = drawn._replace(setpoint=physics.SETPOINT + physics.SETPOINT_STEP * classes)
        draws = jax.random.uniform(key, (2, 4), drawn.length.dtype, -1, 1)
        coil = physics.next_coil(c, leaving, draws[0])
        return initial._replace(
            speed=physics.wanted_speed(c, coil.thickness, coil.width),
            leaving=leaving,
            coil=coil,
            coming=physics.next_coil(c, coil, draws[1]),
        )

    def begin_disturbance(self, c: Any, key: PRNGKeyArray) -> physics.Disturbance:
        """Samples fuel and inlet from their stationary distributions."""
        normal = jax.random.normal(key, (2,), c.fuel_sd.dtype)
        draw = jnp.zeros(4, normal.dtype)
        return physics.Disturbance(c.fuel_sd * normal[0], c.inlet_sd * normal[1], draw)

    def sample_process_noise(self, c: Any, key: PRNGKeyArray) -> physics.Disturbance:
        """Normal random numbers for fuel and inlet, and uniform ones for a coil."""
        for_walks, for_coil = jax.random.split(key)
        normal = jax.random.normal(for_walks, (2,), c.fuel_sd.dtype)
        draw = jax.random.uniform(for_coil, (4,), normal.dtype, -1, 1)
        return physics.Disturbance(normal[0], normal[1], draw)

    def disturb(
        self, c: Any, disturbance: physics.Disturbance, noise: physics.Disturbance, time: Array
    ) -> physics.Disturbance:
        """Fuel and inlet fluctuate, and the coil to be welded on next is sampled."""
        return physics.Disturbance(
            autoregressive(
                disturbance.fuel, noise.fuel, sd=c.fuel_sd, memory=c.fuel_memory, dt=self.dt
            ),
            autoregressive(
                disturbance.inlet, noise.inlet, sd=c.inlet_sd, memory=c.inlet_memory, dt=self.dt
            ),
            noise.coil,
        )

    def evolve(
        self, c: Any, plant: physics.Furnace, inputs: Array, disturbance: Any, time: Array
    ) -> physics.Furnace:
        """The state of strip, zones and line one period later."""
        following = physics.next_coil(c, plant.coming, disturbance.coil)
        fuel_flow = inputs * (1 + disturbance.fuel)
        return physics.advance(c, plant, fuel_flow, c.ambient + disturbance.inlet, following)

    def derivative(
        self, c: Any, plant: physics.Furnace, inputs: Array, disturbance: Any, time: Array
    ) -> physics.Furnace:
        """Time derivatives per second, valid while no weld enters."""
        target_speed = physics.speed_in_period(c, plant.entered, plant.leaving, plant.coil)
        strip_state = physics.StripState(plant.strip, plant.zones, plant.speed, plant.entered)
        inlet = c.ambient + disturbance.inlet
        fuel_flow = inputs * (1 + disturbance.fuel)
        coils = (plant.leaving, plant.coil)
        rate = physics.rates(strip_state, c, fuel_flow, inlet, target_speed, *coils)
        still = jax.tree.map(jnp.zeros_like, (*coils, plant.coming))
        return physics.Furnace(*rate, *still)

    def measure(self, c: Any, now: Moment) -> Array:
        """Temperatures, followed by the known data of the coils."""
        plant = now.plant
        exits = plant.strip[physics.CELLS_IN_ZONE - 1 :: physics.CELLS_IN_ZONE]
        coil, following, weld = at_exit(plant)
        line = [coil.setpoint, coil.thickness, coil.width, plant.speed, following.thickness]
        line += [following.setpoint, weld, jnp.sum(now.inputs) * c.burner * 1e-6]
        return jnp.concatenate([plant.zones, exits, jnp.stack(line)])

    def quantities(self, c: Any, now: Moment) -> dict[str, Array]:
        """Exit error, exit temperature, hottest zone."""
        return quantities(now.plant)

    def reward(self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Good strip minus fuel."""
        return reward(c, now.plant, now.inputs, trip)

    def amounts(
        self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Good strip, fuel and trips."""
        return amounts(c, now.plant, now.inputs, trip)

    def tunings(self) -> dict[str, Policy]:
        """The plant's controllers by name."""
        return tunings()
