"""Data types of a simulated plant: parameters, noise, state, and arguments of its functions."""

from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

from neorl_envs.blocks import _actuators as act
from neorl_envs.blocks import _instruments as ins


class Parameters(NamedTuple):
    """All numeric data of a plant, so that plants can be randomised under ``vmap``.

    Attributes:
        constants: Physical constants, in the plant's own structure.
        initial: State at the start of an episode, in the structure of the plant's state.
        initial_spread: Half-width of its uniform distribution, in the same structure.
        actuators: Rate limits, lags and dead times.
        instruments: Noise, dead times and faults.
        derived: Result of :meth:`SimulatedPlant.derive`. Change constants with
            :meth:`SimulatedPlant.with_constants`, which recomputes it.
    """

    constants: Any
    initial: Any
    initial_spread: Any
    actuators: act.ActuatorParameters
    instruments: ins.InstrumentParameters
    derived: Any = ()


class Derived(NamedTuple):
    """The argument ``c`` of the functions of a plant that defines :meth:`SimulatedPlant.derive`.

    Attributes:
        constants: Physical constants, in the plant's own structure.
        derived: Result of :meth:`SimulatedPlant.derive`.
    """

    constants: Any
    derived: Any


class Noise(NamedTuple):
    """All random numbers of one step.

    Attributes:
        process: Random numbers of the disturbances, in the plant's own structure; ``()`` if it has
            none.
        instruments: Random numbers of the instruments.
    """

    process: Any
    instruments: ins.InstrumentNoise


class State(NamedTuple):
    """The complete state of a plant between two steps.

    Attributes:
        plant: Physical state, in the plant's own structure.
        actuators: Commands, delays and positions.
        instruments: Delays and faults.
        disturbance: State of the disturbances; ``()`` if the plant has none.
        time: Steps since the start of the episode.
    """

    plant: Any
    actuators: act.ActuatorState
    instruments: ins.InstrumentState
    disturbance: Any
    time: Int[Array, ""]


class Moment(NamedTuple):
    """A plant at one time, as passed to its functions.

    Attributes:
        plant: Physical state.
        inputs: Positions of the actuators in the previous period, shape ``(act,)``.
        disturbance: State of the disturbances.
        time: Steps since the start of the episode.
    """

    plant: Any
    inputs: Float[Array, " act"]
    disturbance: Any
    time: Int[Array, ""]
