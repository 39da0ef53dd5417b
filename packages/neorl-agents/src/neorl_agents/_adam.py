"""One step of Adam, with the learning rate as data."""

from typing import TypeVar

import jax
import optax
from jaxtyping import Array, Float

Parameters = TypeVar("Parameters")

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def init_adam(parameters: Parameters) -> optax.ScaleByAdamState:
    """Zero moments for ``parameters``, and a step count of zero."""
    return optax.scale_by_adam(BETA_1, BETA_2, EPSILON).init(parameters)


def adam(
    parameters: Parameters,
    moments: optax.ScaleByAdamState,
    gradient: Parameters,
    learning_rate: float | Float[Array, ""],
) -> tuple[Parameters, optax.ScaleByAdamState]:
    """``parameters`` one step down ``gradient``.

    The rate is an argument of the step, not of the optimiser: it may be traced, scheduled or
    swept without another program.

    Args:
        parameters: A PyTree of arrays.
        moments: From :func:`init_adam` or the last step.
        gradient: Same structure as ``parameters``.
        learning_rate: Positive.

    Returns:
        New parameters and moments.

    Source: Kingma and Ba, Adam: a method for stochastic optimization, arXiv 1412.6980.
    """
    direction, moments = optax.scale_by_adam(BETA_1, BETA_2, EPSILON).update(gradient, moments)
    moved = jax.tree.map(
        lambda p, d: (p - learning_rate * d).astype(p.dtype), parameters, direction
    )
    return moved, moments
