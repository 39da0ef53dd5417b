"""Inputs of a filter besides the request."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Context(NamedTuple):
    """Inputs of a filter besides the request.

    Attributes:
        obs: The observation, shape ``(obs,)``, physical units.
        previous: The action that the plant received last, shape ``(act,)``; NaN where unknown
            (first step, restart).
        dt: Seconds that one step lasts, scalar: the period of the Spec. A late call buys no
            larger step.
        fallback_action: Action that the declared fallback proposes now, shape ``(act,)``.
        held: Seconds since each channel was last commanded to move, shape ``(act,)``; ``None``
            where no constraint asks for it, then infinite.
        command: The action that was commanded last, shape ``(act,)``, from which a deadband and a
            rest count; ``None`` for ``previous``. NaN if another controller moved the channel.
    """

    obs: Float[Array, " obs"]
    previous: Float[Array, " act"]
    dt: Float[Array, ""]
    fallback_action: Float[Array, " act"]
    held: Float[Array, " act"] | None = None
    command: Float[Array, " act"] | None = None
