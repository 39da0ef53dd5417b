"""PID loops on computed measurements with feed-forward, the usual strong baseline."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Spec
from neorl_core.control import PID, Entry, PIDCarry, Tunable, inside

Numbers = Any


class FeedforwardCarry(NamedTuple):
    """Carry of the loops and their feed-forward.

    Attributes:
        feedback: Carry of the loops.
        added: Feed-forward of the last step, shape ``(act,)``.
    """

    feedback: PIDCarry
    added: Float[Array, " act"]


class FeedforwardPID(eqx.Module):
    """PID loops whose measurements are computed from the observation, plus a feed-forward.

    The action is ``u = clip(PID(measure(numbers, obs)) + feedforward(numbers, obs), low, high)``.
    As feedback, the loops receive the action that the plant received minus the feed-forward, so
    that they do not wind up.

    Attributes:
        feedback: The loops, one per action; their ``measured`` are indices of the computed
            measurements. Their own limits should be wide.
        numbers: Parameters of the two functions, a tree of arrays.
        low: Smallest action, shape ``(act,)``.
        high: Largest action, shape ``(act,)``.
        measure: Module-level function from ``numbers`` and one observation to the measurements.
        feedforward: Module-level function from ``numbers`` and one observation to the feed-forward,
            shape ``(act,)``.
        origin: Names of the plant and of the tuning, by which a stored policy is restored.
        handles: Those of ``numbers`` that may be tuned, as paths relative to ``numbers``.
    """

    feedback: PID
    numbers: Numbers
    low: Float[Array, " act"]
    high: Float[Array, " act"]
    measure: Callable[[Numbers, Array], Array] = eqx.field(static=True)
    feedforward: Callable[[Numbers, Array], Array] = eqx.field(static=True)
    origin: tuple[str, str] = eqx.field(static=True)
    handles: tuple[Tunable, ...] = eqx.field(static=True, default=())

    @property
    def setpoint(self) -> Float[Array, " loop"]:
        """Setpoints of the loops."""
        return self.feedback.setpoint

    def with_setpoint(self, setpoint: Float[Array, " loop"]) -> "FeedforwardPID":
        """The same controller with other setpoints."""
        feedback = dataclasses.replace(self.feedback, setpoint=setpoint)
        return dataclasses.replace(self, feedback=feedback)

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """Gains, times and setpoints of the loops, and the declared handles of the feed-forward.

        Args:
            spec: Channels, for the names.
        """
        numbers = [*inside(self.feedback.loop_tunables(spec), "feedback")]
        for i, channel in enumerate(spec.action):
            if float(self.feedback.setpoint[i]) and float(self.feedback.kp[i]):
                entries = (Entry("feedback.setpoint", (i,)),)
                name = f"setpoint of the loop on {channel.name}"
                numbers.append(Tunable(name, "", entries, entries, "factor", 0.02))
        return (*numbers, *inside(self.handles, "numbers"))

    def initial_carry(self) -> FeedforwardCarry:
        """A carry with all loops at rest."""
        return FeedforwardCarry(self.feedback.initial_carry(), jnp.zeros_like(self.low))

    def __call__(
        self,
        carry: FeedforwardCarry,
        obs: Float[Array, " obs"],
        key: PRNGKeyArray | None = None,
    ) -> tuple[FeedforwardCarry, Float[Array, " act"]]:
        """The action and the next carry; the key is ignored."""
        feedback, action = self.feedback(carry.feedback, self.measure(self.numbers, obs), None)
        added = jnp.broadcast_to(self.feedforward(self.numbers, obs), self.low.shape)
        return FeedforwardCarry(feedback, added), jnp.clip(action + added, self.low, self.high)

    def sent(self, carry: FeedforwardCarry, action: Float[Array, " act"]) -> FeedforwardCarry:
        """Passes the action that the plant received, minus the feed-forward, to the loops."""
        return carry._replace(feedback=self.feedback.sent(carry.feedback, action - carry.added))

    def follow(self, carry: FeedforwardCarry, action: Float[Array, " act"]) -> FeedforwardCarry:
        """Does the same as :meth:`sent` while another controller acts."""
        feedback_action = action - carry.added
        return carry._replace(feedback=self.feedback.follow(carry.feedback, feedback_action))


def handle(
    name: str, leaf: str, unit: str = "", *, factor: float = 0.0, shift: float = 0.0, count: int = 1
) -> Tunable:
    """Declares a parameter of a feed-forward as tunable; give either ``factor`` or ``shift``.

    Args:
        name: Name for users.
        leaf: Field in ``numbers``.
        unit: Unit of the value.
        factor: Logarithm of the factor of a first change.
        shift: Amount added by a first change.
        count: Number of values in the field, which change together.

    Example:
        >>> handle("look-ahead", "look_ahead", "s", factor=0.2).kind
        'factor'
    """
    entries = (Entry(leaf, tuple(range(count))),)
    kind = "factor" if factor else "shift"
    return Tunable(name, unit, entries, entries, kind, factor or shift)


def no_feedforward(numbers: Numbers, obs: Float[Array, " obs"]) -> Float[Array, ""]:
    """Zero feed-forward."""
    return jnp.zeros((), obs.dtype)
