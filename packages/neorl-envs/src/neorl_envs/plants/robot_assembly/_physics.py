"""The arm, its contact with the hole, and one control period of fifty milliseconds."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_envs.blocks import Relation, constant

# Kinematics and inertia of the arm: seven revolute joints.


SOURCE = "franka_emika_panda/panda.xml of mujoco_menagerie"
JOINTS = 7
# Offset of every joint from the previous one, m, and its rotation about x in quarter turns.
OFFSETS = (
    ((0.0, 0.0, 0.333), 0),
    ((0.0, 0.0, 0.0), -1),
    ((0.0, -0.316, 0.0), 1),
    ((0.0825, 0.0, 0.0), 1),
    ((-0.0825, 0.384, 0.0), -1),
    ((0.0, 0.0, 0.0), 1),
    ((0.088, 0.0, 0.0), 1),
)
FLANGE = 0.107  # m along the last axis
MASSES = (4.970684, 0.646926, 3.228604, 3.587895, 1.225946, 1.666555, 0.735522)  # kg
CENTRES = (
    (0.003875, 0.002081, -0.04762),
    (-0.003141, -0.02872, 0.003495),
    (0.027518, 0.039252, -0.066502),
    (-0.05317, 0.104419, 0.027454),
    (-0.011953, 0.041065, -0.038437),
    (0.060149, -0.014117, -0.010517),
    (0.010517, -0.004252, 0.061597),
)
# xx, yy, zz, xy, xz, yz about the centre of mass, kg m2
INERTIAS = (
    (0.70337, 0.70661, 0.009117, -0.000139, 0.006772, 0.019169),
    (0.007962, 0.02811, 0.025995, -0.003925, 0.010254, 0.000704),
    (0.037242, 0.036155, 0.01083, -0.004761, -0.011396, -0.012805),
    (0.025853, 0.019552, 0.028323, 0.007796, -0.001332, 0.008641),
    (0.035549, 0.029474, 0.008627, -0.002117, -0.004037, 0.000229),
    (0.001964, 0.004354, 0.005433, 0.000109, -0.001158, 0.000341),
    (0.012516, 0.010027, 0.004815, -0.000428, -0.001196, -0.000741),
)
ARMATURE = 0.1  # kg m2
LEAST = (-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973)  # rad
GREATEST = (2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973)
FASTEST = (2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61)  # rad/s
ACCELERATION = (15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0)  # rad/s2


class Frames(NamedTuple):
    """Frames of the links.

    Attributes:
        origin: Origins of the joints, m, shape ``(7, 3)``.
        x: First axes of the links, shape ``(7, 3)``.
        y: Second axes.
        z: Third axes, about which the joints turn.
    """

    origin: Float[Array, "7 3"]
    x: Float[Array, "7 3"]
    y: Float[Array, "7 3"]
    z: Float[Array, "7 3"]


def link_frames(q: Float[Array, " 7"]) -> Frames:
    """Frames of the seven links in the base.

    It uses only products of axes and sines, so that a loop over it compiles to one fused kernel.
    """
    x, y, z = jnp.eye(3, dtype=q.dtype)
    origin = jnp.zeros(3, q.dtype)
    cos, sin = jnp.cos(q), jnp.sin(q)
    frames = []
    for i, ((ox, oy, oz), turn) in enumerate(OFFSETS):
        origin = origin + ox * x + oy * y + oz * z
        if turn:
            y, z = turn * z, -turn * y
        x, y = cos[i] * x + sin[i] * y, cos[i] * y - sin[i] * x
        frames.append((origin, x, y, z))
    return Frames(*(jnp.stack(rows) for rows in zip(*frames, strict=True)))


def along_tool(frames: Frames, length: float) -> Float[Array, " 3"]:
    """The point on the last axis at the given distance from the last joint, m."""
    return frames.origin[-1] + length * frames.z[-1]


def jacobian(frames: Frames, point: Float[Array, " 3"]) -> Float[Array, "7 6"]:
    """Linear and angular velocity of a point of the last link per unit speed of each joint."""
    linear = jnp.cross(frames.z, point[None] - frames.origin)
    return jnp.concatenate([linear, frames.z], axis=1)


def mass_matrix(frames: Frames) -> Float[Array, "7 7"]:
    """Joint-space inertia of the seven links and the motors' armatures, kg m2.

    ``M = sum_k m_k J_k^T J_k + W_k^T I_k W_k + 0.1 I`` with the Jacobians ``J_k`` of the centres of
    mass and ``W_k`` of the links' rotation.
    """
    dtype = frames.origin.dtype
    mass, centre = (jnp.asarray(v, dtype) for v in (MASSES, CENTRES))
    xx, yy, zz, xy, xz, yz = np.asarray(INERTIAS).T
    local = np.stack([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]).transpose(2, 0, 1)
    axes = jnp.stack([frames.x, frames.y, frames.z], axis=1)  # link, local axis, base axis
    at = frames.origin + jnp.einsum("ka,kab->kb", centre, axes)
    inertia = jnp.einsum("kab,kac,kcd->kbd", axes, jnp.asarray(local, dtype), axes)
    moves = jnp.asarray(np.tril(np.ones((JOINTS, JOINTS))), dtype)[:, :, None]
    linear = moves * jnp.cross(frames.z[None], at[:, None] - frames.origin[None])
    angular = moves * frames.z[None]
    matrix = jnp.einsum("k,kia,kja->ij", mass, linear, linear)
    matrix = matrix + jnp.einsum("kia,kab,kjb->ij", angular, inertia, angular)
    return matrix + ARMATURE * jnp.eye(JOINTS, dtype=dtype)


# Contact of a round peg with a chamfered hole: penalty forces with friction at ten points.


RIM = 8
_ANGLES = 2 * math.pi * np.arange(RIM) / RIM
_SMALL = 1e-9


class Material(NamedTuple):
    """Contact parameters: stiffness N/m, damping N s/m, slip speed m/s, friction 1, lengths m."""

    stiffness: Array
    damping: Array
    slip: Array
    friction: Array
    peg: Array
    hole: Array
    chamfer: Array
    bottom: Array
    part: Array


class Peg(NamedTuple):
    """The peg's tip: centre, two lateral axes, axis, linear and angular velocity; in the base."""

    tip: Float[Array, " 3"]
    x: Float[Array, " 3"]
    y: Float[Array, " 3"]
    z: Float[Array, " 3"]
    speed: Float[Array, " 3"]
    turn: Float[Array, " 3"]


