"""Gymnasium's CartPole-v1 and Pendulum-v1 as plants, to compare learners with published figures."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Channel, Policy, Spec, Step
from neorl_core.control import ConstantPolicy
from neorl_envs.plants import PlantDefaults

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, PERIOD = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MOST_AWAY, MOST_TILT = 2.4, 0.20943951023931953
"""Metres from the middle, and radians from upright (12 degrees), at which an episode ends."""
STEP, MOST_TORQUE, MOST_SPEED = 0.05, 2.0, 8.0
"""Of the pendulum: period (s), largest torque (N m) and largest speed (rad/s)."""


class Outcome(NamedTuple):
    """How an episode ended, if it did.

    Attributes:
        success: Whether it reached its limit of steps.
        trip: Whether the plant ended it.
    """

    success: Bool[Array, ""]
    trip: Bool[Array, ""]


class WithoutParams(eqx.Module):
    """A plant whose constants never vary."""

    def default_params(self, preset: str = "plant") -> Float[Array, "0"]:
        """There are none."""
        return jnp.zeros(0, jnp.float32)

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Float[Array, "0"]:
        """There are none."""
        return jnp.zeros(0, jnp.float32)


class CartPoleState(NamedTuple):
    """The cart between two steps.

    Attributes:
        motion: Position (m), speed (m/s), angle (rad), angular speed (rad/s).
        time: Number of steps so far.
    """

    motion: Float[Array, "4"]
    time: Int[Array, ""]


class CartPole(WithoutParams, PlantDefaults):
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


class Pendulum(WithoutParams, PlantDefaults):
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
        return Spec(obs, (torque,), (), dt=STEP, horizon=self.horizon)

    def tunings(self) -> dict[str, Policy]:
        """A policy that applies no torque."""
        return {"still": ConstantPolicy(jnp.zeros(1, jnp.float32))}

    def reset(
        self, params: Float[Array, "0"], key: PRNGKeyArray
    ) -> tuple[PendulumState, Float[Array, "3"]]:
        """Starts an episode at any angle, with a speed in [-1, 1)."""
        bounds = jnp.asarray([jnp.pi, 1.0], jnp.float32)
        angle, speed = bounds * jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        state = PendulumState(angle, speed, jnp.zeros((), jnp.int32))
        return state, measured(state)

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
        speed = jnp.clip(state.speed + rate * STEP, -MOST_SPEED, MOST_SPEED)
        after = PendulumState(state.angle + speed * STEP, speed, state.time + 1)
        no, last, obs = jnp.zeros((), jnp.bool_), after.time >= self.horizon, measured(after)
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


def measured(state: PendulumState) -> Float[Array, "3"]:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])
