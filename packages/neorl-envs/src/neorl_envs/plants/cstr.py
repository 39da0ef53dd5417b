"""The textbook reactor: a stirred tank with an exothermic reaction and a cooling jacket.

``dC_A/dt = q/V (C_Af - C_A) - r`` and
``dT/dt = q/V (T_f - T) + (-dH)/(rho C_p) r + U A/(rho C_p V) (T_c - T)`` with the rate
``r = k_0 exp(-(E/R)/T) C_A``. The coolant temperature ``T_c`` is manipulated, and the concentration
should follow a setpoint that steps from time to time. If the coolant is warmer than about 304 K,
the reaction ignites: the concentration falls to a few per cent and the temperature overshoots by
150 K.

The equations and constants are published. Our own choices are the range of the coolant (285 to 310
K, wider than the usual 295 to 302 K, so that ignition is possible), its rate limit of 2 K per step,
a lag of 5 s, noise of 0.003 mol/L and 0.2 K, a feed that drifts by 0.5 K and 0.005 mol/L, a new
setpoint from 0.82 to 0.94 mol/L every 8 minutes on average (also in the preset ``"clean"``, since
following it is the task), the soft limit of 340 K with a budget of 1 K min per episode, the trip at
400 K, and the reward ``-100 |C_A - setpoint|`` per step of 15 s. ``bad_policy()`` heats as much as
possible.

*Controllers.* "PI" adjusts the coolant by the concentration, slowly enough for all sampled
parameters. "PI feed-forward", the reference, starts from the coolant temperature that holds the
setpoint in the nominal tank. It subtracts 0.6 K for every kelvin by which the tank is hotter than
in that steady state, because the temperature shows immediately where the concentration is going,
and adds a PI correction. Its three parameters come from a cross-entropy search. Without the
temperature term its return was -137 instead of -105.

*Dead time.* The analyser shows the concentration one step (15 s) late, because of its sample line
and measuring cell; this is our own choice. The thermometer is in the tank, and the pipe to the
jacket is short compared with the lag of 5 s, so neither has a dead time.

Source: Seborg, Edgar and Mellichamp, "Process Dynamics and Control", example 2.5 and exercises; as
in pcgym's ``cstr``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Channel, CostChannel
from neorl_core.control import ConstantPolicy, standard_pid
from neorl_envs.blocks import (
    Actuator,
    FeedforwardPID,
    Instrument,
    Limit,
    Relation,
    Term,
    autoregressive,
    constant,
    constant_values,
    handle,
    no_feedforward,
    random_step,
    runge_kutta,
)
from neorl_envs.plants._simulated import Moment, SimulatedPlant

__all__ = ["Constants", "Feed", "Tank", "bad_policy", "coolant_that_holds"]

# Constants, channels and balances of the stirred tank; minutes, litres, moles, kelvin.


DT = 15.0  # s, the control period
MINUTES = DT / 60
SEBORG = "Seborg et al., as in pcgym cstr"
OWN = "own choice"
HOTTEST = 420.0  # K, above the trip; the rate saturates here, as substeps of 0.6 s require


class Constants(NamedTuple):
    """The reaction, the tank, its jacket, and how its feed and its setpoint move."""

    flow: Array = constant(100.0, "L/min", SEBORG)
    volume: Array = constant(100.0, "L", SEBORG)
    density: Array = constant(1000.0, "g/L", SEBORG)
    heat_capacity: Array = constant(0.239, "J/(g K)", SEBORG)
    reaction_heat: Array = constant(5e4, "J/mol", SEBORG)
    activation: Array = constant(8750.0, "K", SEBORG)
    rate_constant: Array = constant(7.2e10, "1/min", SEBORG, spread=0.2)
    transfer: Array = constant(5e4, "J/(min K)", SEBORG, spread=0.2)
    feed_concentration: Array = constant(1.0, "mol/L", SEBORG)
    feed_temperature: Array = constant(350.0, "K", SEBORG)
    feed_concentration_sd: Array = constant(0.005, "mol/L", OWN, clean=0.0, domain="not negative")
    feed_temperature_sd: Array = constant(0.5, "K", OWN, clean=0.0, domain="not negative")
    feed_memory: Array = constant(300.0, "s", OWN)
    setpoint_every: Array = constant(480.0, "s", OWN)
    setpoint_low: Array = constant(0.82, "mol/L", OWN)
    setpoint_high: Array = constant(0.94, "mol/L", OWN)


RELATIONS = (
    Relation("setpoint_low", "<", "setpoint_high"),
    Relation("setpoint_high", "<", "feed_concentration", "the reaction only takes away"),
    Relation("feed_concentration_sd", "<", "feed_concentration"),
    Relation("initial.concentration", "<=", "feed_concentration", "the reaction only takes away"),
    Relation(0.0, "<=", "initial.concentration"),
    Relation(0.0, "<", "initial.temperature"),
)


class Tank(NamedTuple):
    """Concentration of the reactant in mol/L and temperature in K."""

    concentration: Float[Array, ""]
    temperature: Float[Array, ""]


class Feed(NamedTuple):
    """Deviations of the feed from its nominal values, and the active setpoint (mol/L)."""

    concentration: Float[Array, ""]
    temperature: Float[Array, ""]
    setpoint: Float[Array, ""]


ACTUATORS = (Actuator(Channel("T_c", "K", 285.0, 310.0), start=300.0, speed=2.0 / DT, lag=5.0),)
INSTRUMENTS = (
    Instrument(Channel("C_A", "mol/L", 0.0, 1.2), sd=0.003, dead_time=1),
    Instrument(Channel("T", "K", 280.0, 520.0), sd=0.2),
    Instrument(Channel("C_A_SP", "mol/L", 0.0, 1.2)),
)


def rates(x: Tank, c: Constants, coolant: Array, feed: Feed) -> Tank:
    """Time derivatives per minute, for a coolant temperature in K."""
    hot = jnp.minimum(x.temperature, HOTTEST)
    reaction = c.rate_constant * jnp.exp(-c.activation / hot) * x.concentration
    through = c.flow / c.volume
    heat = c.density * c.heat_capacity
    return Tank(
        through * (c.feed_concentration + feed.concentration - x.concentration) - reaction,
        through * (c.feed_temperature + feed.temperature - x.temperature)
        + c.reaction_heat / heat * reaction
        + c.transfer / (heat * c.volume) * (coolant - x.temperature),
    )


def temperature_at(c: Constants, concentration: Array) -> Array:
    """Temperature in K of the nominal tank in the steady state with a concentration in mol/L."""
    reaction = c.flow / c.volume * (c.feed_concentration - concentration)
    return c.activation / jnp.log(c.rate_constant * concentration / reaction)


def coolant_that_holds(c: Constants, concentration: Array) -> Array:
    """Coolant temperature in K that holds the nominal tank at a concentration in mol/L."""
    reaction = c.flow / c.volume * (c.feed_concentration - concentration)
    temperature = temperature_at(c, concentration)
    heat = c.density * c.heat_capacity
    flow = c.flow * heat * (c.feed_temperature - temperature)
    released = c.reaction_heat * c.volume * reaction
    return temperature - (flow + released) / c.transfer


# Controllers of the stirred tank: PI on the concentration, with and without model feed-forward.


NAME = "CSTR-v0"
PI = (-12.0, 150.0)  # K L/mol, s: slow but safe for all sampled parameters
FEEDFORWARD_PI = (-55.0, 36.0)
BY_TEMPERATURE = 0.6  # K of coolant per kelvin in the tank
BIAS = 298.0  # K
HANDLES = (handle("coolant for a kelvin in the tank", "by_temperature", factor=0.3),)


class Numbers(NamedTuple):
    """Parameters of the model-based feed-forward.

    Attributes:
        constants: Constants of the nominal tank.
        by_temperature: Decrease of the coolant temperature per kelvin by which the tank is above
            its nominal temperature, dimensionless.
    """

    constants: Constants
    by_temperature: Array


def deviation(numbers: Numbers, obs: Float[Array, "3"]) -> Float[Array, "1"]:
    """Measured concentration above its setpoint, mol/L."""
    return obs[:1] - obs[2:]


def model_coolant(numbers: Numbers, obs: Float[Array, "3"]) -> Float[Array, "1"]:
    """The coolant temperature that holds the nominal tank at the setpoint, K above the bias.

    It is reduced in proportion to the tank's temperature above that steady state. The temperature
    shows immediately where the concentration is going, whereas the analyser is late.
    """
    c, setpoint = numbers.constants, obs[2:]
    hotter = obs[1:2] - temperature_at(c, setpoint)
    return coolant_that_holds(c, setpoint) - BIAS - numbers.by_temperature * hotter


def tunings() -> dict[str, FeedforwardPID]:
    """``PI`` and ``PI feed-forward``."""
    settings = {"PI": PI, "PI feed-forward": FEEDFORWARD_PI}
    return {name: _loop(name, *setting) for name, setting in settings.items()}


def bad_policy() -> ConstantPolicy:
    """The hottest possible coolant, with which the reaction ignites."""
    return ConstantPolicy(jnp.asarray([ACTUATORS[0].channel.high]))


def _loop(name: str, gain: float, integral_time: float) -> FeedforwardPID:
    channel = ACTUATORS[0].channel
    bank = standard_pid(
        gain=gain,
        integral_time=integral_time,
        setpoint=0.0,
        bias=BIAS,
        low=channel.low - 100,
        high=channel.high + 100,
        dt=DT,
        tracking_time=DT,
    )
    ahead = name == "PI feed-forward"
    return FeedforwardPID(
        feedback=bank,
        numbers=Numbers(
            constant_values(Constants(), "clean", dtype=jnp.float32), jnp.asarray(BY_TEMPERATURE)
        ),
        low=jnp.asarray([channel.low]),
        high=jnp.asarray([channel.high]),
        measure=deviation,
        feedforward=model_coolant if ahead else no_feedforward,
        origin=(NAME, name),
        handles=HANDLES if ahead else (),
    )


# CSTR-v0: declarations and functions of the stirred tank.


SOFT_LIMIT, TRIP = 340.0, 400.0  # K
TRIP_PENALTY = 500.0
SUBSTEPS = 25  # of 0.6 s


class CSTR(SimulatedPlant):
    """A stirred tank with a jacket; see :mod:`neorl_envs.plants.cstr`."""

    horizon: int = eqx.field(static=True, default=100)

    name: ClassVar[str] = NAME
    dt: ClassVar[float] = DT
    tracked: ClassVar[Mapping[str, str]] = {"C_A": "C_A_SP"}
    exogenous: ClassVar[tuple[str, ...]] = ("C_A_SP",)
    constants: ClassVar[Any] = Constants()
    relations = RELATIONS
    initial: ClassVar[Any] = Tank(0.877, 324.5)  # type: ignore[arg-type]
    initial_spread: ClassVar[Any] = Tank(0.02, 1.0)  # type: ignore[arg-type]
    instruments = INSTRUMENTS
    actuators = ACTUATORS
    costs = (CostChannel("temperature", "K min", 1.0, "episode"),)
    limits = (
        Limit("T", high=SOFT_LIMIT, cost="temperature", factor=MINUTES, channel="T"),
        Limit("T", high=TRIP, trip=True, unit="K"),
    )
    penalties: ClassVar[dict[str, float]] = {"temperature": 5.0}
    reward_unit: ClassVar[str] = "points"
    terms: ClassVar[tuple[Term, ...]] = (
        Term("distance from the setpoint", "mol/L min", -100 / MINUTES),
        Term("trips", "1", -TRIP_PENALTY),
    )
    reference: ClassVar[str] = "PI feed-forward"
    glossary: ClassVar[str] = (
        "A return is minus 100 points per step and mol/L of error, and minus 500 for a trip. PI "
        "feed-forward: the coolant temperature that holds the setpoint in the nominal tank, "
        "corrected by PI control and for the temperature."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: concentration C_A of the reactant, temperature T, setpoint C_A_SP. "
        "Manipulated: coolant temperature T_c."
    )

    def tunings(self) -> dict[str, FeedforwardPID]:
        """The plant's controllers by name; ``reference`` names the one to beat."""
        return tunings()

    def begin_disturbance(self, c: Constants, key: PRNGKeyArray) -> Feed:
        """Samples a feed from its stationary distribution, and a setpoint."""
        feed, level = jax.random.split(key)
        concentration, temperature = jax.random.normal(feed, (2,), c.flow.dtype)
        return Feed(
            c.feed_concentration_sd * concentration,
            c.feed_temperature_sd * temperature,
            jax.random.uniform(level, (), c.flow.dtype, c.setpoint_low, c.setpoint_high),
        )

    def sample_process_noise(self, c: Constants, key: PRNGKeyArray) -> tuple[Array, Array]:
        """Two normal numbers for the feed, and two uniform ones for the setpoint."""
        normal, uniform = jax.random.split(key)
        dtype = c.flow.dtype
        return jax.random.normal(normal, (2,), dtype), jax.random.uniform(uniform, (2,), dtype)

    def disturb(self, c: Constants, disturbance: Feed, noise: Any, time: Array) -> Feed:
        """The feed drifts; now and then the setpoint steps."""
        normal, uniform = noise
        memory = c.feed_memory
        level = c.setpoint_low + uniform[1] * (c.setpoint_high - c.setpoint_low)
        x = disturbance
        return Feed(
            autoregressive(
                x.concentration, normal[0], sd=c.feed_concentration_sd, memory=memory, dt=DT
            ),
            autoregressive(
                x.temperature, normal[1], sd=c.feed_temperature_sd, memory=memory, dt=DT
            ),
            random_step(x.setpoint, level, uniform[0], every=c.setpoint_every, dt=DT),
        )

    def evolve(
        self, c: Constants, plant: Tank, inputs: Array, disturbance: Feed, time: Array
    ) -> Tank:
        """Integrates both balances over one control period."""
        return runge_kutta(
            rates, plant, c, inputs[0], disturbance, width=MINUTES, substeps=SUBSTEPS
        )

    def derivative(
        self, c: Constants, plant: Tank, inputs: Array, disturbance: Feed, time: Array
    ) -> Tank:
        """Time derivatives of both balances, per second."""
        by_minute = rates(plant, c, inputs[0], disturbance)
        return jax.tree.map(lambda rate: rate / 60, by_minute)

    def measure(self, c: Constants, now: Moment) -> Float[Array, "3"]:
        """Concentration, temperature, setpoint."""
        return jnp.stack([*now.plant, now.disturbance.setpoint])

    def quantities(self, c: Constants, now: Moment) -> dict[str, Array]:
        """Temperature, K."""
        return {"T": now.plant.temperature}

    def reward(self, c: Constants, before: Moment, now: Moment, trip: Array) -> Array:
        """Minus the distance from the setpoint that was active during the step."""
        distance = jnp.abs(now.plant.concentration - now.disturbance.setpoint)
        return -100 * distance - jnp.where(trip, TRIP_PENALTY, 0.0)

    def amounts(self, c: Constants, before: Moment, now: Moment, trip: Array) -> dict[str, Array]:
        """Distance from the setpoint, integrated over time, and trips."""
        distance = jnp.abs(now.plant.concentration - now.disturbance.setpoint)
        return {"distance from the setpoint": distance * MINUTES, "trips": trip}
