"""Terms of the return: amounts in an engineer's units, and the worth of each."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


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
    return jnp.stack([jnp.asarray(amounts[term.name], like.dtype) for term in terms])