class Hole(NamedTuple):
    """The hole: centre of its mouth and its axes, the third pointing out of the plate."""

    mouth: Float[Array, " 3"]
    x: Float[Array, " 3"]
    y: Float[Array, " 3"]
    z: Float[Array, " 3"]


def tilted_hole(mouth: Float[Array, " 3"], tilt: Float[Array, " 2"]) -> Hole:
    """A hole whose axis is tilted from the vertical by two small angles, rad."""
    z = jnp.stack([tilt[0], tilt[1], jnp.ones_like(tilt[0])])
    z = z / jnp.sqrt(z @ z)
    x = jnp.stack([z[2], jnp.zeros_like(z[0]), -z[0]]) / jnp.sqrt(z[0] ** 2 + z[2] ** 2)
    return Hole(mouth, x, jnp.cross(z, x), z)


def in_hole(hole: Hole, point: Float[Array, "... 3"]) -> tuple[Array, Array, Array]:
    """Coordinates of points in the hole's frame; the third is negative inside."""
    d = point - jnp.broadcast_to(hole.mouth, point.shape)
    return d @ hole.x, d @ hole.y, d @ hole.z


def contact_wrench(m: Material, peg: Peg, hole: Hole) -> Float[Array, " 6"]:
    """Force on the peg, N, and its moment about the base's origin, N m.

    Contact is evaluated at eight points of the tip's rim against plate, chamfer and wall, at the
    side of the peg against the mouth below the chamfer, and at the tip against the bottom. At each,
    the force is ``f = max(K depth - D v_n, 0)`` along the normal, and the friction
    ``-mu f v_t / sqrt(v_t^2 + v_0^2)`` across it.
    """
    cos, sin = (jnp.asarray(f(_ANGLES)[:, None], peg.tip.dtype) for f in (np.cos, np.sin))
    rim = peg.tip[None] + m.peg * (cos * peg.x[None] + sin * peg.y[None])
    a, b, z = in_hole(hole, rim)
    radius = jnp.sqrt(a**2 + b**2 + _SMALL**2)
    out = (a[:, None] * hole.x[None] + b[:, None] * hole.y[None]) / radius[:, None]
    gap = radius - m.hole - jnp.clip(m.chamfer + z, 0, m.chamfer)
    sloped = z > -m.chamfer
    half = math.sqrt(0.5)
    side = jnp.where(sloped, half * gap, gap)
    slope = half * (hole.z[None] - out)
    flat = -z < side
    steep = jnp.where(sloped[:, None], slope, -out)
    normal = jnp.where(flat[:, None], hole.z[None], steep)
    solid = (z < 0) & (gap > 0) & (radius < m.part)
    depth = jnp.where(solid, jnp.where(flat, -z, side), -1.0)

    # Contact of the side of the peg with the narrow edge of the mouth.
    x0, y0, z0 = in_hole(hole, peg.tip)
    back = (z0 + m.chamfer) / (peg.z @ hole.z)
    edge = peg.tip - back * peg.z
    ea, eb, _ = in_hole(hole, edge)
    distance = jnp.sqrt(ea**2 + eb**2 + _SMALL**2)
    inward = -(ea * hole.x + eb * hole.y) / distance
    within = (z0 < -m.chamfer) & (distance < m.hole)
    edge_depth = jnp.where(within, distance + m.peg - m.hole, -1.0)
    inside = jnp.sqrt(x0**2 + y0**2) < m.hole
    end_depth = jnp.where(inside, -m.bottom - z0, -1.0)

    points = jnp.concatenate([rim, edge[None], peg.tip[None]])
    normals = jnp.concatenate([normal, inward[None], hole.z[None]])
    depths = jnp.concatenate([depth, jnp.stack([edge_depth, end_depth])])
    turn = jnp.broadcast_to(peg.turn, points.shape)
    speed = peg.speed[None] + jnp.cross(turn, points - peg.tip[None])
    along = jnp.sum(speed * normals, axis=1)
    press = jnp.maximum(m.stiffness * depths - m.damping * along, 0)
    press = jnp.where(depths > 0, press, 0.0)
    tangential = speed - along[:, None] * normals
    slip = jnp.sqrt(jnp.sum(tangential**2, axis=1) + m.slip**2)
    force = press[:, None] * normals - (m.friction * press / slip)[:, None] * tangential
    return jnp.concatenate([jnp.sum(force, axis=0), jnp.sum(jnp.cross(points, force), axis=0)])


