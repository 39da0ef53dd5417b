"""Constants and state of arm and hole, and one control period of fifty milliseconds."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_envs.blocks import Relation, constant
from neorl_envs.plants.robot_assembly import _arm as arm
from neorl_envs.plants.robot_assembly._contact import (
    Hole,
    Material,
    Peg,
    contact_wrench,
    in_hole,
    tilted_hole,
)

Scalar = Float[Array, ""]
PERIOD, SUBSTEPS = 0.05, 50  # s; of 1 ms
SERVO = 20.0  # 1/s
TOOL = arm.FLANGE + 0.1034 + 0.06  # m from the last joint to the tip of the peg
MOUTH = (0.57729452, 0.0, 0.13722023)  # m: the nominal hole, where the tool is in the pose below
HOLE_DEPTH = 0.025  # m
PEG = 9.9e-3  # m
DIAGONAL = (1.3, 1.3, 0.9, 0.9, 0.3, 0.3, 0.2)  # kg m2: the inertia of ``fidelity="fast"``
FILTER = 2 * np.pi * 100.0 * PERIOD / SUBSTEPS  # of the force sensor, 100 Hz
OWN = "own choice"


class Constants(NamedTuple):
    """Contact of peg and hole."""

    stiffness: Scalar = constant(2e4, "N/m", OWN, spread=1.0)
    damping: Scalar = constant(100.0, "N s/m", OWN)
    slip: Scalar = constant(0.01, "m/s", OWN)
    chamfer: Scalar = constant(1e-3, "m", OWN)
    bottom: Scalar = constant(0.0265, "m", OWN)
    part: Scalar = constant(0.06, "m", OWN)


RELATIONS = (
    Relation("chamfer", "<", "bottom", "a chamfer ends above the bottom"),
    Relation(HOLE_DEPTH, "<", "bottom", "the peg could not go in"),
    Relation(PEG, "<", "part", "the hole would be wider than its part"),
    Relation(0.0, "<", "initial.clearance", "the peg would not fit"),
    Relation(0.0, "<=", "initial.friction"),
    Relation(arm.LEAST, "<=", "initial.q", "joints are within their ranges"),
    Relation("initial.q", "<=", arm.GREATEST, "joints are within their ranges"),
    Relation("initial.speed", "<=", arm.FASTEST, "joints are no faster"),
)


class Cell(NamedTuple):
    """Arm and hole.

    Attributes:
        q: Joint angles, rad, shape ``(7,)``.
        speed: Joint speeds, rad/s, shape ``(7,)``.
        wrench: Filtered force and torque of the environment on the peg, at the flange in the
            base's axes, N and N m, shape ``(6,)``.
        peak: Largest filtered force of the period, N.
        error: Offset of the hole from its nominal position, m, shape ``(3,)``.
        tilt: Tilt of the hole's axis, rad, shape ``(2,)``.
        clearance: Radius of the hole minus that of the peg, m.
        friction: Coefficient of friction.
    """

    q: Float[Array, " 7"]
    speed: Float[Array, " 7"]
    wrench: Float[Array, " 6"]
    peak: Scalar
    error: Float[Array, " 3"]
    tilt: Float[Array, " 2"]
    clearance: Scalar
    friction: Scalar


class MotionState(NamedTuple):
    """The part of the state that changes within a period."""

    q: Array
    speed: Array
    wrench: Array
    peak: Array


START = np.array([0.0, 0.17508445, 0.0, -2.06113068, 0.0, 2.23621513, 0.78539816])
INITIAL: Any = Cell(  # type: ignore[arg-type]
    *(START, np.zeros(7), np.zeros(6), 0.0, np.zeros(3), np.zeros(2), 2.75e-4, 0.225)
)
_LATERAL, _HEIGHT, _TILT = 2e-3, 5e-4, np.deg2rad(1.0)
SPREAD: Any = Cell(  # type: ignore[arg-type]
    *(0.02, 0.0, 0.0, 0.0, np.array([_LATERAL, _LATERAL, _HEIGHT]), _TILT, 2.25e-4, 0.075)
)


def tip(frames: arm.Frames) -> Float[Array, " 3"]:
    """The centre of the peg's tip, m."""
    return arm.along_tool(frames, TOOL)


def hole_of(cell: Cell) -> Hole:
    """The actual hole, with its offset and tilt."""
    return tilted_hole(jnp.asarray(MOUTH, cell.q.dtype) + cell.error, cell.tilt)


def insertion(cell: Cell, frames: arm.Frames) -> Scalar:
    """Depth of the tip in the hole, from 0 to 25 mm; 0 beside it."""
    x, y, z = in_hole(hole_of(cell), tip(frames))
    inside = x**2 + y**2 < 1.5e-3**2
    return jnp.where(inside, jnp.clip(-z, 0, HOLE_DEPTH), 0.0)


def compliance(cell: Cell, fidelity: str) -> Float[Array, "7 7"]:
    """Inverse inertia, held over a period."""
    if fidelity == "fast":
        return jnp.diag(1 / jnp.asarray(DIAGONAL, cell.q.dtype))
    return jnp.linalg.inv(arm.mass_matrix(arm.link_frames(cell.q)))


def advance(
    c: Constants, cell: Cell, target: Float[Array, " 7"], *, fidelity: str, substeps: int = SUBSTEPS
) -> Cell:
    """The cell one period later, by the semi-implicit Euler method.

    The acceleration is ``ddq = clip(20 (u - dq) + M^-1 J^T F, +-ddq_max)``, since an inner torque
    loop compensates gravity and Coriolis forces. The inertia is that of the start of the period.

    ``target`` are the joint speeds demanded, rad/s; ``fidelity`` is ``"full"`` or ``"fast"``.
    """
    inverse = compliance(cell, fidelity)
    hole = hole_of(cell)
    dtype = cell.q.dtype
    most = jnp.asarray(arm.ACCELERATION, dtype)
    h = PERIOD / substeps
    share = 1 - np.exp(-FILTER * SUBSTEPS / substeps)
    material = Material(
        *(c.stiffness, c.damping, c.slip, cell.friction, jnp.asarray(PEG, dtype)),
        *(PEG + cell.clearance, c.chamfer, c.bottom, c.part),
    )

    def one(_: Array, now: MotionState) -> MotionState:
        frames = arm.link_frames(now.q)
        turn = now.speed @ frames.z
        point = tip(frames)
        moves = arm.jacobian(frames, point)[:, :3]
        axes = (frames.x[-1], frames.y[-1], frames.z[-1])
        peg = Peg(point, *axes, now.speed @ moves, turn)
        wrench = contact_wrench(material, peg, hole)
        force, moment = wrench[:3], wrench[3:]
        pull = jnp.broadcast_to(force, frames.origin.shape)
        torque = jnp.sum(frames.z * (moment[None] - jnp.cross(frames.origin, pull)), axis=1)
        rate = SERVO * (target - now.speed) + inverse @ torque
        speed = now.speed + h * jnp.clip(rate, -most, most)
        flange = arm.along_tool(frames, arm.FLANGE)
        measured = jnp.concatenate([force, moment - jnp.cross(flange, force)])
        filtered = now.wrench + share * (measured - now.wrench)
        size = jnp.sqrt(jnp.sum(filtered[:3] ** 2))
        return MotionState(now.q + h * speed, speed, filtered, jnp.maximum(now.peak, size))

    start = MotionState(cell.q, cell.speed, cell.wrench, jnp.zeros_like(cell.peak))
    end = jax.lax.fori_loop(0, substeps, one, start)
    return cell._replace(q=end.q, speed=end.speed, wrench=end.wrench, peak=end.peak)
