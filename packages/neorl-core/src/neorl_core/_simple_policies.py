"""Policies with nothing to learn."""

import dataclasses
from typing import Any

import jax
from jaxtyping import Array, Float, PRNGKeyArray


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ConstantPolicy:
    """Always the same action.

    Attributes:
        action: In physical units, shape ``(act,)``.
    """

    action: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """The action; ``obs`` and ``key`` are ignored."""
        return carry, self.action

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Identity."""
        return carry


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UniformPolicy:
    """Independent uniform actions: the reference for "no control at all".

    Attributes:
        low: Shape ``(act,)``, physical units.
        high: Shape ``(act,)``, physical units.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[Any, Float[Array, " act"]]:
        """A fresh draw from ``[low, high)``; ``obs`` is ignored."""
        return carry, jax.random.uniform(key, self.low.shape, self.low.dtype, self.low, self.high)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Identity."""
        return carry
