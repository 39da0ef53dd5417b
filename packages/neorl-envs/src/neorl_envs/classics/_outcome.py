"""Further results of a step of a classic, besides its reward."""

from typing import NamedTuple

from jaxtyping import Array, Bool


class Outcome(NamedTuple):
    """The way in which an episode ended, if it did.

    Attributes:
        success: It reached its limit of steps.
        trip: The plant ended it.
    """

    success: Bool[Array, ""]
    trip: Bool[Array, ""]
