"""What a classic tells of a step besides its reward."""

from typing import NamedTuple

from jaxtyping import Array, Bool


class Outcome(NamedTuple):
    """How an episode ended, where it did.

    Attributes:
        success: It reached its limit of steps.
        trip: The plant ended it.
    """

    success: Bool[Array, ""]
    trip: Bool[Array, ""]
