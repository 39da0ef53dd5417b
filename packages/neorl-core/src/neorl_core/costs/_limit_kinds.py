"""What a cost limit bounds: each step of an episode, or the sum over it."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._vocabulary.channels import CostChannel, CostPer


@dataclasses.dataclass(frozen=True)
class LimitKind:
    """The meaning of a limit, for whoever reduces, compares or words one.

    Attributes:
        per: ``"step"`` or ``"episode"``, as in :class:`~neorl_core.CostChannel`.
        quantity: What is compared with the limit, in words.
        counted: What may be over the limit, in the plural.
    """

    per: CostPer
    quantity: str
    counted: str

    def of_rows(self, cost: Float[Array, "time"]) -> Float[Array, ""]:
        """The limited quantity of one episode.

        Args:
            cost: Of every step of the episode, in the unit of the channel, at least one.

        Returns:
            The largest cost of a step, or the sum over the steps.
        """
        return jnp.max(cost) if self.per == "step" else jnp.sum(cost)

    def of_episode(self, total, worst):
        """Picks the limited quantity from both reductions of an episode; any type.

        Args:
            total: Sum over the episode.
            worst: Largest cost of a step.

        Returns:
            ``worst`` where the limit is per step, else ``total``.
        """
        return worst if self.per == "step" else total

    def row_threshold(self, limit: float) -> float:
        """The cost above which a single step counts: the limit, or zero for a limit per episode."""
        return limit if self.per == "step" else 0.0

    def exceeded(self, quantity: Float[Array, "..."], limit: float) -> Bool[Array, "..."]:
        """Whether a limited quantity breaks its limit; NaN does."""
        return ~(jnp.asarray(quantity) <= limit)

    def limit_words(self, limit: float, unit: str) -> str:
        """A limit in words, with its unit; the unit ``"1"`` of pure numbers is not shown.

        Example:
            >>> from neorl_core import CostChannel
            >>> from neorl_core.costs import limit_kind
            >>> limit_kind(CostChannel("pressure", "bar", 0.5, "step")).limit_words(0.5, "bar")
            '0.5 bar per step'
        """
        shown = f"{limit:g}" if unit == "1" else f"{limit:g} {unit}"
        return f"{shown} per {self.per}"


_KINDS = {
    "step": LimitKind("step", "worst step of an episode", "steps"),
    "episode": LimitKind("episode", "sum over an episode", "episodes"),
}


def limit_kind(channel: CostChannel | CostPer) -> LimitKind:
    """What the limit of a cost channel bounds.

    Args:
        channel: The channel, or its ``per``.

    Returns:
        The one definition of that kind of limit.

    Example:
        >>> from neorl_core.costs import limit_kind
        >>> limit_kind("episode").quantity
        'sum over an episode'
    """
    return _KINDS[channel if isinstance(channel, str) else channel.per]
