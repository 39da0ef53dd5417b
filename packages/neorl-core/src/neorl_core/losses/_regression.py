"""Regression losses, elementwise and not reduced, and the mean over unmasked rows."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    checked_mask,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    like,
    require_broadcast,
    require_same_shape,
)
from neorl_core._internal.precision import narrow, widen

# The mean over the rows that a mask includes.


def masked_mean(
    x: Float[Array, "*batch"], mask: Bool[Array, "*batch"] | None = None
) -> Float[Array, ""]:
    """The mean of the elements of ``x`` where ``mask`` is true.

    Args:
        x: Any shape. Masked elements may be NaN or infinite; they affect neither the value nor the
            gradient with respect to ``x``. They can still spoil the gradient with respect to the
            inputs of ``x``: the zero gradient at such an element is multiplied by its derivative,
            and 0 * NaN is NaN. Replace NaN before computing ``x``.
        mask: Same shape, booleans or integers (nonzero is true); ``None`` includes every element.

    Returns:
        Scalar in the dtype of ``x``, summed in float32 or wider; zero if nothing is included.

    Raises:
        ValueError: If the shapes differ, or ``mask`` consists of floats, which may be meant as
            weights.

    Example:
        >>> import jax.numpy as jnp
        >>> float(masked_mean(jnp.array([1.0, jnp.nan]), jnp.array([True, False])))
        1.0

        A row that does not count and may hold NaN is replaced ahead of the square:

        >>> row, mask = jnp.array([1.0, jnp.nan]), jnp.array([True, False])
        >>> clean = jnp.where(mask, row, 0)
        >>> float(masked_mean(jnp.square(clean), mask))
        1.0
    """
    x = floats(x)
    wide = widen(x)
    if mask is None:
        total, count = jnp.sum(wide), max(x.size, 1)
        return narrow(total / count, x.dtype)
    require_same_shape("x", x, "mask", mask)
    flags = checked_mask("mask", mask)
    count = jnp.maximum(jnp.sum(flags), 1).astype(wide.dtype)
    return narrow(jnp.sum(jnp.where(flags, wide, 0)) / count, x.dtype)


# Regression losses, elementwise and not reduced: the caller takes the mean or sum.


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


# The expectile loss of implicit Q-learning.


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


# The Gumbel regression loss of extreme Q-learning.


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


# Gaussian likelihood with bounded variance.


LOG_TWO_PI = math.log(2 * math.pi)


def soft_clamp(
    x: Float[Array, "*batch"],
    low: float | Float[Array, "*#batch"],
    high: float | Float[Array, "*#batch"],
) -> Float[Array, "*batch"]:
    """A smooth, increasing map of the reals into ``[low, high]``.

    ``low + (high - low) s(high - s(high - x) - low) / s(high - low)`` with ``s = softplus``. It is
    nearly the identity well inside the interval and has gradients to ``x`` and to both ends. The
    published form has no quotient and exceeds ``high`` by up to ``s(low - high)``: 3e-5 for the
    ends of :func:`gaussian_nll`, 0.13 for -1 and 1.

    Args:
        x: Any shape.
        low: Lower end; broadcasts against ``x``.
        high: Upper end; broadcasts against ``x``.

    Returns:
        Same shape as ``x``, never outside the ends. NaN under ``jit`` if they are not in order.

    Raises:
        ValueError: If an end does not broadcast to the shape of ``x``, or concrete ends do not
            satisfy ``low < high``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(soft_clamp(jnp.array(-1e6), -10.0, 0.5))
        -10.0

    Source: Chua et al., Deep reinforcement learning in a handful of trials using probabilistic
    dynamics models, arXiv 1805.12114, appendix A.1, without the quotient.
    """
    require_broadcast("low", low, "x", np.shape(x))
    require_broadcast("high", high, "x", np.shape(x))
    if is_concrete((low, high)) and not np.all(np.asarray(low) < np.asarray(high)):
        raise ValueError(f"low must be below high, got {low} and {high}; swap or widen them")
    x = floats(x)
    below, above = like(low, x), like(high, x)
    upper = above - jax.nn.softplus(above - x)
    span = above - below
    clamped = below + span * (jax.nn.softplus(upper - below) / jax.nn.softplus(span))
    clamped = jnp.minimum(clamped, above)  # the sum may round above it
    if is_concrete((low, high)):
        return clamped
    return jnp.where(jnp.asarray(low) < jnp.asarray(high), clamped, jnp.nan)


def gaussian_nll(
    mean: Float[Array, "*batch"],
    log_variance: Float[Array, "*batch"],
    targets: Float[Array, "*batch"],
    *,
    low: float | Float[Array, "*#batch"] = -10.0,
    high: float | Float[Array, "*#batch"] = 0.5,
) -> Float[Array, "*batch"]:
    """Negative log-likelihood of independent Gaussians with bounded variance, elementwise.

    ``((targets - mean)^2 exp(-v) + v + log(2 pi)) / 2`` with ``v = soft_clamp(log_variance, low,
    high)``. Not reduced over channels, members or batch.

    Args:
        mean: Predicted means, any shape.
        log_variance: Predicted log-variances, same shape, unbounded.
        targets: Same shape.
        low: Smallest log-variance; may be learned.
        high: Largest log-variance; may be learned.

    Returns:
        The loss of every element.

    Raises:
        ValueError: If the shapes differ, an end does not broadcast to them, or concrete ends do
            not satisfy ``low < high``.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.zeros(1)
        >>> round(float(gaussian_nll(x, x, x, low=-40.0, high=40.0)[0]), 4)
        0.9189

    Source: as :func:`soft_clamp`.
    """
    require_same_shape("mean", mean, "log_variance", log_variance)
    require_same_shape("mean", mean, "targets", targets)
    require_broadcast("low", low, "targets", np.shape(targets))
    require_broadcast("high", high, "targets", np.shape(targets))
    bounded = soft_clamp(log_variance, low, high)
    error = jnp.square(floats(targets) - floats(mean))
    return (error * jnp.exp(-bounded) + bounded + LOG_TWO_PI) / 2
