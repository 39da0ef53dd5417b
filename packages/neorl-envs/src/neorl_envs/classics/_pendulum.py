"""Swing-up of a pendulum with limited torque, as in Gymnasium's Pendulum-v1."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Channel, Policy, Spec, Step
from neorl_core.control import ConstantPolicy
from neorl_envs.classics._outcome import Outcome
from neorl_envs.plants._protocol import PlantDefaults

PERIOD, MOST_TORQUE, MOST_SPEED = 0.05, 2.0, 8.0


class PendulumState(NamedTuple):
    """The pendulum between two steps.

    Attributes:
        angle: Angle from upright, rad.
        speed: Angular speed, rad/s.
        time: Number of steps so far.
    """

    angle: Float[Array, ""]
    speed: Float[Array, ""]
    time: Int[Array, ""]


class Pendulum(eqx.Module, PlantDefaults):
    """Gymnasium's Pendulum-v1, with its equations, constants, initial states and 200-step limit.

    Attributes:
        horizon: Steps after which an episode is truncated; static.
    """

    horizon: int = eqx.field(static=True, default=200)

    name: ClassVar[str] = "Pendulum-v0"
    reference: ClassVar[str] = "still"
    reward_unit: ClassVar[str] = "1"
    glossary: ClassVar[str] = (
        "A return is minus the weighted squares of angle, speed and torque, summed over the steps."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: cosine and sine of the angle from upright, and the speed. Manipulated: a "
        "torque too small to lift the pendulum directly."
    )

    @property
    def spec(self) -> Spec:
        """Specification with the bounds of Gymnasium."""
        bounds = (("cosine", "1", 1.0), ("sine", "1", 1.0), ("speed", "rad/s", MOST_SPEED))
        obs = tuple(Channel(name, unit, -bound, bound) for name, unit, bound in bounds)
        torque = Channel("torque", "N m", -MOST_TORQUE, MOST_TORQUE)
        return Spec(obs, (torque,), (), dt=PERIOD, horizon=self.horizon)

    def tunings(self) -> dict[str, Policy]:
        """A policy that applies no torque."""
        return {"still": ConstantPolicy(jnp.zeros(1, jnp.float32))}

    def default_params(self, preset: str = "plant") -> Float[Array, "0"]:
        """There are none."""
        return jnp.zeros(0, jnp.float32)

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Float[Array, "0"]:
        """There are none."""
        return jnp.zeros(0, jnp.float32)

    def reset(
        self, params: Float[Array, "0"], key: PRNGKeyArray
    ) -> tuple[PendulumState, Float[Array, "3"]]:
        """Starts an episode at any angle, with a speed in [-1, 1)."""
        bounds = jnp.asarray([jnp.pi, 1.0], jnp.float32)
        angle, speed = bounds * jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        state = PendulumState(angle, speed, jnp.zeros((), jnp.int32))
        return state, _obs(state)

    def step(
        self,
        params: Float[Array, "0"],
        state: PendulumState,
        action: Float[Array, "1"],
        key: PRNGKeyArray,
    ) -> tuple[PendulumState, Step]:
        """Simulates one step of 50 ms; the key is ignored."""
        torque = jnp.clip(action[0], -MOST_TORQUE, MOST_TORQUE)
        wrapped = (state.angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        cost = wrapped**2 + 0.1 * state.speed**2 + 0.001 * torque**2
        rate = 15.0 * jnp.sin(state.angle) + 3.0 * torque
        speed = jnp.clip(state.speed + rate * PERIOD, -MOST_SPEED, MOST_SPEED)
        after = PendulumState(state.angle + speed * PERIOD, speed, state.time + 1)
        no, last, obs = jnp.zeros((), jnp.bool_), after.time >= self.horizon, _obs(after)
        return after, Step(
            obs=obs,
            final_obs=obs,
            reward=-cost,
            cost=jnp.zeros(0, jnp.float32),
            applied=torque[None],
            terminated=no,
            truncated=last,
            info=Outcome(last, no),
        )


def _obs(state: PendulumState) -> Float[Array, "3"]:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])
