"""Inputs of a filter besides the request."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Context(NamedTuple):
    """Inputs of a filter besides the request.

    Attributes:
        obs: The observation, shape ``(obs,)``, physical units.
        previous: Action that the plant last received, shape ``(act,)``; NaN if unknown (first step,
            restart).
        dt: Length of one step in seconds, scalar: the period of the Spec. A late call does not
            allow a larger step.
        fallback_action: Action that the declared fallback currently proposes, shape ``(act,)``.
        held: Seconds since each channel was last commanded to move, shape ``(act,)``; ``None``,
            which means infinite, if no constraint uses it.
        command: Last commanded action, shape ``(act,)``, to which deadband and resting time refer;
            ``None`` means ``previous``. NaN if another controller moved the channel.
    """

    obs: Float[Array, " obs"]
    previous: Float[Array, " act"]
    dt: Float[Array, ""]
    fallback_action: Float[Array, " act"]
    held: Float[Array, " act"] | None = None
    command: Float[Array, " act"] | None = None
