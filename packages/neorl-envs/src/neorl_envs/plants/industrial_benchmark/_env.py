"""IndustrialBenchmark-v0: declarations, draws and controllers."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Channel
from neorl_core.control import StateFeedback
from neorl_envs.blocks import Actuator, Instrument, Term
from neorl_envs.plants._simulated import SimulatedPlant
from neorl_envs.plants._simulated_data import Moment
from neorl_envs.plants.industrial_benchmark._physics import (
    RELATIONS,
    SHIFT_STEP,
    Constants,
    Draws,
    Machine,
    add_fatigue,
    consume,
    operational_cost,
    steer,
)

PERCENT = (0.0, 100.0)
STEPS = (1.0, 10.0, SHIFT_STEP)  # largest change of velocity, gain and shift in a step
FIXED = ((50.0, 0.0), (50.0, 0.0), (50.0, 0.0))
SCHEDULED = ((44.0, -0.1), (75.0, -0.35), (30.0, 0.4))
"""Velocity, gain and shift, each as a constant plus a multiple of the setpoint."""


class IndustrialBenchmark(SimulatedPlant):
    """The public benchmark; see :mod:`neorl_envs.plants.industrial_benchmark`."""

    horizon: int = eqx.field(static=True, default=1000)

    name: ClassVar[str] = "IndustrialBenchmark-v0"
    dt: ClassVar[float] = 1.0
    constants: ClassVar[Any] = Constants()
    relations = RELATIONS
    initial: ClassVar[Any] = 55.0
    initial_spread: ClassVar[Any] = 45.0
    instruments = (
        *(Instrument(Channel(n, "1", *PERCENT)) for n in ("setpoint", "velocity", "gain", "shift")),
        Instrument(Channel("fatigue", "1", 0.0, 300.0)),
        Instrument(Channel("consumption", "1", -200.0, 6000.0)),
    )
    actuators = tuple(
        Actuator(Channel(f"change_of_{n}", "1", -1.0, 1.0), start=0.0)
        for n in ("velocity", "gain", "shift")
    )
    reward_unit: ClassVar[str] = "1"
    terms: ClassVar[tuple[Term, ...]] = (Term("fatigue", "1", -3.0), Term("consumption", "1", -1.0))
    exogenous: ClassVar[tuple[str, ...]] = ("setpoint",)
    reference: ClassVar[str] = "scheduled steering"
    glossary: ClassVar[str] = (
        "A return is minus three times the fatigue and minus the consumption, summed over the "
        "steps."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: the setpoint, the steerings velocity, gain and shift, fatigue and "
        "consumption. Manipulated: changes of the three steerings, as fractions of 1, 10 and 5.75 "
        "per step."
    )

    def tunings(self) -> dict[str, StateFeedback]:
        """Controllers by name: fixed steerings, and steerings that depend on the setpoint."""
        return {"fixed steering": _towards(FIXED), "scheduled steering": _towards(SCHEDULED)}

    def begin(self, c: Constants, initial: Array, key: PRNGKeyArray) -> Machine:
        """All steerings at mid-range, after one step without change, as published."""
        dtype = initial.dtype
        middle, none, one = (jnp.asarray(x, dtype) for x in (50.0, 0.0, 1.0))
        cost = operational_cost(initial, middle, middle)
        machine = Machine(
            setpoint=initial,
            velocity=middle,
            gain=middle,
            shift=middle,
            costs=jnp.broadcast_to(cost, (10,)),
            hidden=jnp.zeros(2, dtype),
            domain=one,
            response=one,
            phase=none,
            fatigue=none,
            consumption=none,
        )
        draws = self.sample_process_noise(c, key)
        return self.evolve(c, machine, jnp.zeros(3, dtype), draws, jnp.zeros((), jnp.int32))

    def begin_disturbance(self, c: Constants, key: PRNGKeyArray) -> Draws:
        """Placeholder for the random numbers, which the first step replaces."""
        return self.sample_process_noise(c, key)

    def sample_process_noise(self, c: Constants, key: PRNGKeyArray) -> Draws:
        """All random numbers of one step."""
        keys = jax.random.split(key, 3)
        dtype = c.noise_mean.dtype
        uniform, flip = jax.random.uniform(keys[1], (2, 2), dtype)
        burst, consumption = jax.random.normal(keys[2], (2,), dtype)
        return Draws(
            jax.random.exponential(keys[0], (2,), dtype), uniform, flip, burst, consumption
        )

    def disturb(self, c: Constants, disturbance: Draws, noise: Draws, time: Array) -> Draws:
        """The random numbers of this step."""
        return noise

    def evolve(
        self, c: Constants, plant: Machine, inputs: Array, disturbance: Draws, time: Array
    ) -> Machine:
        """Steering, fatigue and consumption of one step."""
        plant = add_fatigue(c, steer(plant, inputs), disturbance)
        return consume(c, plant, disturbance)

    def measure(self, c: Constants, now: Moment) -> Float[Array, "6"]:
        """The observation that the benchmark returns."""
        x: Machine = now.plant
        return jnp.stack([*x[:4], x.fatigue, x.consumption])

    def reward(self, c: Constants, before: Moment, now: Moment, trip: Array) -> Array:
        """``-(3 f + c)``."""
        x: Machine = now.plant
        return -(c.fatigue_weight * x.fatigue + c.consumption_weight * x.consumption)

    def amounts(self, c: Constants, before: Moment, now: Moment, trip: Array) -> dict[str, Array]:
        """Fatigue and consumption of the step, with the published weights."""
        x: Machine = now.plant
        return {
            "fatigue": c.fatigue_weight * x.fatigue / 3,
            "consumption": c.consumption_weight * x.consumption,
        }

    def objective(
        self,
        obs: Float[Array, "6"],
        action: Float[Array, "3"],
        next_obs: Float[Array, "6"],
        last_action: Float[Array, "3"],
    ) -> Float[Array, "1"]:
        """The reward from measured fatigue and consumption, with the published weights."""
        c = self.default_params().constants
        return -(c.fatigue_weight * next_obs[4] + c.consumption_weight * next_obs[5])[None]


def _towards(steerings: tuple[tuple[float, float], ...]) -> StateFeedback:
    """A policy that moves directly to steerings that are affine in the setpoint."""
    constant, share = np.asarray(steerings).T
    step = np.asarray(STEPS)
    gain = np.zeros((3, 6))
    gain[:, 1:4] = np.diag(1 / step)
    gain[:, 0] = -share / step
    one = jnp.ones(3)
    return StateFeedback(
        gain=jnp.asarray(gain, jnp.float32),
        setpoint=jnp.zeros(6),
        bias=jnp.asarray(constant / step, jnp.float32),
        low=-one,
        high=one,
    )
