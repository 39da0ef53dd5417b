"""RobotAssembly-v0: limits, reward, controllers and declarations of the plant."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel, CostChannel, Policy, Spec
from neorl_core.control import ConstantPolicy, Tunable
from neorl_envs.blocks import Actuator, Instrument, Limit, Term, handle
from neorl_envs.plants._simulated import Moment, SimulatedPlant
from neorl_envs.plants.robot_assembly import _physics as physics
from neorl_envs.plants.robot_assembly._physics import (
    HOLE_DEPTH,
    MOUTH,
    PERIOD,
    Cell,
    hole_of,
    in_hole,
    insertion,
    tip,
)

# Reward of an insertion, and its limits.


FORCE, FORCE_TRIP = 50.0, 80.0  # N
NEAREST = 0.01  # m
FIXTURE = 0.06  # m: radius of the part with the hole
ARM_RADIUS, HAND_RADIUS, HAND = 0.06, 0.04, 0.17  # m
COSTS = (
    CostChannel("force", "1", 0.0, "step"),
    CostChannel("collision", "1", 0.0, "step"),
)
LIMITS = (
    Limit("force", high=FORCE, cost="force", factor=1 / FORCE, unit="N"),
    Limit("force", high=FORCE_TRIP, trip=True, unit="N"),
    Limit("free_distance", low=NEAREST, cost="collision", factor=1 / NEAREST, unit="m"),
    Limit("joint_range", low=0.0, trip=True, unit="rad"),
)
PENALTIES = {"force": 20.0, "collision": 20.0}
TRIP_COST = 100.0  # more than 300 steps far from the hole (75), so that giving up does not pay
TERMS = (
    Term("depth", "mm", 0.1 / HOLE_DEPTH),
    Term("distance, at most 0.1 m", "m s", -2 / PERIOD),
    Term("effort", "s", -0.01 / PERIOD),
    Term("time", "s", -0.05 / PERIOD),
    Term("trips", "1", -TRIP_COST),
)


def free_distance(frames: physics.Frames) -> Array:
    """Distance of the links' capsules from the table and from the fixture, m.

    There are seven capsules between the origins of the joints and the hand, each evaluated at both
    ends and in the middle. The table is the plane of the base, and the fixture is a cylinder around
    the hole.
    """
    nodes = jnp.concatenate([frames.origin[1:], physics.along_tool(frames, HAND)[None]])
    before = frames.origin
    points = jnp.concatenate([before, (before + nodes) / 2, nodes])
    radius = jnp.where(jnp.arange(7) < 6, ARM_RADIUS, HAND_RADIUS).astype(points.dtype)
    table = points[:, 2]
    mouth = jnp.asarray(MOUTH, points.dtype)
    aside = jnp.sqrt(jnp.sum((points[:, :2] - mouth[None, :2]) ** 2, axis=1) + 1e-12) - FIXTURE
    above = points[:, 2] - mouth[2]
    outside = jnp.sqrt(jnp.maximum(aside, 0) ** 2 + jnp.maximum(above, 0) ** 2 + 1e-12)
    fixture = outside + jnp.minimum(jnp.maximum(aside, above), 0)
    return jnp.min(jnp.minimum(table, fixture) - jnp.tile(radius, 3))


def quantities(cell: Cell, frames: physics.Frames) -> dict[str, Array]:
    """The limited quantities, and the depth."""
    low, high = (jnp.asarray(ends, cell.q.dtype) for ends in (physics.LEAST, physics.GREATEST))
    return {
        "force": cell.peak,
        "free_distance": free_distance(frames),
        "joint_range": jnp.minimum(cell.q - low, high - cell.q),
        "depth": insertion(cell, frames),
    }


def amounts(before: Cell, cell: Cell, target: Array, trip: Array) -> dict[str, Array]:
    """Depth gained, distance from the hole over time, effort, time and trips of a step."""
    old, new = physics.link_frames(before.q), physics.link_frames(cell.q)
    progress = insertion(cell, new) - insertion(before, old)
    x, y, z = in_hole(hole_of(cell), tip(new))
    distance = jnp.sqrt(x**2 + y**2 + jnp.maximum(z, 0) ** 2)
    share = target / jnp.asarray(physics.FASTEST, target.dtype)
    return {
        "depth": 1000 * progress,
        "distance, at most 0.1 m": jnp.minimum(distance, 0.1) * PERIOD,
        "effort": jnp.sum(share**2) * PERIOD,
        "time": jnp.asarray(PERIOD, progress.dtype),
        "trips": trip,
    }


def reward(before: Cell, cell: Cell, target: Array, trip: Array) -> Array:
    """Points: 100 for the full depth, minus distance, effort, time and a trip."""
    old, new = physics.link_frames(before.q), physics.link_frames(cell.q)
    progress = (insertion(cell, new) - insertion(before, old)) / HOLE_DEPTH
    x, y, z = in_hole(hole_of(cell), tip(new))
    distance = jnp.sqrt(x**2 + y**2 + jnp.maximum(z, 0) ** 2)
    share = target / jnp.asarray(physics.FASTEST, target.dtype)
    return (
        100 * progress
        - 2 * jnp.minimum(distance, 0.1)
        - 0.01 * jnp.sum(share**2)
        - 0.05
        - jnp.where(trip, TRIP_COST, 0.0)
    )


# Insertion by resolved rates: a straight push, and a spiral search with compliance.


WRENCH, ERROR = slice(14, 20), slice(20, 23)
APPROACH, SEARCH, INSERT = 0, 1, 2
TOUCH, NEAR = 1.5, 6e-3  # N above which there is contact; m within which the hole must be
UNITS = {
    "gain": "1/s", "approach": "m/s", "hover": "m", "press": "m/s", "force": "N",
    "admittance": "m/(s N)", "yielding": "m/(s N)", "pitch": "m", "along": "m/s", "insert": "m/s",
}  # fmt: skip
LIMIT = tuple(0.25 * speed for speed in physics.FASTEST)


class InsertionCarry(NamedTuple):
    """Carry of the insertion law.

    Attributes:
        phase: Phase: 0 approach, 1 search, 2 insertion.
        angle: Angle of the spiral, rad.
        surface: Height of the tip above the nominal plate at first contact, m; infinite before.
        trim: Integrated lateral correction that holds the tip in place, m/s, shape ``(2,)``.
    """

    phase: Array
    angle: Array
    surface: Array
    trim: Array


class Insertion(eqx.Module):
    """Approaches from above, presses and searches along a spiral, and inserts once in the hole.

    Joint speeds are ``J^T (J J^T + damping^2 I)^-1 v`` for a desired velocity ``v`` of the tip.
    With a pitch of zero there is no search: the tip is pressed on the nominal position.

    Attributes:
        gain: Gain of the position, 1/s.
        integral: Integral gain of the lateral position while searching, 1/s2, needed because
            pressing pushes the arm aside.
        approach: Largest speed of the approach, m/s.
        hover: Height at which the approach ends, m.
        press: Speed of the tip towards the plate, m/s.
        force: Desired force while searching, N.
        admittance: Speed along the tool per newton of force error, m/(s N).
        yielding: Lateral speed per newton of lateral force, m/(s N).
        pitch: Pitch of the spiral, m per turn.
        along: Speed along the spiral, m/s.
        widest: Radius at which the spiral starts again, m.
        fallen: Drop below the plate from which the tip counts as in the hole, m.
        insert: Speed of the insertion, m/s.
        upright: Gain that keeps the tool vertical, 1/s.
        damping: Damping of the inverse kinematics.
    """

    gain: Array
    integral: Array
    approach: Array
    hover: Array
    press: Array
    force: Array
    admittance: Array
    yielding: Array
    pitch: Array
    along: Array
    widest: Array
    fallen: Array
    insert: Array
    upright: Array
    damping: Array

    def initial_carry(self) -> InsertionCarry:
        """The carry at the beginning of the approach."""
        zero = jnp.zeros_like(self.gain)
        return InsertionCarry(jnp.zeros((), jnp.int32), zero, zero + jnp.inf, jnp.stack([zero] * 2))

    def __call__(
        self,
        carry: InsertionCarry,
        obs: Float[Array, " obs"],
        key: PRNGKeyArray | None = None,
    ) -> tuple[InsertionCarry, Float[Array, " act"]]:
        """The joint speeds and the next carry; the key is ignored."""
        frames = physics.link_frames(obs[:7])
        force, error = obs[WRENCH][:3], obs[ERROR]
        carry = self._next(carry, force, error)
        linear = jnp.where(
            carry.phase == APPROACH,
            self._approach(error),
            jnp.where(carry.phase == SEARCH, self._search(carry, force, error), self._in(force)),
        )
        vertical = jnp.asarray((0.0, 0.0, -1.0), obs.dtype)
        turn = self.upright * jnp.cross(frames.z[-1], vertical)
        turn = jnp.where(carry.phase == INSERT, 0.0, turn)
        wanted = jnp.concatenate([linear, turn])
        jacobian = physics.jacobian(frames, tip(frames)).T
        square = jacobian @ jacobian.T + self.damping**2 * jnp.eye(6, dtype=obs.dtype)
        speeds = jacobian.T @ jnp.linalg.solve(square, wanted)
        limit = jnp.asarray(LIMIT, obs.dtype)
        action = speeds * jnp.minimum(1, jnp.min(limit / jnp.maximum(jnp.abs(speeds), 1e-6)))
        return carry, action

    def sent(self, carry: InsertionCarry, action: Float[Array, " act"]) -> InsertionCarry:
        """Returns the carry unchanged."""
        return carry

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """The gains, speeds and forces that are not zero.

        Args:
            spec: Not used.
        """
        used = {name: unit for name, unit in UNITS.items() if float(getattr(self, name))}
        return tuple(handle(name, name, unit, factor=0.25) for name, unit in used.items())

    def _next(self, carry: InsertionCarry, force: Array, error: Array) -> InsertionCarry:
        """The carry with phase, spiral and trim of this step."""
        height, aside = -error[2], jnp.sqrt(jnp.sum(error[:2] ** 2))
        touching = force[2] > TOUCH
        above = (height < self.hover + 1e-3) & (aside < 5e-4)
        begins = (carry.phase == APPROACH) & (above | (touching & (aside < NEAR)))
        surface = jnp.where(
            (carry.phase == SEARCH) & jnp.isinf(carry.surface) & touching, height, carry.surface
        )
        falls = (carry.phase == SEARCH) & (surface - height > self.fallen) & (aside < NEAR)
        falls = falls & jnp.isfinite(surface)
        lost = (carry.phase == INSERT) & (aside > NEAR)
        phase = jnp.where(begins | lost, SEARCH, jnp.where(falls, INSERT, carry.phase))
        searching = (phase == SEARCH) & jnp.isfinite(surface)
        radius = self.pitch * carry.angle / (2 * jnp.pi)
        step = self.along * PERIOD / jnp.maximum(radius, 5e-4)
        angle = jnp.where(searching & (self.pitch > 0), carry.angle + step, carry.angle)
        angle = jnp.where(radius > self.widest, 0.0, angle)
        missing = error[:2] + self.pitch * angle / (2 * jnp.pi) * _direction(angle)
        trim = carry.trim + jnp.where(phase == SEARCH, self.integral * PERIOD, 0) * missing
        return InsertionCarry(phase, angle, surface, jnp.clip(trim, -0.05, 0.05))

    def _approach(self, error: Array) -> Array:
        """Velocity towards a point above the hole, which is higher the farther off the tip is."""
        height = self.hover + jnp.sqrt(jnp.sum(error[:2] ** 2) + 1e-12)
        to_hole = self.gain * (error + jnp.stack([0 * height, 0 * height, height]))
        size = jnp.sqrt(jnp.sum(to_hole**2) + 1e-12)
        return to_hole * jnp.minimum(1, self.approach / size)

    def _search(self, carry: InsertionCarry, force: Array, error: Array) -> Array:
        """Velocity along the spiral, with the desired force on the plate."""
        radius, direction = self.pitch * carry.angle / (2 * jnp.pi), _direction(carry.angle)
        moving = jnp.isfinite(carry.surface) & (self.pitch > 0)
        tangent = jnp.stack([-direction[1], direction[0]]) * jnp.where(moving, self.along, 0)
        pressing = jnp.clip(self.admittance * (force[2] - self.force), -self.press, self.press)
        down = jnp.where(self.admittance > 0, pressing, -self.press)
        lateral = self.gain * (error[:2] + radius * direction) + tangent + carry.trim
        return jnp.concatenate([lateral, down[None]])

    def _in(self, force: Array) -> Array:
        """Velocity down the hole, with compliance to its wall."""
        return jnp.concatenate([self.yielding * force[:2], -self.insert[None]])


def _direction(angle: Array) -> Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def insertion_law(**changes: float) -> Insertion:
    """The insertion law with the parameters of the spiral search, except for the given ones."""
    numbers = {
        "gain": 5.0, "integral": 5.0, "approach": 0.08, "hover": 0.002, "press": 0.02, "force": 6.0,
        "admittance": 0.01, "yielding": 0.002, "pitch": 1e-3, "along": 0.02, "widest": 3.5e-3,
        "fallen": 8e-4, "insert": 0.05, "upright": 2.0, "damping": 0.01,
    }  # fmt: skip
    return Insertion(**{name: jnp.asarray(v) for name, v in {**numbers, **changes}.items()})


def straight_push() -> Insertion:
    """Resolved rates to the nominal hole (50 mm/s), then straight down at 5 mm/s."""
    changes = {"gain": 2.0, "approach": 0.05, "press": 0.005, "admittance": 0.0, "pitch": 0.0}
    return insertion_law(**changes, integral=1.0, yielding=0.0, insert=0.005)


def tunings() -> dict[str, Policy]:
    """An ordinary controller and the reference."""
    return {"straight push": straight_push(), "spiral search": insertion_law()}


def bad_policy() -> Insertion:
    """A push at 0.25 m/s, with which the peg hits the plate far too hard."""
    changes: dict[str, Any] = {"gain": 20.0, "hover": -0.02, "approach": 0.25}
    return insertion_law(**changes)


def bad_posture() -> ConstantPolicy:
    """Moves away from the fixture and lowers the shoulder until the hand goes through the table."""
    return ConstantPolicy(jnp.asarray((0.4, 0.12, 0.0, 0.0, 0.0, 0.0, 0.0)))


JOINTS = range(1, physics.JOINTS + 1)
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
    terms: ClassVar[tuple[Term, ...]] = TERMS
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
            for i, low, high in zip(JOINTS, physics.LEAST, physics.GREATEST, strict=True)
        ),
        *(
            Instrument(Channel(f"dq_{i}", "rad/s", -speed, speed), sd=1e-3)
            for i, speed in zip(JOINTS, physics.FASTEST, strict=True)
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
    costs = COSTS
    limits = LIMITS
    penalties: ClassVar[dict[str, float]] = PENALTIES

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
        tip = physics.tip(physics.link_frames(cell.q))
        error = jnp.asarray(physics.MOUTH, tip.dtype) - tip
        return jnp.concatenate([cell.q, cell.speed, cell.wrench, error, error[2:]])

    def quantities(self, c: Any, now: Moment) -> dict[str, Array]:
        """Peak force, clearance, distance of the joints from their ends, and depth."""
        return quantities(now.plant, physics.link_frames(now.plant.q))

    def success(self, c: Any, now: Moment) -> Bool[Array, ""]:
        """Whether the peg is fully inserted."""
        depth = physics.insertion(now.plant, physics.link_frames(now.plant.q))
        return depth >= physics.HOLE_DEPTH

    def reward(self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Depth gained minus distance, effort and time."""
        return reward(before.plant, now.plant, now.inputs, trip)

    def amounts(
        self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Depth, time, distance, effort and trips."""
        return amounts(before.plant, now.plant, now.inputs, trip)

    def tunings(self) -> dict[str, Policy]:
        """The plant's controllers by name."""
        return tunings()
