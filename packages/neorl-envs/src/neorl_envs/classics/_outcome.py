"""Additional information of a step of a classic task."""

from typing import NamedTuple

from jaxtyping import Array, Bool


class Outcome(NamedTuple):
    """How an episode ended, if it did.

    Attributes:
        success: Whether it reached its limit of steps.
        trip: Whether the plant ended it.
    """

    success: Bool[Array, ""]
    trip: Bool[Array, ""]
