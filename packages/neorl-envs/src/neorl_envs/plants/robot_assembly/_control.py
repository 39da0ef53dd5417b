"""Insertion by resolved rates: a straight push, and a spiral search with compliance."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Policy, Spec
from neorl_core.control import ConstantPolicy, Tunable
from neorl_envs.blocks import handle
from neorl_envs.plants.robot_assembly import _arm as arm
from neorl_envs.plants.robot_assembly._physics import PERIOD, tip

WRENCH, ERROR = slice(14, 20), slice(20, 23)
APPROACH, SEARCH, INSERT = 0, 1, 2
TOUCH, NEAR = 1.5, 6e-3  # N above which there is contact; m within which the hole must be
UNITS = {
    "gain": "1/s", "approach": "m/s", "hover": "m", "press": "m/s", "force": "N",
    "admittance": "m/(s N)", "yielding": "m/(s N)", "pitch": "m", "along": "m/s", "insert": "m/s",
}  # fmt: skip
LIMIT = tuple(0.25 * speed for speed in arm.FASTEST)


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
        frames = arm.link_frames(obs[:7])
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
        jacobian = arm.jacobian(frames, tip(frames)).T
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
