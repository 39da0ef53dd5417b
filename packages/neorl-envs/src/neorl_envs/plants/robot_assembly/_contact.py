"""Contact of a round peg with a chamfered hole: penalty forces with friction at ten points."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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
