"""The Gumbel regression loss of extreme Q-learning."""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    checked_mask,
    checked_positive,
    floats,
    like,
    require_same_shape,
)

FLOOR = -1.0
# For small z the three terms of exp(z) - z - 1 cancel; in float32 all digits are lost below 3e-4.
NEAR = 0.5
SERIES = tuple(1 / math.factorial(k) for k in range(15, 1, -1))


def gumbel_loss(
    predictions: Float[Array, " batch"],
    targets: Float[Array, " batch"],
    mask: Bool[Array, " batch"] | None = None,
    *,
    temperature: float | Float[Array, ""],
    max_exponent: float | Float[Array, ""] = 7.0,
) -> Float[Array, " batch"]:
    """The linear-exponential loss, rescaled by its largest exponent in the batch; not reduced.

    With ``z = min((targets - predictions) / temperature, max_exponent)`` and ``m = max(max(z),
    -1)``, which carries no gradient: ``(exp(z) - z - 1) exp(-m)``. The minimiser for a single
    prediction is ``temperature log mean exp(targets / temperature)``, a soft maximum.

    Args:
        predictions: Predictions of one batch.
        targets: Same shape.
        mask: Rows to include; all if ``None``. The others do not affect ``m`` and have loss zero.
        temperature: Temperature in units of the targets, positive; the smaller it is, the closer
            the result to the maximum. NaN results under ``jit`` if it is not positive.
        max_exponent: Largest exponent, positive; a row beyond it has no gradient. NaN results under
            ``jit`` if it is not positive.

    Returns:
        The loss of every row. The scale ``exp(-m)`` depends on the batch: it acts like an adaptive
        step size, and the losses of two batches are not comparable.

    Raises:
        ValueError: If the shapes differ, a concrete ``temperature`` or ``max_exponent`` is not
            positive, or ``mask`` consists of floats.

    Example:
        >>> import jax.numpy as jnp
        >>> gumbel_loss(jnp.zeros(2), jnp.array([0.0, 2.0]), temperature=2.0).tolist()[0]
        0.0

    Source: Garg et al., Extreme Q-learning, arXiv 2301.02328, equation 8 and appendix C, rescaled
    as in the authors' code.
    """
    require_same_shape("predictions", predictions, "targets", targets)
    temperature = checked_positive("temperature", temperature)
    max_exponent = checked_positive("max_exponent", max_exponent)
    difference = floats(targets) - floats(predictions)
    if mask is not None:
        require_same_shape("targets", targets, "mask", mask)
        mask = checked_mask("mask", mask)
        difference = jnp.where(mask, difference, 0)
    exponent = difference / like(temperature, difference)
    exponent = jnp.minimum(exponent, like(max_exponent, difference))
    counted = exponent if mask is None else jnp.where(mask, exponent, FLOOR)
    largest = jax.lax.stop_gradient(jnp.max(counted, initial=FLOOR))
    # Grouped so that nothing overflows if z is near its maximum.
    far = jnp.exp(exponent - largest) - (exponent + 1) * jnp.exp(-largest)
    near = jnp.abs(exponent) < NEAR
    small = jnp.where(near, exponent, 0)
    series = jnp.square(small) * functools.reduce(lambda total, c: total * small + c, SERIES)
    return jnp.where(near, series * jnp.exp(-largest), far)
