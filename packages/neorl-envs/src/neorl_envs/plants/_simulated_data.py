"""What a simulated plant is given, what it remembers, and what its functions see."""

from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

from neorl_envs.blocks import _actuators as act
from neorl_envs.blocks import _instruments as ins


class Parameters(NamedTuple):
    """Everything about a plant that is data, so that randomisation is a ``vmap``.

    Attributes:
        constants: Physics, in the plant's own structure.
        initial: State at the start of an episode, in the structure of the plant's state.
        initial_spread: Half-width of its uniform draw, in the same structure.
        actuators: Speed, lag and dead time.
        instruments: Noise, dead time and faults.
        derived: What :meth:`SimulatedPlant.derive` computed from the constants. Change constants
            by :meth:`SimulatedPlant.with_constants`, which computes it again.
    """

    constants: Any
    initial: Any
    initial_spread: Any
    actuators: act.ActuatorParameters
    instruments: ins.InstrumentParameters
    derived: Any = ()


class Derived(NamedTuple):
    """What the functions of a plant that defines :meth:`SimulatedPlant.derive` receive as ``c``.

    Attributes:
        constants: Physics, in the plant's own structure.
        derived: What :meth:`SimulatedPlant.derive` computed from it.
    """

    constants: Any
    derived: Any


class Noise(NamedTuple):
    """Everything that chance adds to one step.

    Attributes:
        process: Draws of the plant's disturbances, in its own structure; ``()`` without.
        instruments: Draws of the readings.
    """

    process: Any
    instruments: ins.InstrumentNoise


class State(NamedTuple):
    """Everything that a plant remembers between two steps.

    Attributes:
        plant: Physics, in the plant's own structure.
        actuators: Commands, delays and positions.
        instruments: Delays and faults.
        disturbance: What the world is doing; ``()`` in plants without.
        time: Steps since the start of the episode.
    """

    plant: Any
    actuators: act.ActuatorState
    instruments: ins.InstrumentState
    disturbance: Any
    time: Int[Array, ""]


class Moment(NamedTuple):
    """A plant at one time, as its functions see it.

    Attributes:
        plant: State of the physics.
        inputs: What the actuators did in the period before, shape ``(act,)``.
        disturbance: State of the disturbances.
        time: Steps since the start of the episode.
    """

    plant: Any
    inputs: Float[Array, " act"]
    disturbance: Any
    time: Int[Array, ""]
