"""Kinematics and inertia of the arm: seven revolute joints."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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
