"""The expectile loss of implicit Q-learning."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_probability, floats, require_same_shape


def expectile_loss(
    predictions: Float[Array, "*batch"],
    targets: Float[Array, "*batch"],
    *,
    expectile: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """Asymmetric squared error, elementwise and not reduced.

    ``w (targets - predictions)^2`` with ``w = expectile`` where ``targets > predictions`` and ``1 -
    expectile`` elsewhere. The minimiser for a single prediction is the expectile of the targets:
    the mean for 0.5, approaching the maximum as ``expectile`` goes to one. At 0.5 the loss is half
    the squared error.

    Args:
        predictions: Any shape.
        targets: Regression targets, same shape.
        expectile: Expectile level in (0, 1); NaN results under ``jit`` if it is outside.

    Returns:
        The loss of every element, same shape.

    Raises:
        ValueError: If the shapes differ, or a concrete ``expectile`` is outside (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> expectile_loss(jnp.zeros(2), jnp.array([1.0, -1.0]), expectile=0.75).tolist()
        [0.75, 0.25]

    Source: Kostrikov, Nair and Levine, Offline reinforcement learning with implicit Q-learning,
    arXiv 2110.06169, equation 5.
    """
    require_same_shape("predictions", predictions, "targets", targets)
    expectile = checked_probability("expectile", expectile)
    difference = floats(targets) - floats(predictions)
    weight = jnp.where(difference > 0, expectile, 1 - expectile).astype(difference.dtype)
    return weight * jnp.square(difference)
