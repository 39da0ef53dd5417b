"""WaterTreatment-v0: limits, reward, controllers and declarations of the plant."""

import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel, CostChannel, Policy
from neorl_core.control import PID, ConstantPolicy, standard_pid
from neorl_envs.blocks import Actuator, FeedforwardPID, Instrument, Limit, Term, handle
from neorl_envs.plants._simulated import Moment, SimulatedPlant
from neorl_envs.plants.water_treatment import _physics as physics
from neorl_envs.plants.water_treatment._physics import (
    MEQ_PER_MG_ALUM,
    PERIOD,
    Constants,
    Dosing,
    Works,
    carbonate_of_water,
    charged_share,
    filter_outlet,
    ph_of_water,
)

# Reward of the works, and their limits.


LEAST_PH, GREATEST_PH = 6.5, 8.5
GREATEST_TURBIDITY = 0.3  # NTU
EMPTY = 0.3  # m
HOURS = PERIOD / 3600
COSTS = (
    CostChannel("pH", "h pH", 1.0, "episode"),
    CostChannel("turbidity", "NTU h", 8.0, "episode"),
)
LIMITS = (
    Limit("clear_pH", LEAST_PH, GREATEST_PH, cost="pH", factor=HOURS, channel="pH_clear"),
    Limit(
        "turbidity",
        high=GREATEST_TURBIDITY,
        cost="turbidity",
        factor=HOURS,
        channel="turbidity_filtered",
    ),
    Limit("level", low=EMPTY, trip=True, unit="m"),
)
PENALTIES = {"pH": 5.0, "turbidity": 5.0}
ALUM, CAUSTIC = 0.25e-3, 0.5e-3  # k$/kg
SPILL = 0.5e-3  # k$/m3: the price of the lost water
CLEAR, REBATE = 0.1, 4e-4  # NTU; k$ for a cubic metre and NTU above it
CAUSTIC_MASS = 0.04  # kg/eq
POWER = 1e-4  # k$/kWh
WASH = 0.2  # k$ for the work and the sludge of a backwash
TRIP_COST = 50.0  # k$
TERMS = (
    Term("alum", "kg", -ALUM),
    Term("caustic", "kg", -CAUSTIC),
    Term("mixing", "kWh", -POWER),
    Term("backwashes", "1", -WASH),
    Term("turbid water", "NTU m3", -REBATE),
    Term("spilled water", "m3", -SPILL),
    Term("trips", "1", -TRIP_COST),
)


def quantities(c: Constants, works: Works, flow: Array) -> dict[str, Array]:
    """The limited quantities."""
    filtered = filter_outlet(c, works, flow)
    return {
        "clear_pH": ph_of_water(works.clear_acid, works.clear_carbonate),
        # A filter in backwash delivers nothing.
        "turbidity": jnp.where(works.washing > 0, 0.0, filtered),
        "level": works.level,
    }


def amounts(
    c: Constants, before: Works, works: Works, dose: Dosing, trip: Array
) -> dict[str, Array]:
    """Amounts in a period: chemicals, mixing, backwashes, turbid and spilled water, trips."""
    water = dose.flow * PERIOD
    filtering = jnp.where(works.washing > 0, 0.0, 1.0)
    turbid = jnp.maximum(filter_outlet(c, works, dose.flow) - CLEAR, 0)
    return {
        "alum": water * dose.alum * 1e-3,
        "caustic": water * dose.caustic * CAUSTIC_MASS,
        # Velocity gradient: the power in a volume V is G^2 mu V, with mu = 1.2e-3 Pa s.
        "mixing": HOURS * dose.gradient**2 * 1.2e-6 * 3 * c.flocculator,
        "backwashes": jnp.where(works.run < before.run, 1.0, 0.0),
        "turbid water": filtering * water * turbid,
        "spilled water": works.spilled,
        "trips": trip,
    }


def reward(c: Constants, before: Works, works: Works, dose: Dosing, trip: Array) -> Array:
    """Cost of the treatment in a period, k$, as a negative number.

    The cost consists of chemicals, mixing power, backwashes, a rebate for turbid water, and spilled
    water. Water sales are left out, because no controller influences how much the town takes.
    """
    water = dose.flow * PERIOD
    alum = ALUM * water * dose.alum * 1e-3
    caustic = CAUSTIC * water * dose.caustic * CAUSTIC_MASS
    # Velocity gradient: the power in a volume V is G^2 mu V, with mu = 1.2e-3 Pa s.
    power = POWER * HOURS * dose.gradient**2 * 1.2e-6 * 3 * c.flocculator
    backwash = jnp.where(works.run < before.run, WASH, 0.0)
    filtering = jnp.where(works.washing > 0, 0.0, 1.0)
    turbid = jnp.maximum(filter_outlet(c, works, dose.flow) - CLEAR, 0)
    rebate = REBATE * filtering * water * turbid
    spilled = SPILL * works.spilled
    cost = alum + caustic + power + backwash + rebate + spilled
    return -cost - jnp.where(trip, TRIP_COST, 0.0)


