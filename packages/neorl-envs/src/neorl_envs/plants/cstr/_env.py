"""CSTR-v0: declarations and functions of the stirred tank."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import CostChannel
from neorl_envs.blocks import FeedforwardPID, Limit, Term, autoregressive, random_step, runge_kutta
from neorl_envs.plants._simulated import SimulatedPlant
from neorl_envs.plants._simulated_data import Moment
from neorl_envs.plants.cstr import _control
from neorl_envs.plants.cstr._physics import (
    ACTUATORS,
    DT,
    INSTRUMENTS,
    MINUTES,
    RELATIONS,
    Constants,
    Feed,
    Tank,
    rates,
)

SOFT_LIMIT, TRIP = 340.0, 400.0  # K
TRIP_PENALTY = 500.0
SUBSTEPS = 25  # of 0.6 s


class CSTR(SimulatedPlant):
    """A stirred tank with a jacket; see :mod:`neorl_envs.plants.cstr`."""

    horizon: int = eqx.field(static=True, default=100)

    name: ClassVar[str] = _control.NAME
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
        return _control.tunings()

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
