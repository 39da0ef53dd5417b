"""SteelAnnealing-v0: the plant declared from its parts."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from neorl_core import Channel, Policy
from neorl_envs.blocks import Actuator, Instrument, Term, autoregressive
from neorl_envs.plants._simulated import SimulatedPlant
from neorl_envs.plants._simulated_data import Moment
from neorl_envs.plants.steel_annealing import _objective as objective
from neorl_envs.plants.steel_annealing import _physics as physics
from neorl_envs.plants.steel_annealing._control import tunings

ZONES = range(1, physics.ZONES + 1)


class SteelAnnealing(SimulatedPlant):
    """Radiant annealing furnace of a strip line: six zones, 120 m, coil after coil."""

    horizon: int = eqx.field(static=True, default=720)
    name: ClassVar[str] = "SteelAnnealing-v0"
    dt = physics.PERIOD
    reward_unit: ClassVar[str] = "t"
    terms: ClassVar[tuple[Term, ...]] = objective.TERMS
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
        *(Instrument(Channel(f"T_zone_{i}", "degC", 0.0, 1200.0), sd=1.0) for i in ZONES),
        *(Instrument(Channel(f"T_strip_{i}", "degC", 0.0, 1000.0), sd=1.5) for i in ZONES),
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
        for i in ZONES
    )
    costs = objective.COSTS
    limits = objective.LIMITS
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
        coil, following, weld = objective.at_exit(plant)
        line = [coil.setpoint, coil.thickness, coil.width, plant.speed, following.thickness]
        line += [following.setpoint, weld, jnp.sum(now.inputs) * c.burner * 1e-6]
        return jnp.concatenate([plant.zones, exits, jnp.stack(line)])

    def quantities(self, c: Any, now: Moment) -> dict[str, Array]:
        """Exit error, exit temperature, hottest zone."""
        return objective.quantities(now.plant)

    def reward(self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Good strip minus fuel."""
        return objective.reward(c, now.plant, now.inputs, trip)

    def amounts(
        self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Good strip, fuel and trips."""
        return objective.amounts(c, now.plant, now.inputs, trip)

    def tunings(self) -> dict[str, Policy]:
        """The plant's controllers by name."""
        return tunings()