Scalar = Float[Array, ""]
PERIOD, SUBSTEPS = 0.05, 50  # s; of 1 ms
SERVO = 20.0  # 1/s
TOOL = FLANGE + 0.1034 + 0.06  # m from the last joint to the tip of the peg
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
    Relation(LEAST, "<=", "initial.q", "joints are within their ranges"),
    Relation("initial.q", "<=", GREATEST, "joints are within their ranges"),
    Relation("initial.speed", "<=", FASTEST, "joints are no faster"),
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


def tip(frames: Frames) -> Float[Array, " 3"]:
    """The centre of the peg's tip, m."""
    return along_tool(frames, TOOL)


def hole_of(cell: Cell) -> Hole:
    """The actual hole, with its offset and tilt."""
    return tilted_hole(jnp.asarray(MOUTH, cell.q.dtype) + cell.error, cell.tilt)


def insertion(cell: Cell, frames: Frames) -> Scalar:
    """Depth of the tip in the hole, from 0 to 25 mm; 0 beside it."""
    x, y, z = in_hole(hole_of(cell), tip(frames))
    inside = x**2 + y**2 < 1.5e-3**2
    return jnp.where(inside, jnp.clip(-z, 0, HOLE_DEPTH), 0.0)


def compliance(cell: Cell, fidelity: str) -> Float[Array, "7 7"]:
    """Inverse inertia, held over a period."""
    if fidelity == "fast":
        return jnp.diag(1 / jnp.asarray(DIAGONAL, cell.q.dtype))
    return jnp.linalg.inv(mass_matrix(link_frames(cell.q)))


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
    most = jnp.asarray(ACCELERATION, dtype)
    h = PERIOD / substeps
    share = 1 - np.exp(-FILTER * SUBSTEPS / substeps)
    material = Material(
        *(c.stiffness, c.damping, c.slip, cell.friction, jnp.asarray(PEG, dtype)),
        *(PEG + cell.clearance, c.chamfer, c.bottom, c.part),
    )

    def one(_: Array, now: MotionState) -> MotionState:
        frames = link_frames(now.q)
        turn = now.speed @ frames.z
        point = tip(frames)
        moves = jacobian(frames, point)[:, :3]
        axes = (frames.x[-1], frames.y[-1], frames.z[-1])
        peg = Peg(point, *axes, now.speed @ moves, turn)
        wrench = contact_wrench(material, peg, hole)
        force, moment = wrench[:3], wrench[3:]
        pull = jnp.broadcast_to(force, frames.origin.shape)
        torque = jnp.sum(frames.z * (moment[None] - jnp.cross(frames.origin, pull)), axis=1)
        rate = SERVO * (target - now.speed) + inverse @ torque
        speed = now.speed + h * jnp.clip(rate, -most, most)
        flange = along_tool(frames, FLANGE)
        measured = jnp.concatenate([force, moment - jnp.cross(flange, force)])
        filtered = now.wrench + share * (measured - now.wrench)
        size = jnp.sqrt(jnp.sum(filtered[:3] ** 2))
        return MotionState(now.q + h * speed, speed, filtered, jnp.maximum(now.peak, size))

    start = MotionState(cell.q, cell.speed, cell.wrench, jnp.zeros_like(cell.peak))
    end = jax.lax.fori_loop(0, substeps, one, start)
    return cell._replace(q=end.q, speed=end.speed, wrench=end.wrench, peak=end.peak)
