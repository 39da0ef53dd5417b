"""What a return is made of: amounts that a plant's people count in, and what each is worth."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Term(NamedTuple):
    """A part of the reward as an amount in its own unit.

    Attributes:
        name: What is counted, such as ``"steam"`` or ``"batch time"``.
        unit: Unit of the amount, such as ``"kg"``, ``"min"`` or ``"kWh"``; ``"1"`` for a count.
        worth: Reward of one unit, negative for what is lost; zero for an amount that is only
            reported. The reward of a step is the sum of amounts times their worth.
    """

    name: str
    unit: str
    worth: float


def term_amounts(
    terms: Sequence[Term], amounts: Mapping[str, Array], like: Array
) -> Float[Array, " term"]:
    """The amounts of a step in the order of the declared terms, in the dtype of ``like``."""
    return jnp.stack([jnp.asarray(amounts[term.name], like.dtype) for term in terms])
