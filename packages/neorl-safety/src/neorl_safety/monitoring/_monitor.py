"""Protocol of a monitor: it gives a score and an alarm, and never changes the action."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class MonitorInput(NamedTuple):
    """Input of a monitor in one step.

    Attributes:
        obs: The observation, shape ``(obs,)``; may hold NaN.
        action: Action that the policy proposes, shape ``(act,)``; may hold NaN.
        previous: Action that the plant last received, shape ``(act,)``; NaN if unknown.
    """

    obs: Float[Array, " obs"]
    action: Float[Array, " act"]
    previous: Float[Array, " act"]


class Score(NamedTuple):
    """Result of a monitor.

    Attributes:
        value: The larger, the less suitable the situation; infinite if it could not be computed.
            Scalar.
        alarm: Whether the value is above the monitor's threshold. Scalar.
    """

    value: Float[Array, ""]
    alarm: Bool[Array, ""]


@runtime_checkable
class Monitor(Protocol):
    """A PyTree of arrays with two pure functions."""

    def initial_carry(self) -> Any:
        """The carry before the first step."""
        ...

    def __call__(self, carry: Any, inputs: MonitorInput) -> tuple[Any, Score]:
        """The new carry, and the score of this step."""
        ...


def score_of(value: Float[Array, ""], threshold: Float[Array, ""]) -> Score:
    """Compares a value with its threshold; NaN in either of them is an alarm."""
    # A value that cannot be computed counts as the worst, also in the maxima of a calibration.
    value = jnp.where(jnp.isnan(value), jnp.inf, value)
    # Not ``value > threshold``, which is false for a NaN threshold.
    return Score(value, ~(value <= threshold))
