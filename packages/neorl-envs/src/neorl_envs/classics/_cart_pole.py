"""A cart with a pole that is pushed left or right, as in Gymnasium's CartPole-v1."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Channel, Policy, Spec, Step
from neorl_core.control import ConstantPolicy
from neorl_envs.classics._outcome import Outcome
from neorl_envs.plants._protocol import PlantDefaults

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, PERIOD = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MOST_AWAY, MOST_TILT = 2.4, 0.20943951023931953
"""Metres from the middle, and radians from upright (12 degrees), at which an episode ends."""


class CartPoleState(NamedTuple):
    """The cart between two steps.

    Attributes:
        motion: Position (m), speed (m/s), angle (rad), angular speed (rad/s).
        time: Number of steps so far.
    """

    motion: Float[Array, "4"]
    time: Int[Array, ""]


class CartPole(eqx.Module, PlantDefaults):
    """Gymnasium's CartPole-v1, with its equations, constants, initial states and 500-step limit.

    The action has one channel per side. The cart is pushed with 10 N towards the side with the
    larger number, or to the left if they are equal; ``Step.applied`` is 1 on that side. Every step
    has reward 1. The episode ends when the cart is 2.4 m from the middle or the pole is tilted by
    12 degrees.

    Attributes:
        horizon: Steps after which an episode is truncated; static.

    Source: Barto, Sutton and Anderson, IEEE Transactions on Systems, Man and Cybernetics 13 (1983).
    """

    horizon: int = eqx.field(static=True, default=500)

    name: ClassVar[str] = "CartPole-v0"
    reference: ClassVar[str] = "left"
    reward_unit: ClassVar[str] = "steps"
    glossary: ClassVar[str] = "A return is the number of steps for which the pole stayed upright."
    channel_descriptions: ClassVar[str] = (
        "Measured: position and speed of the cart, angle and angular speed of the pole. "
        "Manipulated: one number for each side; the larger one is the side to which the cart is "
        "pushed."
    )

    @property
    def spec(self) -> Spec:
        """Specification; speeds, unbounded in Gymnasium, have the ranges seen when balancing."""
        ranges = (
            ("position", "m", 4.8), ("speed", "m/s", 3.0), ("angle", "rad", 2 * MOST_TILT),
            ("angular_speed", "rad/s", 3.0),
        )  # fmt: skip
        obs = tuple(Channel(name, unit, -bound, bound) for name, unit, bound in ranges)
        action = tuple(Channel(side, "1", 0.0, 1.0) for side in ("left", "right"))
        return Spec(obs, action, (), dt=PERIOD, horizon=self.horizon)

    def tunings(self) -> dict[str, Policy]:
        """A policy that always pushes left, which fails after about ten steps."""
        return {"left": ConstantPolicy(jnp.asarray([1.0, 0.0], jnp.float32))}

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
    ) -> tuple[CartPoleState, Float[Array, "4"]]:
        """Starts an episode with every state uniform in [-0.05, 0.05)."""
        motion = jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05)
        return CartPoleState(motion, jnp.zeros((), jnp.int32)), motion

    def step(
        self,
        params: Float[Array, "0"],
        state: CartPoleState,
        action: Float[Array, "2"],
        key: PRNGKeyArray,
    ) -> tuple[CartPoleState, Step]:
        """Simulates one push of 20 ms by Euler's method; the key is ignored."""
        right = action[1] > action[0]
        _, speed, angle, turning = state.motion
        force = jnp.where(right, FORCE, -FORCE)
        sine, cosine, mass = jnp.sin(angle), jnp.cos(angle), CART + POLE
        pushed = (force + POLE * HALF_LENGTH * turning**2 * sine) / mass
        spin = (GRAVITY * sine - cosine * pushed) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE * cosine**2 / mass)
        )
        drive = pushed - POLE * HALF_LENGTH * spin * cosine / mass
        rates = jnp.stack([speed, drive, turning, spin])
        after = CartPoleState(state.motion + PERIOD * rates, state.time + 1)
        fell = (jnp.abs(after.motion[0]) > MOST_AWAY) | (jnp.abs(after.motion[2]) > MOST_TILT)
        last = after.time >= self.horizon
        return after, Step(
            obs=after.motion,
            final_obs=after.motion,
            reward=jnp.ones((), jnp.float32),
            cost=jnp.zeros(0, jnp.float32),
            applied=jnp.stack([~right, right]).astype(jnp.float32),
            terminated=fell,
            truncated=last,
            info=Outcome(last & ~fell, fell),
        )
