"""Pipeline of NeoRL-2, reproduced exactly: a gate at the head of a pipe with 20 steps of dead time.

The action ``a`` changes the flow through the gate, ``flow <- clip(flow + a, 0, 200)``; the outflow
is the flow 19 steps ago. The target starts in {50, 80, 110, 140} and is sampled again with
probability 0.003 in every step. Reward: ``((200 - |outflow - target|) / 100)^2 - 3``. The
observation consists of the outflow, the target, the 25 previous outflows and the 25 previous
actions, newest first. An episode has 1,000 steps and starts with the same flow, from [80, 120],
throughout the pipe.

All of this is published, without units or a period (we use a nominal period of 1 s). There is no
noise and no cost. The three controllers, which are linear in the observation, are our own choice.

*Dead time.* The 20 steps of the pipe are the plant itself and part of its state. Instruments and
gate have no dead time, as in the benchmark.

The normalised score of the benchmark is ``100 (R + 296) / (751 + 296)``.

Source: NeoRL-2 (polixir), ``envs/pipline.py``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Channel
from neorl_core.control import StateFeedback
from neorl_envs.blocks import Actuator, Instrument, Relation, constant
from neorl_envs.plants._simulated import Moment, SimulatedPlant

__all__ = ["LEVELS", "Constants", "Draw", "Pipe"]

# Pipeline-v0: a gate, a delay line and a target that jumps.


PIPE, HISTORY = 20, 25  # steps
MAX_FLOW = 200.0
LEVELS = (50.0, 80.0, 110.0, 140.0)
NEORL2 = "NeoRL-2, envs/pipline.py"


class Constants(NamedTuple):
    """The probability that the target is sampled again in a step."""

    change: Float[Array, ""] = constant(0.003, "1", NEORL2, clean=0.0, domain="fraction")


class Pipe(NamedTuple):
    """Flows in the pipe, and past outflows and actions, newest first.

    Attributes:
        flows: Flow in every part of the pipe, from the gate to the outflow, shape ``(20,)``.
        outflows: The outflow and the 25 before it, shape ``(26,)``.
        actions: The last 25 changes of the gate, shape ``(25,)``.
    """

    flows: Float[Array, "20"]
    outflows: Float[Array, "26"]
    actions: Float[Array, "25"]


class Draw(NamedTuple):
    """Random numbers of one step.

    Attributes:
        uniform: A number from [0, 1); if it is below the probability of a change, the target
            changes.
        level: Index of the new target.
    """

    uniform: Float[Array, ""]
    level: Int[Array, ""]


def _instruments() -> tuple[Instrument, ...]:
    def flow(name: str) -> Instrument:
        return Instrument(Channel(name, "1", 0.0, MAX_FLOW))

    before = [flow(f"outflow_{i}") for i in range(1, HISTORY + 1)]
    acts = [Instrument(Channel(f"action_{i}", "1", -1.0, 1.0)) for i in range(1, HISTORY + 1)]
    return (flow("outflow"), flow("target"), *before, *acts)


class Pipeline(SimulatedPlant):
    """A pipe with dead time; see :mod:`neorl_envs.plants.pipeline`."""

    horizon: int = eqx.field(static=True, default=1000)

    name: ClassVar[str] = "Pipeline-v0"
    dt: ClassVar[float] = 1.0
    tracked: ClassVar[Mapping[str, str]] = {"outflow": "target"}
    constants: ClassVar[Any] = Constants()
    relations = (
        Relation(0.0, "<=", "initial", "a flow is from 0 to 200"),
        Relation("initial", "<=", MAX_FLOW, "a flow is from 0 to 200"),
    )
    initial: ClassVar[Any] = 100.0
    initial_spread: ClassVar[Any] = 20.0
    instruments = _instruments()
    actuators = (Actuator(Channel("gate", "1", -1.0, 1.0), start=0.0),)
    reward_unit: ClassVar[str] = "points"
    reference: ClassVar[str] = "predictive P"
    glossary: ClassVar[str] = (
        "A step earns at most one point, less the further the outflow is from its target. P: an "
        "action in proportion to the error of the outflow."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: the outflow of the pipe and its target, and the outflows and actions of the "
        "last 25 steps. Manipulated: the change of the flow through the gate."
    )

    def tunings(self) -> dict[str, StateFeedback]:
        """Slow and fast proportional control of the outflow, and of the flow at the gate."""
        return {
            "P 0.005": _proportional(0.005, predicted=False),
            "P 0.02": _proportional(0.02, predicted=False),
            "predictive P": _proportional(0.5, predicted=True),
        }

    def begin(self, c: Constants, initial: Array, key: PRNGKeyArray) -> Pipe:
        """A pipe with the same flow everywhere."""
        flows, outflows = (jnp.broadcast_to(initial, (n,)) for n in (PIPE, HISTORY + 1))
        return Pipe(flows, outflows, jnp.zeros(HISTORY, initial.dtype))

    def begin_disturbance(self, c: Constants, key: PRNGKeyArray) -> Array:
        """The first target."""
        return _level(jax.random.randint(key, (), 0, len(LEVELS)), c.change)

    def sample_process_noise(self, c: Constants, key: PRNGKeyArray) -> Draw:
        """Random numbers that determine whether the target changes, and to which level."""
        uniform, level = jax.random.split(key)
        return Draw(
            jax.random.uniform(uniform, (), c.change.dtype),
            jax.random.randint(level, (), 0, len(LEVELS)),
        )

    def disturb(self, c: Constants, disturbance: Array, noise: Draw, time: Array) -> Array:
        """The target of this step."""
        return jnp.where(noise.uniform < c.change, _level(noise.level, c.change), disturbance)

    def evolve(
        self, c: Constants, plant: Pipe, inputs: Array, disturbance: Array, time: Array
    ) -> Pipe:
        """Moves the gate, and shifts all flows along the pipe by one cell."""
        gate = jnp.clip(plant.flows[0] + inputs[0], 0, MAX_FLOW)
        flows = jnp.concatenate([gate[None], plant.flows[:-1]])
        return Pipe(
            flows,
            jnp.concatenate([flows[-1:], plant.outflows[:-1]]),
            jnp.concatenate([inputs, plant.actions[:-1]]),
        )

    def measure(self, c: Constants, now: Moment) -> Float[Array, "52"]:
        """Outflow, target, previous outflows and previous actions."""
        pipe: Pipe = now.plant
        target = now.disturbance[None]
        return jnp.concatenate([pipe.outflows[:1], target, pipe.outflows[1:], pipe.actions])

    def reward(self, c: Constants, before: Moment, now: Moment, trip: Array) -> Array:
        """``((200 - |outflow - target|) / 100)^2 - 3``."""
        return jnp.square((MAX_FLOW - jnp.abs(now.plant.outflows[0] - now.disturbance)) * 0.01) - 3


def _level(index: Array, like: Array) -> Array:
    return jnp.asarray(LEVELS, like.dtype)[index]


def _proportional(gain: float, *, predicted: bool) -> StateFeedback:
    """``a = gain (target - outflow)``, with the current or the predicted outflow."""
    rows = np.zeros((1, 2 + 2 * HISTORY), np.float32)
    rows[0, 0], rows[0, 1] = gain, -gain
    if predicted:
        rows[0, 2 + HISTORY : 2 + HISTORY + PIPE - 1] = gain
    one = jnp.ones(1)
    return StateFeedback(
        jnp.asarray(rows), jnp.zeros(rows.shape[1]), jnp.zeros(1), low=-one, high=one
    )
