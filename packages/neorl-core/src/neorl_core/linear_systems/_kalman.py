"""Kalman filters: the stationary gain, and the two steps of a running filter."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import booleans, require_same_shape
from neorl_core._internal.matrix_products import product, symmetric
from neorl_core.linear_systems._checks import checked_matrix, checked_square, checked_vector
from neorl_core.linear_systems._riccati import stabilising_solution
from neorl_core.linear_systems._scaling import Costs, solve_definite


class KalmanFilter(NamedTuple):
    """The stationary filter ``x+ = x + gain (y - C x)`` after the prediction ``x = A x+``.

    Attributes:
        gain: Gain of the measurement update, shape ``(state, measurement)``.
        covariance: Covariance of the error before the measurement, shape ``(state, state)``.
    """

    gain: Float[Array, "state measurement"]
    covariance: Float[Array, "state state"]


class StateEstimate(NamedTuple):
    """State estimate of a running filter.

    Attributes:
        mean: Estimated state, shape ``(state,)``.
        covariance: Covariance of its error, shape ``(state, state)``.
    """

    mean: Float[Array, " state"]
    covariance: Float[Array, "state state"]


def kalman_filter(
    a: Float[Array, "state state"],
    c: Float[Array, "measurement state"],
    process_noise: Float[Array, "state state"],
    measurement_noise: Float[Array, "measurement measurement"],
) -> KalmanFilter:
    """The stationary Kalman filter, from the dual of :func:`discrete_riccati`.

    For ``x_{k+1} = A x_k + w``, ``y_k = C x_k + v`` with covariances ``W`` and ``V``:
    ``P = riccati(A^T, C^T, W, V)`` and ``gain = P C^T (C P C^T + V)^{-1}``.

    Args:
        a: ``A``.
        c: ``C``.
        process_noise: ``W``, symmetric positive semidefinite.
        measurement_noise: ``V``, symmetric positive semidefinite; ``C P C^T + V`` must be definite.

    Returns:
        The gain and the covariance before a measurement. Both are NaN if no filter forgets its
        initial state, and wherever :func:`discrete_riccati` gives NaN; in float32 that may happen
        for modes slower than about 1e-5 per period and for unstable modes that are hardly visible.
        Only the gain is NaN if rounding may change it by more than about 0.002 of its largest entry
        in float32, or 1e-6 in float64; in float32 this happens if nearly exact sensors measure the
        same state. float64 (``jax.config.update("jax_enable_x64", True)``) solves these cases.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> round(float(kalman_filter(one, one, one, one).gain[0, 0]), 4)
        0.618

    Source: Anderson and Moore, Optimal filtering, 1979.
    """
    a, c, process, noise = _matrices(a, c, process_noise, measurement_noise)
    solution = stabilising_solution(Costs(a.T, c.T, process, noise, jnp.zeros_like(c.T)))
    return KalmanFilter(solution.update.T, solution.x)


def kalman_predict(
    estimate: StateEstimate,
    a: Float[Array, "state state"],
    process_noise: Float[Array, "state state"],
    *,
    drift: Float[Array, " state"] | None = None,
) -> StateEstimate:
    """The estimate one period later: ``x <- A x + drift``, ``P <- A P A^T + W``.

    Args:
        estimate: Current estimate.
        a: ``A``; may change every period.
        process_noise: ``W``, covariance of the disturbance of the state within the period.
        drift: Known change of the state, ``B u`` plus a constant; zero if ``None``.

    Returns:
        The estimate before the next measurement, in the dtype of ``estimate``.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> start = StateEstimate(jnp.ones(1), jnp.ones((1, 1)))
        >>> later = kalman_predict(start, 2 * jnp.eye(1), jnp.eye(1), drift=jnp.ones(1))
        >>> float(later.mean[0]), float(later.covariance[0, 0])
        (3.0, 5.0)

    Source: Kalman, A new approach to linear filtering and prediction problems, 1960.
    """
    mean, covariance = _estimate(estimate)
    a = checked_matrix("a", a, covariance.shape, "state, state").astype(mean.dtype)
    process = checked_matrix("process_noise", process_noise, covariance.shape, "state, state")
    predicted = product(a, mean)
    if drift is not None:
        predicted = predicted + checked_vector("drift", drift, mean.shape[0], "state").astype(
            mean.dtype
        )
    predicted_covariance = symmetric(product(a, covariance, a.T) + process.astype(mean.dtype))
    return StateEstimate(predicted, predicted_covariance)


def kalman_update(
    estimate: StateEstimate,
    reading: Float[Array, " measurement"],
    c: Float[Array, "measurement state"],
    measurement_noise: Float[Array, "measurement measurement"],
    *,
    mask: Bool[Array, " measurement"] | None = None,
) -> StateEstimate:
    """The estimate after a measurement: ``x <- x + K (y - C x)``.

    ``K = P C^T (C P C^T + V)^{-1}`` and, in Joseph's form, ``P <- (I - K C) P (I - K C)^T + K V
    K^T``, which stays positive semidefinite even if ``K`` is rounded.

    Args:
        estimate: Estimate before the measurement.
        reading: ``y``; an entry that is not finite is treated as missing and has no effect.
        c: ``C``.
        measurement_noise: ``V``, covariance of the noise of ``y``.
        mask: False where a measurement is to be ignored whatever its value.

    Returns:
        The estimate after the measurement, in the dtype of ``estimate``; NaN if the innovation
        covariance is not positive definite.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> start, one = StateEstimate(jnp.zeros(1), jnp.ones((1, 1))), jnp.ones((1, 1))
        >>> after = kalman_update(start, jnp.ones(1), one, one)
        >>> round(float(after.mean[0]), 5), round(float(after.covariance[0, 0]), 5)
        (0.5, 0.5)

    Source: Bucy and Joseph, Filtering for stochastic processes with applications to guidance, 1968.
    """
    mean, covariance = _estimate(estimate)
    states = mean.shape[0]
    c = checked_matrix("c", c, (None, states), "measurement, state").astype(mean.dtype)
    count = c.shape[0]
    noise = checked_matrix(
        "measurement_noise", measurement_noise, (count, count), "measurement, measurement"
    )
    reading = checked_vector("reading", reading, count, "measurement").astype(mean.dtype)
    present = jnp.isfinite(reading)
    if mask is not None:
        require_same_shape("mask", mask, "reading", reading)
        present = present & booleans(mask)
    # A missing entry becomes a measurement of nothing with independent noise.
    c = jnp.where(present[:, None], c, 0)
    both = present[:, None] & present[None, :]
    noise = symmetric(noise.astype(mean.dtype))
    noise = jnp.where(both, noise, jnp.eye(count, dtype=mean.dtype))
    gain = _gain(covariance, c, noise)
    innovation = jnp.where(present, reading, 0) - product(c, mean)
    reduction = jnp.eye(states, dtype=mean.dtype) - product(gain, c)
    updated = product(reduction, covariance, reduction.T) + product(gain, noise, gain.T)
    return StateEstimate(mean + product(gain, innovation), symmetric(updated))


def _gain(covariance: Array, c: Array, noise: Array) -> Array:
    predicted_covariance = symmetric(product(c, covariance, c.T) + noise)
    return solve_definite(predicted_covariance, product(c, covariance)).T


def _estimate(estimate: StateEstimate) -> tuple[Array, Array]:
    covariance = checked_square("covariance", estimate.covariance)
    mean = checked_vector("mean", estimate.mean, covariance.shape[0], "state")
    dtype = jnp.result_type(mean, covariance)
    return mean.astype(dtype), symmetric(covariance.astype(dtype))


def _matrices(a, c, process_noise, measurement_noise) -> tuple[Array, Array, Array, Array]:
    a = checked_square("a", a)
    c = checked_matrix("c", c, (None, a.shape[0]), "measurement, state")
    process = checked_matrix("process_noise", process_noise, a.shape, "state, state")
    noise = checked_matrix(
        "measurement_noise", measurement_noise, (c.shape[0], c.shape[0]), "measurement, measurement"
    )
    dtype = jnp.result_type(a, c, process, noise)
    return a.astype(dtype), c.astype(dtype), process.astype(dtype), noise.astype(dtype)
