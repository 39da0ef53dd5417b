"""DMSD of NeoRL-2, reproduced exactly: two masses between three springs and dampers.

The masses are to be moved to targets.

With positions ``p``, velocities ``v``, forces ``F`` and a period of 0.2 s,

``p' = p + dt v``,
``v1' = v1 + dt (-(k1 + k2) p1 + k2 p2 - (d1 + d2) v1 + d2 v2 + F1) / m1``, and likewise for the
second mass. Reward: ``sum_i -ln(|p'_i - target_i| + 0.01)``. An episode has 100 steps. Each target
is uniform in [-1.5, 1.5] m; with probability one half it changes once, at step 50.

Equations, constants, initial states (within 0.25 m and 0.1 m/s), targets, horizon and the largest
force of 30 N are published; other implementations scale the force to [-1, 1]. There is no noise,
delay or rate limit, and no cost. ``DMSD(shifted=True)`` has the masses of 30 kg of the benchmark's
test mode. The measuring ranges and the controllers are our own choices.

*Dead time.* None, as in the benchmark, which is reproduced step by step.

The normalised score of the benchmark is ``100 (R - 30.60) / (849.51 - 30.60)``.

Source: NeoRL-2 (polixir), ``envs/dmsd.py``; constants as recovered from its published data.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Channel, highs, lows
from neorl_core.control import StateFeedback
from neorl_envs.blocks import Actuator, Instrument, Relation, constant
from neorl_envs.plants._simulated import Moment, Parameters, SimulatedPlant

__all__ = ["REGULATOR", "Constants", "Masses", "Targets"]

# Two masses, three springs and dampers: one explicit step.


DT = 0.2  # s
NEORL2 = "NeoRL-2, envs/dmsd.py"


class Constants(NamedTuple):
    """Springs and dampers from wall to wall, and the two masses."""

    stiffness: Float[Array, "3"] = constant((2.0, 2.0, 2.0), "N/m", NEORL2)
    damping: Float[Array, "3"] = constant((4.0, 4.0, 4.0), "N s/m", NEORL2)
    mass: Float[Array, "2"] = constant((20.0, 20.0), "kg", NEORL2)


RELATIONS = (
    Relation(1.2, "<=", "mass", "explicit steps of 0.2 s swing up: eigenvalues beyond -1"),
)


class Masses(NamedTuple):
    """Positions in m and velocities in m/s of the two masses, each of shape ``(2,)``."""

    position: Float[Array, "2"]
    velocity: Float[Array, "2"]


class Targets(NamedTuple):
    """Targets of the positions in m, before and from step 50, each of shape ``(2,)``."""

    first: Float[Array, "2"]
    second: Float[Array, "2"]


ACTUATORS = tuple(Actuator(Channel(f"force{i}", "N", -30.0, 30.0), start=0.0) for i in (1, 2))
INSTRUMENTS = (
    *(Instrument(Channel(f"x{i}", "m", -20.0, 20.0)) for i in (1, 2)),
    *(Instrument(Channel(f"v{i}", "m/s", -20.0, 20.0)) for i in (1, 2)),
    *(Instrument(Channel(f"target{i}", "m", -2.0, 2.0)) for i in (1, 2)),
)


def acceleration(c: Constants, masses: Masses, force: Float[Array, "2"]) -> Float[Array, "2"]:
    """Acceleration of both masses due to springs, dampers and forces, m/s2."""
    x, v = masses
    k, d = c.stiffness, c.damping
    pull = jnp.stack(
        [
            -(k[0] + k[1]) * x[0] + k[1] * x[1] - (d[0] + d[1]) * v[0] + d[1] * v[1],
            k[1] * x[0] - (k[1] + k[2]) * x[1] + d[1] * v[0] - (d[1] + d[2]) * v[1],
        ]
    )
    return (pull + force) / c.mass


def move(c: Constants, masses: Masses, force: Float[Array, "2"]) -> Masses:
    """The masses 0.2 s later, by one explicit Euler step as in the benchmark."""
    x, v = masses
    return Masses(x + DT * v, v + DT * acceleration(c, masses, force))


# DMSD-v0: declarations, targets, reward and controllers.


TARGET_BOUND = 1.5  # m
CHANGE_STEP = 50
SHIFTED_MASS = 30.0  # kg
STEADY = ((4.0, -2.0), (-2.0, 4.0))  # N/m: forces that hold positions against the springs
REGULATOR = (
    (172.28178699, -0.50926705, 95.2502502, 3.16146826),
    (-0.50926705, 172.28178699, 3.16146826, 95.2502502),
)
"""Gain of the linear-quadratic regulator with weights of 1 on positions and 0.01 on forces in units
of 30 N; a test solves the Riccati equation again."""


class DMSD(SimulatedPlant):
    """Two masses between three springs and dampers; see :mod:`neorl_envs.plants.dmsd`.

    Attributes:
        horizon: Steps after which an episode is truncated.
        shifted: Whether the masses are those of the benchmark's test mode, 30 kg.
    """

    horizon: int = eqx.field(static=True, default=100)
    shifted: bool = eqx.field(static=True, default=False)

    name: ClassVar[str] = "DMSD-v0"
    dt: ClassVar[float] = DT
    tracked: ClassVar[Mapping[str, str]] = {"x1": "target1", "x2": "target2"}
    exogenous: ClassVar[tuple[str, ...]] = ("target1", "target2")
    constants: ClassVar[Any] = Constants()
    relations = RELATIONS
    initial: ClassVar[Any] = Masses(np.zeros(2), np.zeros(2))  # type: ignore[arg-type]
    initial_spread: ClassVar[Any] = Masses(0.25, 0.1)  # type: ignore[arg-type]
    instruments = INSTRUMENTS
    actuators = ACTUATORS
    reward_unit: ClassVar[str] = "points"
    reference: ClassVar[str] = "LQR"
    glossary: ClassVar[str] = (
        "A return is minus the sum of the logarithms of each mass's distance from its target, in "
        "points."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: positions x1 and x2 of the masses, their velocities v1 and v2, and their "
        "targets. Manipulated: a force on each mass."
    )

    def default_params(
        self, preset: str = "plant", *, dtype: DTypeLike = jnp.float32
    ) -> Parameters:
        """The published constants, or the heavier masses of the test mode."""
        params = super().default_params(preset, dtype=dtype)
        if not self.shifted:
            return params
        mass = jnp.full((2,), SHIFTED_MASS, dtype)
        return params._replace(constants=params.constants._replace(mass=mass))

    def tunings(self) -> dict[str, StateFeedback]:
        """Three linear laws: a weak PD, the same with feed-forward, and a regulator."""
        pd = np.hstack([15.0 * np.eye(2), 15.0 * np.eye(2)])
        return {
            "PD": _tracking(pd, np.zeros((2, 2))),
            "PD feed-forward": _tracking(pd, np.asarray(STEADY)),
            "LQR": _tracking(np.asarray(REGULATOR), np.asarray(STEADY)),
        }

    def begin_disturbance(self, c: Constants, key: PRNGKeyArray) -> Targets:
        """Samples the targets of the episode."""
        draws, changes = jax.random.split(key)
        dtype = c.mass.dtype
        first, second = jax.random.uniform(draws, (2, 2), dtype, -TARGET_BOUND, TARGET_BOUND)
        change = jax.random.bernoulli(changes, 0.5, (2,))
        return Targets(first, jnp.where(change, second, first))

    def evolve(
        self, c: Constants, plant: Masses, inputs: Array, disturbance: Targets, time: Array
    ) -> Masses:
        """One explicit step of 0.2 s."""
        return move(c, plant, inputs)

    def derivative(
        self, c: Constants, plant: Masses, inputs: Array, disturbance: Targets, time: Array
    ) -> Masses:
        """Newton's law for both masses."""
        return Masses(plant.velocity, acceleration(c, plant, inputs))

    def measure(self, c: Constants, now: Moment) -> Float[Array, "6"]:
        """Positions, velocities and the active targets."""
        return jnp.concatenate([now.plant.position, now.plant.velocity, target(now)])

    def reward(self, c: Constants, before: Moment, now: Moment, trip: Array) -> Array:
        """Minus the logarithms of the distances from the targets."""
        return _closeness(now.plant.position, target(now))

    def objective(
        self,
        obs: Float[Array, "6"],
        action: Float[Array, "2"],
        next_obs: Float[Array, "6"],
        last_action: Float[Array, "2"],
    ) -> Float[Array, "1"]:
        """The reward as a function of the measured positions."""
        return _closeness(next_obs[:2], next_obs[4:])[None]


def _closeness(position: Float[Array, "2"], target: Float[Array, "2"]) -> Float[Array, ""]:
    return -jnp.log(jnp.abs(position - target) + 0.01).sum()


def target(now: Moment) -> Float[Array, "2"]:
    """The active targets, m."""
    return jnp.where(now.time >= CHANGE_STEP, now.disturbance.second, now.disturbance.first)


def _tracking(gain: np.ndarray, steady: np.ndarray) -> StateFeedback:
    """``u = steady target - gain (state - (target, 0))``, as feedback of the full observation."""
    on_target = -(gain[:, :2] + steady)
    channels = tuple(actuator.channel for actuator in ACTUATORS)
    return StateFeedback(
        gain=jnp.asarray(np.hstack([gain, on_target]), jnp.float32),
        setpoint=jnp.zeros(6),
        bias=jnp.zeros(2),
        low=jnp.asarray(lows(channels)),
        high=jnp.asarray(highs(channels)),
    )
