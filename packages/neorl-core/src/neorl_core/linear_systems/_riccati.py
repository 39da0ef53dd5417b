"""Linear-quadratic regulators and Kalman filters: Riccati's equation by doubling."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import require_whole
from neorl_core._internal.matrix_products import product, symmetric
from neorl_core.linear_systems._checks import (
    require_definite,
    require_matrix,
    require_square,
    require_stabilisable,
)

_DOUBLINGS = 40


class Regulator(NamedTuple):
    """The linear-quadratic regulator ``u = -gain x``.

    Attributes:
        gain: Shape ``(act, state)``; for a finite horizon ``(time, act, state)``.
        cost_to_go: ``X`` of the cost ``x^T X x`` from ``x`` on, shape ``(state, state)``; for a
            finite horizon ``(time + 1, state, state)``.
    """

    gain: Float[Array, "*time act state"]
    cost_to_go: Float[Array, "*times state state"]


class KalmanFilter(NamedTuple):
    """The stationary filter ``x+ = x + gain (y - C x)`` after the prediction ``x = A x+``.

    Attributes:
        gain: Gain of the measurement update, shape ``(state, measurement)``.
        covariance: Covariance of the error before the measurement, shape ``(state, state)``.
    """

    gain: Float[Array, "state measurement"]
    covariance: Float[Array, "state state"]


def discrete_riccati(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    q: Float[Array, "state state"],
    r: Float[Array, "act act"],
    *,
    cross: Float[Array, "state act"] | None = None,
) -> Float[Array, "state state"]:
    """The stabilising solution of the discrete algebraic Riccati equation.

    ``X = A^T X A - (A^T X B + N)(R + B^T X B)^{-1}(B^T X A + N^T) + Q``, by structure-preserving
    doubling: step ``k`` has seen a horizon of ``2^k`` periods, so 40 steps reach any that matters.
    Differentiable.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.
        q: ``Q``, symmetric positive semidefinite; every mode that does not decay by itself must
            show in it (detectability).
        r: ``R``, symmetric positive definite.
        cross: ``N`` of the cost ``x^T Q x + u^T R u + 2 x^T N u``; zero if ``None``.

    Returns:
        ``X``, symmetric; NaN where no stabilising solution was reached, and under ``jit`` where
        ``q`` or ``r`` is not symmetric and definite.

    Raises:
        ValueError: If shapes disagree, or known matrices are not symmetric, not definite, not
            stabilisable or not detectable.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> round(float(discrete_riccati(one, one, one, one)[0, 0]), 4)
        1.618

    Source: Chu, Fan, Lin and Wang, Structure-preserving algorithms for periodic discrete-time
    algebraic Riccati equations, 2004.
    """
    a, b, q, r, n, definite = _problem(a, b, q, r, cross)
    require_stabilisable(a, b, "stabilisable")
    # Completing the square takes the cross term out of the problem.
    inner = jnp.linalg.solve(r, n.T)
    a, q = a - product(b, inner), q - product(n, inner)
    require_stabilisable(a.T, q.T, "detectable")
    start = (a, symmetric(product(b, jnp.linalg.solve(r, b.T))), symmetric(q))
    (power, _, solution), _ = jax.lax.scan(_double, start, None, length=_DOUBLINGS)
    settled = jnp.max(jnp.abs(power)) <= jnp.finfo(power.dtype).eps
    return jnp.where(settled & definite, solution, jnp.nan)


def _double(state: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
    a, g, h = state
    identity = jnp.eye(a.shape[0], dtype=a.dtype)
    both = jnp.linalg.solve(identity + product(g, h), jnp.concatenate([a, g], axis=1))
    moved, spread = both[:, : a.shape[0]], both[:, a.shape[0] :]
    g = symmetric(g + product(a, spread, a.T))
    return (product(a, moved), g, symmetric(h + product(a.T, h, moved))), None


def lq_regulator(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    q: Float[Array, "state state"],
    r: Float[Array, "act act"],
    *,
    cross: Float[Array, "state act"] | None = None,
) -> Regulator:
    """The gain that minimises ``sum_k x^T Q x + u^T R u + 2 x^T N u`` over an endless horizon.

    ``K = (R + B^T X B)^{-1} (B^T X A + N^T)`` with ``X`` of :func:`discrete_riccati`.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.
        q: ``Q``, symmetric positive semidefinite.
        r: ``R``, symmetric positive definite.
        cross: ``N``; zero if ``None``.

    Returns:
        The gain and the cost to go; NaN as :func:`discrete_riccati`.

    Raises:
        ValueError: As :func:`discrete_riccati`.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> round(float(lq_regulator(one, one, one, one).gain[0, 0]), 4)
        0.618

    Source: Anderson and Moore, Optimal control: linear quadratic methods, 1990.
    """
    x = discrete_riccati(a, b, q, r, cross=cross)
    a, b, q, r, n, _ = _problem(a, b, q, r, cross)
    return Regulator(_gain(a, b, r, n, x), x)


def finite_horizon_regulator(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    q: Float[Array, "state state"],
    r: Float[Array, "act act"],
    terminal: Float[Array, "state state"],
    *,
    horizon: int,
    cross: Float[Array, "state act"] | None = None,
) -> Regulator:
    """The gains that minimise the cost of ``horizon`` periods and of the state after them.

    Backwards from ``X_T = terminal``: ``X_k = Q + A^T X_{k+1} A - (A^T X_{k+1} B + N) K_k``.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.
        q: ``Q``, symmetric positive semidefinite.
        r: ``R``, symmetric positive definite.
        terminal: Cost of the last state, symmetric positive semidefinite.
        horizon: Number of periods; may be zero.
        cross: ``N``; zero if ``None``.

    Returns:
        Gains of shape ``(horizon, act, state)``, first period first, and the costs to go of shape
        ``(horizon + 1, state, state)``; NaN under ``jit`` where ``q``, ``r`` or ``terminal`` is
        not symmetric and definite.

    Raises:
        ValueError: If shapes disagree, known matrices are not symmetric or not definite, or
            ``horizon`` is no whole number from zero on.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> plan = finite_horizon_regulator(one, one, one, one, one, horizon=1)
        >>> float(plan.gain[0, 0, 0]), float(plan.cost_to_go[0, 0, 0])
        (0.5, 1.5)

    Source: Anderson and Moore, Optimal control: linear quadratic methods, 1990.
    """
    a, b, q, r, n, definite = _problem(a, b, q, r, cross)
    terminal = require_matrix("terminal", terminal, a.shape, "state, state").astype(a.dtype)
    definite = definite & require_definite("terminal", terminal, strictly=False)
    horizon = require_whole("horizon", horizon, 0, "0 leaves the terminal cost alone")
    start = (symmetric(terminal), (a, b, symmetric(q), r, n))
    _, (gains, costs) = jax.lax.scan(_step_back, start, None, length=horizon, reverse=True)
    costs = jnp.concatenate([costs, symmetric(terminal)[None]])
    return Regulator(jnp.where(definite, gains, jnp.nan), jnp.where(definite, costs, jnp.nan))


def _step_back(state: tuple, _: None) -> tuple[tuple, tuple[Array, Array]]:
    x, (a, b, q, r, n) = state
    gain = _gain(a, b, r, n, x)
    before = symmetric(q + product(a.T, x, a) - product(product(a.T, x, b) + n, gain))
    return (before, (a, b, q, r, n)), (gain, before)


def kalman_filter(
    a: Float[Array, "state state"],
    c: Float[Array, "measurement state"],
    process: Float[Array, "state state"],
    measurement: Float[Array, "measurement measurement"],
) -> KalmanFilter:
    """The stationary Kalman filter: the dual of :func:`discrete_riccati`.

    For ``x_{k+1} = A x_k + w``, ``y_k = C x_k + v`` with covariances ``W`` and ``V``:
    ``P = riccati(A^T, C^T, W, V)`` and ``gain = P C^T (C P C^T + V)^{-1}``.

    Args:
        a: ``A``.
        c: ``C``.
        process: ``W``, symmetric positive semidefinite.
        measurement: ``V``, symmetric positive definite.

    Returns:
        The gain and the covariance before a measurement; NaN where none was reached, and under
        ``jit`` where ``process`` or ``measurement`` is not symmetric and definite.

    Raises:
        ValueError: If shapes disagree, or known matrices are not symmetric, not definite, or some
            mode that does not decay is not measured or not excited.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> round(float(kalman_filter(one, one, one, one).gain[0, 0]), 4)
        0.618

    Source: Anderson and Moore, Optimal filtering, 1979.
    """
    a = require_square("a", a)
    c = require_matrix("c", c, (None, a.shape[0]), "measurement, state").astype(a.dtype)
    process = require_matrix("process", process, a.shape, "state, state")
    measurement = require_matrix(
        "measurement", measurement, (c.shape[0], c.shape[0]), "measurement, measurement"
    )
    # By their own names; what is traced becomes NaN in the equation.
    require_definite("process", process, strictly=False)
    require_definite("measurement", measurement, strictly=True)
    p = discrete_riccati(a.T, c.T, process, measurement)
    spread = product(c, p, c.T) + measurement.astype(a.dtype)
    return KalmanFilter(jnp.linalg.solve(spread, product(c, p)).T, p)


def _problem(a, b, q, r, cross) -> tuple[Array, Array, Array, Array, Array, bool | Array]:
    """The matrices in one dtype, and whether the costs are definite."""
    a = require_square("a", a)
    b = require_matrix("b", b, (a.shape[0], None), "state, act")
    q = require_matrix("q", q, a.shape, "state, state")
    r = require_matrix("r", r, (b.shape[1], b.shape[1]), "act, act")
    n = jnp.zeros_like(b) if cross is None else cross
    n = require_matrix("cross", n, b.shape, "state, act")
    definite = require_definite("q", q, strictly=False) & require_definite("r", r, strictly=True)
    dtype = jnp.result_type(a, b, q, r, n)
    a, b, q, r, n = (matrix.astype(dtype) for matrix in (a, b, q, r, n))
    return a, b, q, r, n, definite


def _gain(a: Array, b: Array, r: Array, n: Array, x: Array) -> Array:
    weight = symmetric(r + product(b.T, x, b))
    return jnp.linalg.solve(weight, product(b.T, x, a) + n.T)
