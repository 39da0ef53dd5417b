"""Policies that are one affine map of the observation."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StateFeedback:
    """Affine state feedback ``u = clip(bias - gain (obs - setpoint), low, high)``.

    Attributes:
        gain: As a linear-quadratic design gives it, shape ``(act, obs)``.
        setpoint: Where the plant is to stand, shape ``(obs,)``.
        bias: Action that holds it there, shape ``(act,)``.
        low: Shape ``(act,)``.
        high: Shape ``(act,)``.
    """

    gain: Float[Array, "act obs"]
    setpoint: Float[Array, " obs"]
    bias: Float[Array, " act"]
    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """One step.

        Args:
            carry: From :meth:`initial_carry`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The carry and the action in physical units.

        Raises:
            ValueError: If ``obs`` is not of the shape ``(obs,)`` of the set-point.
        """
        if obs.shape != self.setpoint.shape:
            raise ValueError(
                f"this feedback sees one observation of shape {self.setpoint.shape}, "
                f"got {obs.shape}; for a batch use jax.vmap"
            )
        wanted = self.bias - self.gain @ (obs - self.setpoint)
        return carry, jnp.clip(wanted, self.low, self.high)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Identity."""
        return carry


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BaseStock:
    """Orders every period what is missing to a fixed inventory position.

    ``u = clip(level - position obs, low, high)``, where ``position obs`` is stock on hand plus
    what is on order less what is owed.

    Attributes:
        level: The base-stock level of every item, shape ``(act,)``.
        position: What each observation adds to the position of each item (1 for stock on hand
            and in transit, -1 for backlog, 0 for the rest), shape ``(act, obs)``.
        low: Least order, usually zero, shape ``(act,)``.
        high: Largest order, shape ``(act,)``.
    """

    level: Float[Array, " act"]
    position: Float[Array, "act obs"]
    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """One step.

        Args:
            carry: From :meth:`initial_carry`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The carry and the orders in physical units.

        Raises:
            ValueError: If ``obs`` is not of rank one and as long as a row of ``position``.
        """
        if obs.shape != self.position.shape[1:]:
            raise ValueError(
                f"this policy sees one observation of shape {self.position.shape[1:]}, "
                f"got {obs.shape}; for a batch use jax.vmap"
            )
        return carry, jnp.clip(self.level - self.position @ obs, self.low, self.high)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Identity."""
        return carry
