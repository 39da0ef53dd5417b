"""Adapts a controller of a plant to a wrapper that changes observations or actions."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Affine, Policy


class AdaptedPolicy(eqx.Module):
    """A policy of the wrapped plant, adapted to the observations and actions of the wrapper.

    Attributes:
        policy: The policy in the plant's own units.
        obs: Scaling of the observations; ``None`` if they are unscaled.
        action: Scaling of the actions; ``None`` if they are unscaled.
        seen: Number of leading entries of the observation that are the plant's own.
    """

    policy: Policy
    obs: Affine | None
    action: Affine | None
    seen: int = eqx.field(static=True)

    def initial_carry(self) -> Any:
        """The initial carry of the inner policy."""
        return self.policy.initial_carry()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """The action and the next carry."""
        obs = obs[: self.seen]
        carry, action = self.policy(
            carry, obs if self.obs is None else self.obs.to_physical(obs), key
        )
        return carry, action if self.action is None else self.action.to_scaled(action)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Informs the inner policy of the action that the plant received."""
        physical = action if self.action is None else self.action.to_physical(action)
        return self.policy.sent(carry, physical)
