"""A controller with a network of bounded authority added to its action."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks import MLP
from neorl_core import Affine, Policy
from neorl_core.control import follow


class ResidualCarry(NamedTuple):
    """Carry of a residual policy.

    Attributes:
        base: Carry of the controller.
        correction: The network's addition to its last action, physical units, shape ``(act,)``.
    """

    base: Any
    correction: Float[Array, " act"]


class ResidualPolicy(eqx.Module):
    """``action = clip(base + authority * tanh(network(obs, base)), low, high)``.

    The action never differs from the controller's by more than ``authority``, whatever the network
    predicts. The applied action minus the network's addition is reported to the controller, so its
    integral terms continue as if it acted without the network.

    Attributes:
        base: The controller, in physical units.
        obs: Map from physical observations to the network's inputs.
        action: Map from physical actions to [-1, 1].
        network: Network from observation and the controller's action to one number per action.
        authority: Largest addition to each action, physical units, shape ``(act,)``.
        low: Lower ends of the action channels in physical units, shape ``(act,)``.
        high: Upper ends, shape ``(act,)``.

    Source: Johannink et al., Residual reinforcement learning for robot control, arXiv 1812.03201;
    the bound is an addition of this project.
    """

    base: Policy
    obs: Affine
    action: Affine
    network: MLP
    authority: Float[Array, " act"]
    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> ResidualCarry:
        """The controller's initial carry, with nothing added yet."""
        return ResidualCarry(self.base.initial_carry(), jnp.zeros_like(self.authority))

    def __call__(
        self, carry: ResidualCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[ResidualCarry, Float[Array, " act"]]:
        """The action for one observation, both in physical units; the key is ignored.

        NaN if the controller's action is not finite. If the network's output is not finite, the
        controller acts without it.
        """
        base_carry, action = self.base(carry.base, obs, None)
        scaled_obs = jnp.clip(self.obs.to_scaled(obs), -5.0, 5.0)
        inputs = jnp.concatenate([scaled_obs, jnp.clip(self.action.to_scaled(action), -1.0, 1.0)])
        relative_correction = jnp.tanh(self.network(inputs))
        corrected = (
            action
            + jnp.where(jnp.isfinite(relative_correction), relative_correction, 0.0)
            * self.authority
        )
        clipped = jnp.clip(corrected, self.low, self.high)
        applied_correction = jnp.where(jnp.isfinite(clipped - action), clipped - action, 0.0)
        return ResidualCarry(base_carry, applied_correction), clipped

    def sent(self, carry: ResidualCarry, action: Float[Array, " act"]) -> ResidualCarry:
        """Reports the applied action, minus the network's addition, to the controller."""
        return carry._replace(base=self.base.sent(carry.base, action - carry.correction))

    def follow(self, carry: ResidualCarry, action: Float[Array, " act"]) -> ResidualCarry:
        """Reports another controller's action to the controller; the network remembers nothing."""
        return carry._replace(base=follow(self.base, carry.base, action))
