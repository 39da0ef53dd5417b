"""WaterTreatment-v0: the plant declared from its parts."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from neorl_core import Channel, Policy
from neorl_envs.blocks import Actuator, Instrument, Term
from neorl_envs.plants._simulated import SimulatedPlant
from neorl_envs.plants._simulated_data import Moment
from neorl_envs.plants.water_treatment import _objective as objective
from neorl_envs.plants.water_treatment import _physics as physics
from neorl_envs.plants.water_treatment import _world as world
from neorl_envs.plants.water_treatment._chemistry import ph_of_water
from neorl_envs.plants.water_treatment._control import tunings


class WaterTreatment(SimulatedPlant):
    """Drinking water from a river: coagulation, flocculation, settling, filtration, clearwell."""

    horizon: int = eqx.field(static=True, default=576)
    name: ClassVar[str] = "WaterTreatment-v0"
    dt = physics.PERIOD
    reward_unit: ClassVar[str] = "k$"
    terms: ClassVar[tuple[Term, ...]] = objective.TERMS
    exogenous: ClassVar[tuple[str, ...]] = (
        "turbidity_raw",
        "pH_raw",
        "alkalinity_raw",
        "temperature_raw",
        "demand",
    )
    reference: ClassVar[str] = "PI feed-forward"
    glossary: ClassVar[str] = (
        "A return is minus the cost of chemicals, mixing, backwashes, and turbid and spilled "
        "water, in k$."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: turbidity, pH, alkalinity and temperature of the raw water; demand of the "
        "town; pH_mixed behind the mixer, 10 minutes late, and pH_clear in the clearwell; settled "
        "and filtered turbidity; head_loss and run_time of the filter; the present alum, caustic "
        "and gradient; level of the clearwell. Manipulated: alum and caustic doses, velocity "
        "gradient in the flocculators, flow through the works."
    )
    constants = physics.Constants()
    relations = physics.RELATIONS
    initial = physics.INITIAL
    initial_spread = physics.SPREAD
    instruments = (
        Instrument(Channel("turbidity_raw", "NTU", 0.0, 300.0), relative=0.03),
        Instrument(Channel("pH_raw", "1", 5.0, 10.0), sd=0.03),
        Instrument(Channel("alkalinity_raw", "meq/L", 0.0, 3.0), relative=0.02),
        Instrument(Channel("temperature_raw", "degC", 0.0, 30.0), sd=0.1),
        Instrument(Channel("demand", "m3/s", 0.0, 1.0), relative=0.01),
        Instrument(Channel("pH_mixed", "1", 2.0, 13.0), sd=0.03, dead_time=2),
        Instrument(Channel("pH_clear", "1", 2.0, 13.0), sd=0.02),
        Instrument(Channel("turbidity_settled", "NTU", 0.0, 200.0), relative=0.03),
        Instrument(Channel("turbidity_filtered", "NTU", 0.0, 10.0), sd=0.005),
        Instrument(Channel("head_loss", "m", 0.0, 5.0), sd=0.01),
        Instrument(Channel("run_time", "h", 0.0, 100.0)),
        Instrument(Channel("alum", "mg/L", 0.0, 90.0), relative=0.01),
        Instrument(Channel("caustic", "meq/L", 0.0, 2.5), relative=0.01),
        Instrument(Channel("gradient", "1/s", 0.0, 100.0)),
        Instrument(Channel("level", "m", 0.0, 4.0), sd=0.01),
    )
    actuators = (
        Actuator(Channel("alum_dose", "mg/L", 0.0, 80.0), 20.0, speed=5 / 300, lag=60.0),
        Actuator(Channel("caustic_dose", "meq/L", 0.0, 2.0), 0.15, speed=0.05 / 300, lag=60.0),
        Actuator(Channel("mixing", "1/s", 10.0, 80.0), 40.0, speed=10 / 300),
        Actuator(Channel("flow", "m3/s", 0.3, 0.7), 0.46, speed=0.05 / 300),
    )
    costs = objective.COSTS
    limits = objective.LIMITS
    penalties: ClassVar[dict[str, float]] = objective.PENALTIES

    def begin_disturbance(self, c: Any, key: PRNGKeyArray) -> world.World:
        """Samples the time of day and the raw water; there is no storm at the start."""
        for_wander, for_hour = jax.random.split(key)
        wander = jax.random.normal(for_wander, (len(world.WANDERS),), c.storm.dtype)
        zero = jnp.zeros_like(c.storm)
        hour = jax.random.uniform(for_hour, (), c.storm.dtype) * world.DAY
        return world.World(wander, zero, zero, hour)

    def sample_process_noise(self, c: Any, key: PRNGKeyArray) -> world.Draws:
        """Random numbers for the fluctuations and the storms."""
        for_wander, for_storm = jax.random.split(key)
        return world.Draws(
            jax.random.normal(for_wander, (len(world.WANDERS),), c.storm.dtype),
            jax.random.uniform(for_storm, (2,), c.storm.dtype),
        )

    def disturb(self, c: Any, disturbance: Any, noise: Any, time: Array) -> world.World:
        """Raw water, storms and demand one period later."""
        return world.move_disturbances(c, disturbance, noise)

    def evolve(
        self, c: Any, plant: physics.Works, inputs: Array, disturbance: Any, time: Array
    ) -> physics.Works:
        """The state of the works one period later."""
        raw, demand = world.raw_water(c, disturbance), world.demand(c, disturbance)
        return physics.advance(c, plant, objective.dosing(inputs), raw, demand)

    def derivative(
        self, c: Any, plant: physics.Works, inputs: Array, disturbance: Any, time: Array
    ) -> physics.Works:
        """Time derivatives per second, valid between backwashes and below the overflow."""
        raw, demand = world.raw_water(c, disturbance), world.demand(c, disturbance)
        return physics.rates(plant, c, objective.dosing(inputs), raw, demand)

    def measure(self, c: Any, now: Moment) -> Array:
        """Raw water, followed by the works from the mixer to the clearwell."""
        works, dose = now.plant, objective.dosing(now.inputs)
        raw, demand = world.raw_water(c, now.disturbance), world.demand(c, now.disturbance)
        known = objective.quantities(c, works, dose.flow)
        return jnp.stack(
            [
                raw.turbidity,
                raw.ph,
                raw.alkalinity,
                raw.temperature,
                demand,
                ph_of_water(works.acid, works.carbonate),
                known["clear_pH"],
                works.primary + works.floc,
                known["turbidity"],
                physics.head_loss(works.deposit, dose.flow),
                works.run / 3600,
                dose.alum,
                dose.caustic,
                dose.gradient,
                works.level,
            ]
        )

    def quantities(self, c: Any, now: Moment) -> dict[str, Array]:
        """Limited quantities: pH of the clearwell, filtered turbidity and level."""
        return objective.quantities(c, now.plant, objective.dosing(now.inputs).flow)

    def reward(self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Cost of the treatment, as a negative number."""
        return objective.reward(c, before.plant, now.plant, objective.dosing(now.inputs), trip)

    def amounts(
        self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Chemicals, power, backwashes, turbid and spilled water, and trips."""
        dose = objective.dosing(now.inputs)
        return objective.amounts(c, before.plant, now.plant, dose, trip)

    def tunings(self) -> dict[str, Policy]:
        """The plant's controllers by name."""
        return tunings()
