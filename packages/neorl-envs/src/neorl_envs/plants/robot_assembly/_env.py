"""RobotAssembly-v0: the plant declared from its parts."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from neorl_core import Channel, Policy
from neorl_envs.blocks import Actuator, Instrument, Term
from neorl_envs.plants._simulated import SimulatedPlant
from neorl_envs.plants._simulated_data import Moment
from neorl_envs.plants.robot_assembly import _arm as arm
from neorl_envs.plants.robot_assembly import _objective as objective
from neorl_envs.plants.robot_assembly import _physics as physics
from neorl_envs.plants.robot_assembly._control import LIMIT, tunings

JOINTS = range(1, arm.JOINTS + 1)
FIDELITIES = ("full", "fast")


class RobotAssembly(SimulatedPlant):
    """A seven-joint arm inserts a peg into a hole whose position it knows only approximately.

    Attributes:
        horizon: Steps after which an episode is truncated.
        fidelity: ``"full"`` for the arm's inertia matrix, ``"fast"`` for a constant diagonal one.
    """

    horizon: int = eqx.field(static=True, default=300)
    fidelity: str = eqx.field(static=True, default="full")
    name: ClassVar[str] = "RobotAssembly-v0"
    dt = physics.PERIOD
    reward_unit: ClassVar[str] = "points"
    terms: ClassVar[tuple[Term, ...]] = objective.TERMS
    reference: ClassVar[str] = "spiral search"
    glossary: ClassVar[str] = (
        "A return is 100 points for an inserted peg, minus points for distance, effort and time."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: angles q and speeds dq of the joints; force F and torque M on the peg at the "
        "flange, in the axes of the base; e from the tip to the nominal hole; depth of the tip "
        "below the nominal plate. Manipulated: joint speeds."
    )
    constants = physics.Constants()
    relations = physics.RELATIONS
    initial = physics.INITIAL
    initial_spread = physics.SPREAD
    instruments = (
        *(
            Instrument(Channel(f"q_{i}", "rad", low - 0.1, high + 0.1), sd=1e-5)
            for i, low, high in zip(JOINTS, arm.LEAST, arm.GREATEST, strict=True)
        ),
        *(
            Instrument(Channel(f"dq_{i}", "rad/s", -speed, speed), sd=1e-3)
            for i, speed in zip(JOINTS, arm.FASTEST, strict=True)
        ),
        *(Instrument(Channel(f"F_{axis}", "N", -200.0, 200.0), sd=0.5) for axis in "xyz"),
        *(Instrument(Channel(f"M_{axis}", "N m", -50.0, 50.0), sd=0.02) for axis in "xyz"),
        *(Instrument(Channel(f"e_{axis}", "m", -1.5, 1.5), sd=2e-5) for axis in "xyz"),
        Instrument(Channel("depth", "m", 0.0, 0.03), sd=2e-5),
    )
    actuators = tuple(
        Actuator(Channel(f"u_{i}", "rad/s", -limit, limit), 0.0, speed=5.0)
        for i, limit in zip(JOINTS, LIMIT, strict=True)
    )
    costs = objective.COSTS
    limits = objective.LIMITS
    penalties: ClassVar[dict[str, float]] = objective.PENALTIES

    def __check_init__(self) -> None:
        """Raises for an unknown fidelity."""
        if self.fidelity not in FIDELITIES:
            raise ValueError(f"fidelity must be 'full' or 'fast', got {self.fidelity!r}")

    def evolve(
        self, c: Any, plant: physics.Cell, inputs: Array, disturbance: Any, time: Array
    ) -> physics.Cell:
        """The state of arm and peg one period later."""
        return physics.advance(c, plant, inputs, fidelity=self.fidelity)

    def measure(self, c: Any, now: Moment) -> Array:
        """Joints, wrench, and position of the tip relative to the nominal hole."""
        cell = now.plant
        tip = physics.tip(arm.link_frames(cell.q))
        error = jnp.asarray(physics.MOUTH, tip.dtype) - tip
        return jnp.concatenate([cell.q, cell.speed, cell.wrench, error, error[2:]])

    def quantities(self, c: Any, now: Moment) -> dict[str, Array]:
        """Peak force, clearance, distance of the joints from their ends, and depth."""
        return objective.quantities(now.plant, arm.link_frames(now.plant.q))

    def success(self, c: Any, now: Moment) -> Bool[Array, ""]:
        """Whether the peg is fully inserted."""
        depth = physics.insertion(now.plant, arm.link_frames(now.plant.q))
        return depth >= physics.HOLE_DEPTH

    def reward(self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Depth gained minus distance, effort and time."""
        return objective.reward(before.plant, now.plant, now.inputs, trip)

    def amounts(
        self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Depth, time, distance, effort and trips."""
        return objective.amounts(before.plant, now.plant, now.inputs, trip)

    def tunings(self) -> dict[str, Policy]:
        """The plant's controllers by name."""
        return tunings()
