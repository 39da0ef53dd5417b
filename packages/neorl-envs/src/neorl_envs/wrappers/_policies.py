"""A controller of a plant behind a wrapper that changes what is seen or sent."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Affine, Policy


class AdaptedPolicy(eqx.Module):
    """A policy of the plant inside, for the observations and actions of the wrapper.

    Attributes:
        policy: Acts in the plant's own units.
        obs: Map of the observation's scales; ``None`` where they are the plant's own.
        action: Map of the action's scales; ``None`` where they are the plant's own.
        seen: How many of the wrapper's observations, from the first, are the plant's.
    """

    policy: Policy
    obs: Affine | None
    action: Affine | None
    seen: int = eqx.field(static=True)

    def initial_carry(self) -> Any:
        """The carry of the policy inside."""
        return self.policy.initial_carry()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """One step."""
        obs = obs[: self.seen]
        carry, action = self.policy(
            carry, obs if self.obs is None else self.obs.to_physical(obs), key
        )
        return carry, action if self.action is None else self.action.to_scaled(action)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Tells the policy inside what the plant received."""
        physical = action if self.action is None else self.action.to_physical(action)
        return self.policy.sent(carry, physical)
