"""Regression losses, elementwise and not reduced: the caller takes the mean or sum."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core._internal.checks import (
    checked_positive,
    checked_probability,
    floats,
    like,
    require_same_shape,
)


def squared_loss(
    predictions: Float[Array, "*batch"], targets: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """``(predictions - targets)^2``, elementwise and not reduced.

    Args:
        predictions: Any shape.
        targets: Same shape: ``(n,)`` against ``(n, 1)`` is an error and not broadcast.

    Returns:
        The loss of every element.

    Raises:
        ValueError: If the shapes differ.

    Example:
        >>> import jax.numpy as jnp
        >>> squared_loss(jnp.zeros(2), jnp.array([1.0, 3.0])).tolist()
        [1.0, 9.0]
    """
    require_same_shape("predictions", predictions, "targets", targets)
    return jnp.square(floats(targets) - floats(predictions))


def huber_loss(
    predictions: Float[Array, "*batch"],
    targets: Float[Array, "*batch"],
    *,
    delta: float | Float[Array, ""] = 1.0,
) -> Float[Array, "*batch"]:
    """Half the squared error near zero, linear beyond ``delta``; elementwise.

    ``d^2 / 2`` where ``|d| <= delta``, ``delta (|d| - delta / 2)`` elsewhere, with ``d = targets -
    predictions``.

    Args:
        predictions: Any shape.
        targets: Same shape.
        delta: Error at which the quadratic becomes linear, in units of the targets, positive; NaN
            results under ``jit`` if it is not.

    Returns:
        The loss of every element.

    Raises:
        ValueError: If the shapes differ, or ``delta`` is not a scalar or, if concrete, not
            positive.

    Example:
        >>> import jax.numpy as jnp
        >>> huber_loss(jnp.zeros(2), jnp.array([0.5, 3.0])).tolist()
        [0.125, 2.5]

    Source: Huber, Robust estimation of a location parameter, 1964.
    """
    require_same_shape("predictions", predictions, "targets", targets)
    delta = checked_positive("delta", delta)
    return _huber(floats(targets) - floats(predictions), delta)


def quantile_huber_loss(
    predictions: Float[Array, " quantile"],
    targets: Float[Array, " sample"],
    quantile: Float[Array, " quantile"],
    *,
    delta: float | Float[Array, ""] = 1.0,
) -> Float[Array, ""]:
    """The loss of implicit quantile networks for one state.

    ``sum_i mean_j |quantile_i - 1[d_ij < 0]| huber(d_ij) / delta`` with
    ``d_ij = targets_j - predictions_i``: the sum over the predicted quantiles, the mean over the
    target samples.

    Args:
        predictions: The predicted quantiles.
        targets: Samples of the following return, usually without gradient.
        quantile: The levels of the predictions, in (0, 1); NaN results under ``jit`` if one is
            outside.
        delta: Error at which the quadratic becomes linear, in units of the targets, positive; NaN
            results under ``jit`` if it is not.

    Returns:
        Scalar; zero if there is no sample or no quantile.

    Raises:
        ValueError: If ``predictions`` and ``quantile`` differ in shape, an argument is not
            one-dimensional, a concrete level is outside (0, 1), or ``delta`` is not a scalar or, if
            concrete, not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> float(quantile_huber_loss(jnp.zeros(1), jnp.array([1.0, -1.0]), jnp.array([0.75])))
        0.25

    Source: Dabney et al., Implicit quantile networks for distributional reinforcement learning,
    arXiv 1806.06923, equation 3.
    """
    require_same_shape("predictions", predictions, "quantile", quantile)
    if np.ndim(targets) != 1 or np.ndim(predictions) != 1:
        raise ValueError(
            "predictions and targets must have one axis each, got shapes "
            f"{np.shape(predictions)} and {np.shape(targets)}; for a batch use jax.vmap"
        )
    quantile = checked_probability("quantile", quantile, many=True)
    delta = checked_positive("delta", delta)
    difference = floats(targets)[None, :] - floats(predictions)[:, None]
    level = like(quantile, difference)[:, None]
    weight = jnp.where(difference < 0, 1 - level, level)
    loss = weight * _huber(difference, delta) / like(delta, difference)
    return jnp.sum(loss) / max(loss.shape[1], 1)


def _huber(difference: Array, delta: float | Array) -> Array:
    bound = like(delta, difference)
    size = jnp.abs(difference)
    inside = size <= bound
    # Clipped before squaring, so that the unused branch cannot overflow. If both branches shared
    # one sum, the slope of a small error would lose its digits to the bound.
    near = jnp.where(inside, size, 0)
    return jnp.where(inside, jnp.square(near) / 2, bound * (size - bound / 2))
