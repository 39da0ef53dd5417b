"""Reward of an insertion, and its limits."""

import jax.numpy as jnp
from jaxtyping import Array

from neorl_core import CostChannel
from neorl_envs.blocks import Limit, Term
from neorl_envs.plants.robot_assembly import _arm as arm
from neorl_envs.plants.robot_assembly._contact import in_hole
from neorl_envs.plants.robot_assembly._physics import (
    HOLE_DEPTH,
    MOUTH,
    PERIOD,
    Cell,
    hole_of,
    insertion,
    tip,
)

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


def free_distance(frames: arm.Frames) -> Array:
    """Distance of the links' capsules from the table and from the fixture, m.

    There are seven capsules between the origins of the joints and the hand, each evaluated at both
    ends and in the middle. The table is the plane of the base, and the fixture is a cylinder around
    the hole.
    """
    nodes = jnp.concatenate([frames.origin[1:], arm.along_tool(frames, HAND)[None]])
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


def quantities(cell: Cell, frames: arm.Frames) -> dict[str, Array]:
    """The limited quantities, and the depth."""
    low, high = (jnp.asarray(ends, cell.q.dtype) for ends in (arm.LEAST, arm.GREATEST))
    return {
        "force": cell.peak,
        "free_distance": free_distance(frames),
        "joint_range": jnp.minimum(cell.q - low, high - cell.q),
        "depth": insertion(cell, frames),
    }


def amounts(before: Cell, cell: Cell, target: Array, trip: Array) -> dict[str, Array]:
    """Depth gained, distance from the hole over time, effort, time and trips of a step."""
    old, new = arm.link_frames(before.q), arm.link_frames(cell.q)
    progress = insertion(cell, new) - insertion(before, old)
    x, y, z = in_hole(hole_of(cell), tip(new))
    distance = jnp.sqrt(x**2 + y**2 + jnp.maximum(z, 0) ** 2)
    share = target / jnp.asarray(arm.FASTEST, target.dtype)
    return {
        "depth": 1000 * progress,
        "distance, at most 0.1 m": jnp.minimum(distance, 0.1) * PERIOD,
        "effort": jnp.sum(share**2) * PERIOD,
        "time": jnp.asarray(PERIOD, progress.dtype),
        "trips": trip,
    }


def reward(before: Cell, cell: Cell, target: Array, trip: Array) -> Array:
    """Points: 100 for the full depth, minus distance, effort, time and a trip."""
    old, new = arm.link_frames(before.q), arm.link_frames(cell.q)
    progress = (insertion(cell, new) - insertion(before, old)) / HOLE_DEPTH
    x, y, z = in_hole(hole_of(cell), tip(new))
    distance = jnp.sqrt(x**2 + y**2 + jnp.maximum(z, 0) ** 2)
    share = target / jnp.asarray(arm.FASTEST, target.dtype)
    return (
        100 * progress
        - 2 * jnp.minimum(distance, 0.1)
        - 0.01 * jnp.sum(share**2)
        - 0.05
        - jnp.where(trip, TRIP_COST, 0.0)
    )
