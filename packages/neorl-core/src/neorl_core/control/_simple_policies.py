"""Policies without parameters to learn."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import floats, is_concrete, require_rank, require_same_shape


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ConstantPolicy:
    """Returns the same action at every step.

    Attributes:
        action: Constant action in physical units, shape ``(act,)``.
    """

    action: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the policy has no memory."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """The action; ``obs`` and ``key`` are ignored.

        Raises:
            ValueError: If ``action`` is not one-dimensional.
        """
        require_rank("action", self.action, 1, "act")
        return carry, self.action

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Returns the carry unchanged."""
        return carry


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UniformPolicy:
    """Independent uniform actions: the baseline of no control at all.

    Attributes:
        low: Lower bounds, shape ``(act,)``, physical units.
        high: Upper bounds, shape ``(act,)``, physical units, not below ``low``.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the policy has no memory."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None
    ) -> tuple[Any, Float[Array, " act"]]:
        """An action sampled from ``[low, high)``; ``obs`` is ignored.

        Under ``jit`` the action is NaN where the bounds cross or their difference is infinite.

        Raises:
            ValueError: If there is no key, the bounds differ in shape or are not one-dimensional,
                or concrete bounds cross or have an infinite difference.
        """
        if key is None:
            raise ValueError("key must be a random key, got None; a draw needs one")
        require_rank("low", self.low, 1, "act")
        require_same_shape("low", self.low, "high", self.high)
        low, high = floats(self.low), floats(self.high)
        if is_concrete((self.low, self.high)) and not np.all(
            _valid(np.asarray(low), np.asarray(high))
        ):
            raise ValueError(
                f"low must not be above high, nor infinitely far below, got {self.low} and "
                f"{self.high}; give the range of every action"
            )
        draw = jax.random.uniform(key, low.shape, low.dtype, low, high)
        return carry, jnp.where(_valid(low, high), draw, jnp.nan)

    def log_prob(
        self, carry: Any, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> Float[Array, ""]:
        """Log-density of an action: minus the sum of ``log(high - low)``, and ``-inf`` outside.

        Args:
            carry: Carry with which the policy acted; ignored.
            obs: Observation on which it acted; ignored.
            action: Shape ``(act,)``, physical units.
        """
        low, high = floats(self.low), floats(self.high)
        inside = jnp.all((low <= action) & (action <= high))
        return jnp.where(inside, -jnp.sum(jnp.log(high - low)), -jnp.inf)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Returns the carry unchanged."""
        return carry


def _valid(low: Any, high: Any) -> Any:
    """Whether a range can be sampled from."""
    with np.errstate(all="ignore"):
        return (low <= high) & (high - low < np.inf)
