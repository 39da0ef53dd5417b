"""Kinds of cost limits: a limit bounds each step of an episode, or the sum over it."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import floats
from neorl_core._vocabulary.channels import CostChannel, CostPer

Reduction = TypeVar("Reduction")


class LimitKind(ABC):
    """The meaning of a cost limit, for code that reduces, compares or describes costs.

    An episode with costs ``c_0, ..., c_n`` satisfies a limit ``d`` per step if ``max_t c_t <= d``,
    and a limit ``d`` per episode if ``sum_t c_t <= d``.

    Attributes:
        per: Either ``"step"`` or ``"episode"``, as in :class:`~neorl_core.CostChannel`.
        quantity: Name of the quantity that is compared with the limit.
        counted: Name, in the plural, of what may exceed the limit.
        counted_rows: Description of the steps above :meth:`row_threshold`, to follow the word
            "steps".
        trend: Description of the curve of :meth:`along`, to follow the name of the cost.
        bounds_largest: Whether the limit must hold for the largest quantity over all episodes,
            rather than for their mean.

    Source:
        Altman, Constrained Markov Decision Processes (1999), for sums; limits per step are the
        hard constraints of process control.
    """

    per: ClassVar[CostPer]
    quantity: ClassVar[str]
    counted: ClassVar[str]
    counted_rows: ClassVar[str]
    trend: ClassVar[str]
    bounds_largest: ClassVar[bool]

    @abstractmethod
    def of_episode(self, total: Reduction, worst: Reduction) -> Reduction:
        """The one that the limit bounds: the sum over an episode, or the largest cost of a step."""

    @abstractmethod
    def along(self, cost: Float[np.ndarray, "time"]) -> Float[np.ndarray, "time"]:
        """The curve of one episode that a trend plot shows beside the limit.

        Args:
            cost: Cost of every step of the episode, in the unit of the channel.

        Returns:
            The cost of every step, or its sum up to that step. If no cost is negative, the curve
            exceeds the limit somewhere exactly when the episode violates it.
        """

    @abstractmethod
    def row_threshold(self, limit: float) -> float:
        """The cost above which one step counts against a limit, in the unit of the cost."""

    def of_rows(self, cost: Float[Array, "time"]) -> Float[Array, ""]:
        """The limited quantity of one episode; use ``jax.vmap`` for several.

        Args:
            cost: Cost of every step of the episode, in the unit of the channel; a NumPy or JAX
                array with at least one step. NaN gives NaN.

        Returns:
            The largest cost of a step, or the sum over the steps, in the dtype of ``cost``;
            integers give floats.

        Raises:
            ValueError: If ``cost`` does not have time as its only axis, or has no step.
        """
        if cost.ndim != 1 or not cost.size:
            raise ValueError(
                f"cost must have the axis (time) of at least one step, got shape {cost.shape}; "
                "for several episodes or channels use jax.vmap"
            )
        if isinstance(cost, jax.Array):
            cost = floats(cost)
        else:  # NumPy keeps its precision, float64 included.
            cost = np.asarray(cost, np.result_type(cost, np.float32))
        return self.of_episode(total=cost.sum, worst=cost.max)()

    def exceeded(
        self, quantity: Any, limit: float | Float[Array, "..."]
    ) -> Bool[Array, "..."] | Bool[np.ndarray, "..."]:
        """Whether a limited quantity violates its limit; equality does not, NaN does.

        Args:
            quantity: Limited quantity of any shape, as returned by :meth:`of_rows`. Anything but a
                JAX array is compared by NumPy, in its own precision.
            limit: Limit of the channel, in the unit of the cost.

        Returns:
            A boolean for every quantity.
        """
        values = quantity if isinstance(quantity, jax.Array) else np.asarray(quantity)
        # Not `>`, which lets NaN pass.
        return ~(values <= limit)

    def limit_words(self, limit: float, unit: str) -> str:
        """A limit in words, with its unit; the unit ``"1"`` of dimensionless numbers is not shown.

        A multiplication sign stands before a unit that begins with a digit, such as
        ``"100 units"``.

        Example:
            >>> from neorl_core import CostChannel
            >>> from neorl_core.costs import limit_kind
            >>> limit_kind(CostChannel("pressure", "bar", 0.5, "step")).limit_words(0.5, "bar")
            '0.5 bar per step'
        """
        sign = "× " if unit[:1].isdigit() else ""
        text = f"{limit:g}" if unit == "1" else f"{limit:g} {sign}{unit}"
        return f"{text} per {self.per}"


class _PerStep(LimitKind):
    per = "step"
    quantity = "worst step of an episode"
    counted = "steps"
    counted_rows = "above the limit"
    trend = "per step"
    bounds_largest = True

    def of_episode(self, total: Reduction, worst: Reduction) -> Reduction:
        return worst

    def along(self, cost: Float[np.ndarray, "time"]) -> Float[np.ndarray, "time"]:
        return cost

    def row_threshold(self, limit: float) -> float:
        return limit


class _PerEpisode(LimitKind):
    per = "episode"
    quantity = "sum over an episode"
    counted = "episodes"
    counted_rows = "with a cost"
    trend = "so far"
    bounds_largest = False

    def of_episode(self, total: Reduction, worst: Reduction) -> Reduction:
        return total

    def along(self, cost: Float[np.ndarray, "time"]) -> Float[np.ndarray, "time"]:
        return np.cumsum(cost)

    def row_threshold(self, limit: float) -> float:
        return 0.0  # Every cost adds to the sum.


# A further kind also needs its word in CostPer.
_KINDS: dict[str, LimitKind] = {kind.per: kind for kind in (_PerStep(), _PerEpisode())}


def limit_kind(channel: CostChannel | CostPer) -> LimitKind:
    """The kind of limit of a cost channel, which defines the quantity that is bounded.

    Args:
        channel: The channel, or its ``per``.

    Returns:
        The single definition of that kind of limit.

    Raises:
        ValueError: If there is no such kind of limit.

    Example:
        >>> from neorl_core.costs import limit_kind
        >>> limit_kind("episode").quantity
        'sum over an episode'
    """
    per = channel if isinstance(channel, str) else channel.per
    if per not in _KINDS:
        choices = " or ".join(map(repr, _KINDS))
        raise ValueError(f"a limit is per {choices}, got {per!r}; choose one of them")
    return _KINDS[per]