def dosing(inputs: Any) -> Dosing:
    """The actuators by name."""
    return Dosing(*(inputs[i] for i in range(4)))


# Controllers of the works: pure feedback, and feed-forward dosing by the raw water.


NAME = "WaterTreatment-v0"
RAW_TURBIDITY, RAW_PH, RAW_ALKALINITY, DEMAND, MIXED_PH, FILTERED, LEVEL = 0, 1, 2, 4, 5, 8, 14
ALUM_SHOWN = 11
HANDLES = (
    handle("alum at no turbidity", "least_alum", "mg/L", factor=0.1),
    handle("alum for turbidity", "alum", "mg/L", factor=0.1),
    handle("wanted pH", "ph", shift=0.05),
    handle("mixing", "gradient", "1/s", factor=0.1),
    handle("largest cut of the flow", "cut", "m3/s", factor=0.2),
    handle("setpoint of the level in a storm", "full", "m", shift=0.1),
)
LOW, HIGH = (0.0, 0.0, 10.0, 0.3), (80.0, 2.0, 80.0, 0.7)


class Numbers(NamedTuple):
    """Parameters of the dosing by the raw water.

    Attributes:
        least_alum: Alum dose at zero turbidity, mg/L.
        alum: Additional dose at a turbidity of 1 NTU, mg/L.
        power: Exponent of the turbidity.
        ph: Desired pH.
        gradient: Velocity gradient of the mixing, 1/s.
        calm: Raw turbidity above which the flow is reduced, NTU.
        storm: Raw turbidity at which the reduction is largest, NTU.
        cut: Largest reduction of the flow, m3/s.
        reserve: Level of the clearwell below which the flow is not reduced, m.
        full: Setpoint of the level, m.
    """

    least_alum: Array
    alum: Array
    power: Array
    ph: Array
    gradient: Array
    calm: Array
    storm: Array
    cut: Array
    reserve: Array
    full: Array


def measurements(numbers: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " loop"]:
    """Controlled variables: filtered turbidity, pH of the mixer, zero for the mixing, level."""
    return jnp.stack([obs[FILTERED], obs[MIXED_PH], jnp.zeros_like(obs[0]), obs[LEVEL]])


