"""The arm against MuJoCo's recorded numbers, a period in contact against NumPy loops."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from neorl_envs.plants import RobotAssembly
from neorl_envs.plants.robot_assembly import Cell, jacobian, link_frames, mass_matrix
from neorl_envs.plants.robot_assembly._physics import MOUTH, START, advance, along_tool

TOOL = 0.107 + 0.1034 + 0.06


def test_kinematics_and_inertia_are_those_of_mujoco() -> None:
    """Recorded by tools/studies/oracles/mujoco_arm.py over random poses of all joints."""

    @jax.jit
    @jax.vmap
    def found(q: jax.Array) -> tuple:
        frames = link_frames(q)
        tip = along_tool(frames, TOOL)
        turn = jnp.stack([frames.x[-1], frames.y[-1], frames.z[-1]], axis=1)
        return tip, turn, jacobian(frames, tip).T, mass_matrix(frames)

    with np.load(Path(__file__).with_name("mujoco_arm.npz")) as stored:
        recorded = [stored[name] for name in ("tip", "rotation", "jacobian", "inertia")]
        q = stored["q"]
    for dtype, tolerance in ((jnp.float64, 1e-12), (jnp.float32, 2e-6)):
        with jax.enable_x64(dtype == jnp.float64):
            for ours, theirs in zip(found(jnp.asarray(q, dtype)), recorded, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=tolerance)


OFFSETS = [(0, 0, 0.333), (0, 0, 0), (0, -0.316, 0), (0.0825, 0, 0), (-0.0825, 0.384, 0)]
OFFSETS += [(0, 0, 0), (0.088, 0, 0)]
TURNS = [0, -90, 90, 90, -90, 90, 90]


def chain(q: np.ndarray) -> list[np.ndarray]:
    """Homogeneous matrices of the seven links."""
    here, result = np.eye(4), []
    for offset, degrees, angle in zip(OFFSETS, TURNS, q, strict=True):
        c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
        step = np.array([[1, 0, 0, 0], [0, c, -s, 0], [0, s, c, 0], [0, 0, 0, 1.0]])
        step[:3, 3] = offset
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
        here = here @ step @ turn
        result.append(here)
    return result


def touch(point, speed, hole, axes, clearance, friction, side) -> np.ndarray:
    """Force at one point: of the rim, or of the peg's side at the mouth."""
    a, b, z = axes.T @ (point - hole)
    radius = np.hypot(a, b)
    out = (a * axes[:, 0] + b * axes[:, 1]) / radius
    if side:
        depth, normal = (radius - clearance if radius < 9.9e-3 + clearance else -1), -out
    else:
        wide = 9.9e-3 + clearance + min(max(1e-3 + z, 0), 1e-3)
        if z >= 0 or radius <= wide or radius >= 0.06:
            return np.zeros(3)
        options = [(-z, axes[:, 2])]
        if z > -1e-3:
            options.append(((radius - wide) / np.sqrt(2), (axes[:, 2] - out) / np.sqrt(2)))
        else:
            options.append((radius - wide, -out))
        depth, normal = min(options, key=lambda one: one[0])
    if depth <= 0:
        return np.zeros(3)
    press = max(2e4 * depth - 100 * speed @ normal, 0)
    across = speed - (speed @ normal) * normal
    return press * normal - friction * press * across / np.sqrt(across @ across + 0.01**2)


