"""Dead-time compensation: a controller acts on what the plant will measure one dead time later."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Spec
from neorl_core.control import Tunable, follow, inside, tunables


class SmithCarry(NamedTuple):
    """Carry of a Smith predictor.

    Attributes:
        inner: Carry of the controller.
        moved: Outputs of the model without dead time, now and in the past, oldest first, in units
            of the plant's outputs, shape ``(longest delay + 1, loop)``.
        action: The action of the last step, shape ``(loop,)``.
        started: Whether a step has been taken.
    """

    inner: Any
    moved: Float[Array, "past loop"]
    action: Float[Array, " loop"]
    started: Bool[Array, ""]


class SmithPredictor(eqx.Module):
    """A controller that acts on the plant as if it had no dead time.

    The controller is given ``y + (m_t - m_{t-delay})`` in place of the measurement ``y``, where
    ``m_{t+1} = pole m_t + gain (u_t - rest)`` is a first-order model without dead time. This adds
    the effect of inputs that were sent but have not arrived yet. At rest the two model values
    agree, so a stable plant is controlled without offset whatever the model. On an integrating
    plant (pole 1) a constant load leaves an offset of ``delay * gain`` times the input that
    balances it, minus the part already in ``rest``; the linear-quadratic controllers have no such
    offset.

    Attributes:
        controller: The loops, tuned for the plant without dead time.
        pole: Poles of the models, shape ``(loop,)``.
        gain: Output change per unit of input in one period, shape ``(loop,)``.
        rest: Inputs that hold the outputs; the models are linear about them, shape ``(loop,)``.
        delay: Dead time of each loop in periods; static.
        measured: Index of the observation that each loop controls; static.

    Source: Smith, Closer control of loops with dead time, 1957.
    """

    controller: Any
    pole: Float[Array, " loop"]
    gain: Float[Array, " loop"]
    rest: Float[Array, " loop"]
    delay: tuple[int, ...] = eqx.field(static=True, converter=tuple)
    measured: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """Tunable parameters of the inner controller.

        Args:
            spec: Channels, for the names.
        """
        return inside(tunables(self.controller, spec), "controller")

    def initial_carry(self) -> SmithCarry:
        """The plant at rest, with no input in transit."""
        moved = jnp.zeros((max(self.delay, default=0) + 1, len(self.delay)), self.gain.dtype)
        return SmithCarry(
            self.controller.initial_carry(), moved, self.rest, jnp.zeros((), jnp.bool_)
        )

    def __call__(
        self, carry: SmithCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[SmithCarry, Float[Array, " act"]]:
        """Takes one step of the model and of the controller.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The carry and the action; NaN where the controller's action is NaN.
        """
        step = self.pole * carry.moved[-1] + self.gain * (carry.action - self.rest)
        moved = jnp.concatenate([carry.moved[1:], step[None]])
        # Only differences matter, so an integrating model is kept near zero.
        moved = moved - jnp.where(self.pole >= 1, moved[0], 0)[None]
        moved = jnp.where(carry.started, moved, carry.moved)
        past = jnp.asarray([len(moved) - 1 - delay for delay in self.delay])
        on_its_way = moved[-1] - moved[past, jnp.arange(len(self.delay))]
        seen = (
            jnp.asarray(obs)
            .at[jnp.asarray(self.measured)]
            .add(on_its_way.astype(jnp.asarray(obs).dtype))
        )
        inner, action = self.controller(carry.inner, seen, None)
        held = jnp.where(jnp.isfinite(action), action, carry.action)
        return SmithCarry(inner, moved, held, jnp.ones((), jnp.bool_)), action

    def sent(self, carry: SmithCarry, action: Float[Array, " act"]) -> SmithCarry:
        """Takes what the plant received into the model, and reports it to the controller."""
        return self._received(carry, action, self.controller.sent(carry.inner, action))

    def follow(self, carry: SmithCarry, action: Float[Array, " act"]) -> SmithCarry:
        """The same while another controller acts; this one continues from its action."""
        return self._received(carry, action, follow(self.controller, carry.inner, action))

    def _received(self, carry: SmithCarry, action: Array, inner: Any) -> SmithCarry:
        action = action.astype(carry.action.dtype)
        held = jnp.where(jnp.isfinite(action), action, carry.action)
        return carry._replace(inner=inner, action=held)