def by_raw_water(n: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
    """Alum by turbidity, caustic by the carbonate equilibrium, flow by demand and storm."""
    turbidity = jnp.maximum(obs[RAW_TURBIDITY], 0)
    alum = jnp.minimum(n.least_alum + n.alum * turbidity**n.power, HIGH[0])
    carbonate = carbonate_of_water(obs[RAW_ALKALINITY], obs[RAW_PH])
    # Use the actual alum dose, not the demanded one, since the pump lags and the pH depends on it.
    alum_acidity = obs[ALUM_SHOWN] * MEQ_PER_MG_ALUM
    caustic = carbonate * charged_share(n.ph) - obs[RAW_ALKALINITY] + alum_acidity
    cut = n.cut * jnp.clip((turbidity - n.calm) / (n.storm - n.calm), 0, 1)
    cut = cut * jnp.clip((obs[LEVEL] - n.reserve) / (n.full - n.reserve), 0, 1)
    return jnp.stack([alum, caustic, n.gradient, obs[DEMAND] - cut])


def feedforward_pi(
    *,
    least_alum: float = 7.0,
    alum: float = 2.35,
    power: float = 0.77,
    gradient: float = 72.0,
    cut: float = 0.23,
    ph: float = 6.93,
    by_filtered: float = 1.6,
    reserve: float = 1.6,
    full: float = 3.2,
    by_level: float = 0.05,
) -> FeedforwardPID:
    """Dosing by the raw water, trimmed by loops on filtered turbidity, pH and level.

    Args:
        least_alum: Alum dose at zero turbidity, mg/L.
        alum: Additional dose at a turbidity of 1 NTU, mg/L.
        power: Exponent of the turbidity.
        gradient: Velocity gradient of the mixing, 1/s.
        cut: Largest reduction of the flow in a storm, m3/s.
        ph: Desired pH of the mixed water.
        by_filtered: Gain from filtered turbidity to alum, mg/L per NTU.
        reserve: Level of the clearwell below which the flow is not reduced, m.
        full: Setpoint of the level, m.
        by_level: Gain from level to flow, m2/s.
    """
    feedback = standard_pid(
        gain=(-by_filtered, 0.1, 0.0, by_level),
        integral_time=(math.inf, 1800.0, math.inf, math.inf),
        setpoint=(CLEAR, ph, 0.0, full),
        low=(-20.0, -1.0, -1.0, -0.3),
        high=(20.0, 1.0, 1.0, 0.3),
        measured=(0, 1, 2, 3),
        dt=PERIOD,
    )
    numbers = (least_alum, alum, power, ph, gradient, 15.0, 60.0, cut, reserve, full)
    return FeedforwardPID(
        feedback=feedback,
        numbers=Numbers(*map(jnp.asarray, numbers)),
        low=jnp.asarray(LOW),
        high=jnp.asarray(HIGH),
        measure=measurements,
        feedforward=by_raw_water,
        origin=(NAME, "PI feed-forward"),
        handles=HANDLES,
    )


def feedback_pi(
    *,
    filtered: float = 0.05,
    gain: float = 35.0,
    integral_time: float = 2 * 3600.0,
    usual: float = 38.0,
    full: float = 3.0,
    by_level: float = 0.04,
) -> PID:
    """Alum by filtered turbidity, caustic by mixed pH, constant mixing, flow by level.

    The settled turbidity is not suitable: above the dose of its minimum (14 mg/L at 8 NTU of raw
    water), the alum's own floc raises it, so a loop on it would become positive feedback. The
    filtered turbidity falls with alum up to three times that dose.

    Args:
        filtered: Setpoint of the filtered turbidity, NTU.
        gain: Gain from filtered turbidity to alum, mg/L per NTU.
        integral_time: Integral time, s.
        usual: Alum dose at the start, mg/L.
        full: Setpoint of the level, m.
        by_level: Gain from level to flow, m2/s.
    """
    return standard_pid(
        gain=(-gain, 0.1, 0.0, by_level),
        integral_time=(integral_time, 1800.0, math.inf, math.inf),
        setpoint=(filtered, 7.2, 0.0, full),
        bias=(usual, 0.3, 40.0, 0.46),
        low=LOW,
        high=HIGH,
        measured=(FILTERED, MIXED_PH, LEVEL, LEVEL),
        dt=PERIOD,
    )


def tunings() -> dict[str, Policy]:
    """An ordinary controller and the reference."""
    return {"PI": feedback_pi(), "PI feed-forward": feedforward_pi()}


def bad_policy() -> ConstantPolicy:
    """Too much caustic and far too little alum, so that the pH exceeds 9 and nothing coagulates."""
    return ConstantPolicy(jnp.asarray((10.0, 0.8, 40.0, 0.5)))


class WaterTreatment(SimulatedPlant):
    """Drinking water from a river: coagulation, flocculation, settling, filtration, clearwell."""

    horizon: int = eqx.field(static=True, default=576)
    name: ClassVar[str] = "WaterTreatment-v0"
    dt = physics.PERIOD
    reward_unit: ClassVar[str] = "k$"
    terms: ClassVar[tuple[Term, ...]] = TERMS
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
    costs = COSTS
    limits = LIMITS
    penalties: ClassVar[dict[str, float]] = PENALTIES

    def begin_disturbance(self, c: Any, key: PRNGKeyArray) -> physics.World:
        """Samples the time of day and the raw water; there is no storm at the start."""
        for_wander, for_hour = jax.random.split(key)
        wander = jax.random.normal(for_wander, (len(physics.WANDERS),), c.storm.dtype)
        zero = jnp.zeros_like(c.storm)
        hour = jax.random.uniform(for_hour, (), c.storm.dtype) * physics.DAY
        return physics.World(wander, zero, zero, hour)

    def sample_process_noise(self, c: Any, key: PRNGKeyArray) -> physics.Draws:
        """Random numbers for the fluctuations and the storms."""
        for_wander, for_storm = jax.random.split(key)
        return physics.Draws(
            jax.random.normal(for_wander, (len(physics.WANDERS),), c.storm.dtype),
            jax.random.uniform(for_storm, (2,), c.storm.dtype),
        )

    def disturb(self, c: Any, disturbance: Any, noise: Any, time: Array) -> physics.World:
        """Raw water, storms and demand one period later."""
        return physics.move_disturbances(c, disturbance, noise)

    def evolve(
        self, c: Any, plant: physics.Works, inputs: Array, disturbance: Any, time: Array
    ) -> physics.Works:
        """The state of the works one period later."""
        raw, demand = physics.raw_water(c, disturbance), physics.demand(c, disturbance)
        return physics.advance(c, plant, dosing(inputs), raw, demand)

    def derivative(
        self, c: Any, plant: physics.Works, inputs: Array, disturbance: Any, time: Array
    ) -> physics.Works:
        """Time derivatives per second, valid between backwashes and below the overflow."""
        raw, demand = physics.raw_water(c, disturbance), physics.demand(c, disturbance)
        return physics.rates(plant, c, dosing(inputs), raw, demand)

    def measure(self, c: Any, now: Moment) -> Array:
        """Raw water, followed by the works from the mixer to the clearwell."""
        works, dose = now.plant, dosing(now.inputs)
        raw, demand = physics.raw_water(c, now.disturbance), physics.demand(c, now.disturbance)
        known = quantities(c, works, dose.flow)
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
        return quantities(c, now.plant, dosing(now.inputs).flow)

    def reward(self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Cost of the treatment, as a negative number."""
        return reward(c, before.plant, now.plant, dosing(now.inputs), trip)

    def amounts(
        self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Chemicals, power, backwashes, turbid and spilled water, and trips."""
        dose = dosing(now.inputs)
        return amounts(c, before.plant, now.plant, dose, trip)

    def tunings(self) -> dict[str, Policy]:
        """The plant's controllers by name."""
        return tunings()
