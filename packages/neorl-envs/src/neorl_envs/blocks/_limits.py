"""Limits of true quantities: costs, margins, trips and bands in plots; terms of the return."""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core import CostChannel
from neorl_core.infrastructure import unknown_name

# Limits of true quantities; one declaration gives costs, margins, trips and bands in plots.


@dataclasses.dataclass(frozen=True)
class Limit:
    """A range that a true quantity of the plant should not or must not leave.

    Attributes:
        quantity: Name of the quantity, from :meth:`SimulatedPlant.quantities`; for an array, the
            worst entry counts.
        low: Lower end, in the quantity's unit.
        high: Upper end, in the quantity's unit.
        cost: Name of the cost channel to which a violation adds; empty for none. If several limits
            have the same cost, the largest violation counts.
        factor: Cost per unit of violation in one step.
        trip: Whether leaving the range ends the episode.
        channel: Measured channel that shows the quantity and gets a band in plots.
        unit: Unit of the quantity for display; by default that of the channel.
    """

    quantity: str
    low: float = -math.inf
    high: float = math.inf
    cost: str = ""
    factor: float = 1.0
    trip: bool = False
    channel: str = ""
    unit: str = ""

    @property
    def label(self) -> str:
        """Name of the margin, from the quantity, and marked if the limit is a trip."""
        return f"{self.quantity}_{'trip_' if self.trip else ''}margin"


Limits = tuple[Limit, ...]


def margins(limits: Limits, quantities: Mapping[str, Array]) -> dict[str, Float[Array, ""]]:
    """Distance to every limit by :attr:`Limit.label`, negative if it is violated.

    Raises an ``InputError`` if a limit names a quantity that the plant does not provide.
    """
    margin = {}
    for limit in limits:
        if limit.quantity not in quantities:
            raise unknown_name("quantity of a limit", limit.quantity, quantities)
        value = jnp.asarray(quantities[limit.quantity])
        inside = jnp.minimum(value - limit.low, limit.high - value)
        margin[limit.label] = jnp.min(inside)
    return margin


def violation_costs(
    limits: Limits, costs: tuple[CostChannel, ...], margin: Mapping[str, Array], like: Array
) -> Float[Array, " cost"]:
    """Cost vector of one step, with the largest weighted violation of every cost channel."""
    zero = jnp.zeros((), like.dtype)
    vector = []
    for channel in costs:
        worst = zero
        for limit in limits:
            if limit.cost == channel.name:
                worst = jnp.maximum(worst, -limit.factor * margin[limit.label])
        vector.append(worst)
    return jnp.stack(vector) if vector else jnp.zeros(0, like.dtype)


def tripped(limits: Limits, margin: Mapping[str, Array]) -> Bool[Array, ""]:
    """Whether a limit that ends the episode is violated."""
    trip = jnp.zeros((), jnp.bool_)
    for limit in limits:
        if limit.trip:
            trip = trip | (margin[limit.label] < 0)
    return trip


def bands(limits: Limits) -> dict[str, tuple[float, float]]:
    """Lower and upper soft limits of measured channels."""
    return {
        limit.channel: (limit.low, limit.high)
        for limit in limits
        if limit.channel and not limit.trip
    }


def information(
    success: Array, trip: Array, margin: Mapping[str, Array], more: Mapping[str, Array]
) -> Any:
    """``Step.info``: a NamedTuple of ``success``, ``trip``, every margin, and added fields."""
    kind = _information_type(("success", "trip", *margin, *more))
    return kind(success, trip, *margin.values(), *more.values())


@functools.cache
def _information_type(fields: tuple[str, ...]) -> Any:
    return collections.namedtuple("Information", fields)


def check_limits(limits: Limits, costs: tuple[CostChannel, ...]) -> None:
    """Raises a ``ValueError`` for limits without effect or cost, and costs without a limit."""
    names = [channel.name for channel in costs]
    for limit in limits:
        if not limit.low < limit.high:
            raise ValueError(
                f"limit of {limit.quantity!r}: low must be below high, "
                f"got {limit.low:g} and {limit.high:g}"
            )
        if math.isinf(limit.low) and math.isinf(limit.high):
            raise ValueError(f"limit of {limit.quantity!r} has no end; give low, high or both")
        if limit.cost and limit.cost not in names:
            raise ValueError(
                f"limit of {limit.quantity!r} adds to the cost {limit.cost!r}; "
                f"the plant's costs are {names}"
            )
    for name in names:
        if name not in [limit.cost for limit in limits]:
            raise ValueError(
                f"no limit adds to the cost {name!r}, which would always be 0; "
                "name it in Limit(..., cost=...), or leave it out of costs"
            )
    labels = [limit.label for limit in limits]
    if len(set(labels)) < len(labels):
        raise ValueError(f"two limits have one margin: {sorted(labels)}")


# Terms of the return: amounts in an engineer's units, and the worth of each.


class Term(NamedTuple):
    """A part of the reward, as an amount in its own unit.

    Attributes:
        name: Name of the amount, such as ``"steam"`` or ``"batch time"``.
        unit: Unit of the amount, such as ``"kg"``, ``"min"`` or ``"kWh"``; ``"1"`` for a count.
        worth: Reward for one unit, negative for a loss; zero for an amount that is only reported.
            The reward of a step is the sum of all amounts times their worth.
    """

    name: str
    unit: str
    worth: float


def term_amounts(
    terms: Sequence[Term], amounts: Mapping[str, Array], like: Array
) -> Float[Array, " term"]:
    """The amounts of a step in the order of the declared terms, in the dtype of ``like``."""
    names = {term.name for term in terms}
    if names != set(amounts):
        raise ValueError(
            f"amounts must return one amount for each declared term, {sorted(names)}, "
            f"got {sorted(amounts)}"
        )
    return jnp.stack([jnp.asarray(amounts[term.name], like.dtype) for term in terms])