def period(q, speed, target, hole, tilt, clearance, friction) -> tuple:
    """Fifty milliseconds with the constant diagonal inertia."""
    z = np.array([*tilt, 1.0]) / np.linalg.norm([*tilt, 1.0])
    x = np.array([z[2], 0, -z[0]]) / np.hypot(z[0], z[2])
    axes = np.stack([x, np.cross(z, x), z], axis=1)
    inertia = np.array([1.3, 1.3, 0.9, 0.9, 0.3, 0.3, 0.2])
    most = np.array([15, 7.5, 10, 12.5, 15, 20, 20])
    seen, peak = np.zeros(6), 0.0
    for _ in range(50):
        links = chain(q)
        last = links[-1]
        tip = last[:3, 3] + TOOL * last[:3, 2]

        def moving(point, links=links, speed=speed):
            return sum(
                w * np.cross(m[:3, 2], point - m[:3, 3]) for w, m in zip(speed, links, strict=True)
            )

        points = [
            tip + 9.9e-3 * (np.cos(t) * last[:3, 0] + np.sin(t) * last[:3, 1])
            for t in np.arange(8) * np.pi / 4
        ]
        forces = [touch(p, moving(p), hole, axes, clearance, friction, False) for p in points]
        height = axes[:, 2] @ (tip - hole)
        if height < -1e-3:
            back = (height + 1e-3) / (last[:3, 2] @ axes[:, 2])
            points.append(tip - back * last[:3, 2])
            mouth = (hole, axes, clearance, friction, True)
            forces.append(touch(points[-1], moving(points[-1]), *mouth))
        torque = np.zeros(7)
        for p, f in zip(points, forces, strict=True):
            torque += [m[:3, 2] @ np.cross(p - m[:3, 3], f) for m in links]
        speed = speed + 1e-3 * np.clip(20 * (target - speed) + torque / inertia, -most, most)
        flange = last[:3, 3] + 0.107 * last[:3, 2]
        moment = sum(np.cross(p - flange, f) for p, f in zip(points, forces, strict=True))
        fresh = np.concatenate([sum(forces), moment])
        seen = seen + (1 - np.exp(-2 * np.pi * 100 * 1e-3)) * (fresh - seen)
        peak = max(peak, np.linalg.norm(seen[:3]))
        q = q + 1e-3 * speed
    return q, speed, seen, peak


def placed(height: float, aside: float, clearance: float) -> np.ndarray:
    """Joint angles with the tip at a height over the mouth and aside of it, the tool upright."""
    q, wanted = np.array(START), np.asarray(MOUTH) + np.array([aside, 0.0, height])
    for _ in range(30):
        links = chain(q)
        tip, axis = links[-1][:3, 3] + TOOL * links[-1][:3, 2], links[-1][:3, 2]
        columns = [np.concatenate([np.cross(m[:3, 2], tip - m[:3, 3]), m[:3, 2]]) for m in links]
        rest = np.concatenate([wanted - tip, np.cross(axis, [0, 0, -1.0])])
        q = q + np.linalg.pinv(np.stack(columns, axis=1)) @ rest
    return q


def test_periods_in_contact_agree_with_loops_over_points() -> None:
    """On the plate, on the chamfer, and in the hole with the wall on one side and a tilt."""
    env = RobotAssembly(fidelity="fast")
    rng = np.random.default_rng(8)
    cases = [(-5e-4, 0.03, 2e-4), (-5e-4, 9e-4, 2e-4), (-8e-3, 3e-4, 1e-4), (2e-3, 0.0, 3e-4)]
    cases.append((-5e-3, 0.08, 2e-4))  # below the plate's height, beside the part
    with jax.enable_x64(True):
        params = env.default_params("clean", dtype=jnp.float64)
        step = jax.jit(lambda cell, u: advance(params.constants, cell, u, fidelity="fast"))
        sizes = []
        for height, aside, clearance in cases:
            q = placed(height, aside, clearance)
            speed, target = rng.normal(0, 0.02, 7), rng.normal(0, 0.03, 7)
            tilt = np.array([0.01, -0.006])
            cell: Cell = params.initial._replace(
                q=jnp.asarray(q), speed=jnp.asarray(speed), tilt=jnp.asarray(tilt),
                clearance=jnp.asarray(clearance), friction=jnp.asarray(0.2),
            )  # fmt: skip
            end = step(cell, jnp.asarray(target))
            expected = period(q, speed, target, np.asarray(MOUTH), tilt, clearance, 0.2)
            for ours, theirs in zip(
                (end.q, end.speed, end.wrench, end.peak), expected, strict=True
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
            sizes.append(expected[3])
    assert min(sizes[:3]) > 1
    assert sizes[3:] == [0, 0]
