"""Regression losses, elementwise and not reduced: the caller states the mean or sum."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import (
    floats,
    like,
    require_broadcast,
    require_positive,
    require_probability,
    require_same_shape,
)


def squared_loss(
    target: Float[Array, "*batch"], prediction: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """``(target - prediction)^2``, elementwise and not reduced.

    Args:
        target: Any shape.
        prediction: Same shape: ``(n,)`` against ``(n, 1)`` is refused, not broadcast.

    Returns:
        The loss of every element.

    Raises:
        ValueError: If the shapes differ.

    Example:
        >>> import jax.numpy as jnp
        >>> squared_loss(jnp.array([1.0, 3.0]), jnp.zeros(2)).tolist()
        [1.0, 9.0]
    """
    require_same_shape("target", target, "prediction", prediction)
    return jnp.square(floats(target) - floats(prediction))


def huber_loss(
    target: Float[Array, "*batch"],
    prediction: Float[Array, "*batch"],
    *,
    threshold: float | Float[Array, ""] = 1.0,
) -> Float[Array, "*batch"]:
    """Half the squared error near zero, linear beyond ``threshold``; elementwise.

    ``d^2 / 2`` where ``|d| <= threshold``, ``threshold (|d| - threshold / 2)`` elsewhere, with
    ``d = target - prediction``.

    Args:
        target: Any shape.
        prediction: Same shape.
        threshold: Error at which the quadratic becomes linear, in units of the target, positive;
            NaN results under ``jit`` where it is not.

    Returns:
        The loss of every element.

    Raises:
        ValueError: If the shapes differ, or ``threshold`` is not a scalar or, where concrete,
            not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> huber_loss(jnp.array([0.5, 3.0]), jnp.zeros(2)).tolist()
        [0.125, 2.5]

    Source: Huber, Robust estimation of a location parameter, 1964.
    """
    require_same_shape("target", target, "prediction", prediction)
    threshold = require_positive("threshold", threshold)
    return _huber(floats(target) - floats(prediction), threshold)


def pinball_loss(
    target: Float[Array, "*batch"],
    prediction: Float[Array, "*batch"],
    *,
    level: float | Float[Array, "*#batch"],
) -> Float[Array, "*batch"]:
    """The quantile regression loss, elementwise.

    ``level d`` where ``d = target - prediction`` is positive, ``(level - 1) d`` elsewhere. Its
    minimiser over one prediction is the quantile of the targets at ``level``.

    Args:
        target: Any shape.
        prediction: Same shape.
        level: Quantile level in (0, 1), broadcast against the target: one for all elements, or one
            for each; NaN results under ``jit`` where it is outside.

    Returns:
        The loss of every element. At a tie its gradient is one of the two one-sided ones.

    Raises:
        ValueError: If the shapes differ, ``level`` does not broadcast to them, or a concrete one
            is outside (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> pinball_loss(jnp.array([2.0, -2.0]), jnp.zeros(2), level=0.75).tolist()
        [1.5, 0.5]

    Source: Koenker and Bassett, Regression quantiles, 1978.
    """
    require_same_shape("target", target, "prediction", prediction)
    require_broadcast("level", level, "target", jnp.shape(target))
    level = require_probability("level", level, many=True)
    difference = floats(target) - floats(prediction)
    quantile_level = like(level, difference)
    return jnp.where(difference > 0, quantile_level * difference, (quantile_level - 1) * difference)


def quantile_huber_loss(
    target: Float[Array, " sample"],
    prediction: Float[Array, " quantile"],
    level: Float[Array, " quantile"],
    *,
    threshold: float | Float[Array, ""] = 1.0,
) -> Float[Array, ""]:
    """The loss of implicit quantile networks for one state.

    ``sum_i mean_j |level_i - 1[d_ij < 0]| huber(d_ij) / threshold`` with
    ``d_ij = target_j - prediction_i``: the sum over the predicted quantiles, the mean over the
    target samples.

    Args:
        target: Samples of the return that follows, usually without gradient.
        prediction: The predicted quantiles.
        level: Their levels, in (0, 1); a NaN result under ``jit`` where one is outside.
        threshold: Error at which the quadratic becomes linear, in units of the target, positive; a
            NaN result under ``jit`` where it is not.

    Returns:
        Scalar; zero where there is no sample or no quantile.

    Raises:
        ValueError: If ``prediction`` and ``level`` differ in shape, an argument is not of rank
            one, a concrete level is outside (0, 1), or ``threshold`` is not a scalar or, where
            concrete, not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> float(quantile_huber_loss(jnp.array([1.0, -1.0]), jnp.zeros(1), jnp.array([0.75])))
        0.25

    Source: Dabney et al., Implicit quantile networks for distributional reinforcement learning,
    arXiv 1806.06923, equation 3.
    """
    require_same_shape("prediction", prediction, "level", level)
    if jnp.ndim(target) != 1 or jnp.ndim(prediction) != 1:
        raise ValueError(
            "target and prediction must have one axis each, got shapes "
            f"{jnp.shape(target)} and {jnp.shape(prediction)}; for a batch use jax.vmap"
        )
    level = require_probability("level", level, many=True)
    threshold = require_positive("threshold", threshold)
    target = floats(target)
    difference = target[None, :] - floats(prediction)[:, None]
    quantile_level = like(level, difference)[:, None]
    weight = jnp.where(difference < 0, 1 - quantile_level, quantile_level)
    loss = weight * _huber(difference, threshold) / like(threshold, difference)
    return jnp.sum(loss) / max(target.shape[0], 1)


def _huber(difference: Array, threshold: float | Array) -> Array:
    bound = like(threshold, difference)
    size = jnp.abs(difference)
    # Sanitised before squaring: the unused branch must not overflow.
    near = jnp.minimum(size, bound)
    return jnp.square(near) / 2 + bound * (size - near)
