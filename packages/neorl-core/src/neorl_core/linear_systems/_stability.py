"""Whether a linear system decays by itself, can be steered, and can be seen."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import require_positive
from neorl_core._internal.matrix_products import product, symmetric
from neorl_core.linear_systems._checks import require_matrix, require_square, require_stable

_SQUARINGS = 40


def spectral_radius(a: Float[Array, "state state"]) -> Float[Array, ""]:
    """The largest magnitude of an eigenvalue, by Gelfand's formula.

    ``lim |A^m|^{1/m}`` at ``m = 2^40`` by squaring a scaled matrix: no eigenvalues, so it runs on
    every device and under every transformation. Below one, ``x_{k+1} = A x_k`` decays.

    Args:
        a: Square.

    Returns:
        Not negative; 0 for a nilpotent matrix, NaN if an entry is not finite. Not differentiable.

    Raises:
        ValueError: If ``a`` is not square.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(spectral_radius(jnp.array([[0.5, 100.0], [0.0, 0.9]]))), 4)
        0.9
    """
    a = require_square("a", a)
    start = (a, jnp.zeros((), a.dtype), jnp.ones((), a.dtype))
    (_, logarithm, _), _ = jax.lax.scan(_square, start, None, length=_SQUARINGS)
    return jnp.where(jnp.all(jnp.isfinite(a)), jnp.exp(logarithm), jnp.nan)


def _square(state: tuple[Array, Array, Array], _: None) -> tuple[tuple, None]:
    matrix, logarithm, weight = state
    size = jnp.max(jnp.abs(matrix))
    scaled = matrix / jnp.where(size > 0, size, 1)
    return (product(scaled, scaled), logarithm + weight * jnp.log(size), weight / 2), None


def discrete_lyapunov(
    a: Float[Array, "state state"], q: Float[Array, "state state"]
) -> Float[Array, "state state"]:
    """The solution of ``X = A X A^T + Q``: the stationary covariance of ``x_{k+1} = A x_k + w``.

    Smith's doubling: ``X <- X + A X A^T``, ``A <- A^2``. The cost ``sum_k x^T Q x`` of a stable
    loop is the solution with ``A^T`` in place of ``A``.

    Args:
        a: Stable.
        q: Symmetric.

    Returns:
        ``X``, symmetric; NaN under ``jit`` where ``a`` is not stable.

    Raises:
        ValueError: If shapes disagree or a known ``a`` is not stable.

    Example:
        >>> import jax.numpy as jnp
        >>> float(discrete_lyapunov(jnp.full((1, 1), 0.5), jnp.full((1, 1), 3.0))[0, 0])
        4.0

    Source: Smith, Matrix equation XA + BX = C, 1968.
    """
    a = require_square("a", a)
    q = require_matrix("q", q, a.shape, "state, state").astype(a.dtype)
    require_stable("a", a)
    (power, solution), _ = jax.lax.scan(_smith, (a, symmetric(q)), None, length=_SQUARINGS)
    settled = jnp.max(jnp.abs(power)) <= jnp.finfo(power.dtype).eps
    return jnp.where(settled, solution, jnp.nan)


def _smith(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
    power, solution = state
    return (product(power, power), symmetric(solution + product(power, solution, power.T))), None


def controllability_matrix(
    a: Float[Array, "state state"], b: Float[Array, "state act"]
) -> Float[Array, "state reach"]:
    """``[B, A B, ..., A^{n-1} B]``: what the inputs of ``n`` periods can reach.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.

    Returns:
        Shape ``(state, state * act)``.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> shift = jnp.array([[0.0, 1.0], [0.0, 0.0]])
        >>> controllability_matrix(shift, jnp.array([[0.0], [1.0]])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]

    Source: Kalman, On the general theory of control systems, 1960.
    """
    a = require_square("a", a)
    b = require_matrix("b", b, (a.shape[0], None), "state, act").astype(a.dtype)
    blocks = [b]
    for _ in range(a.shape[0] - 1):
        blocks.append(product(a, blocks[-1]))
    return jnp.concatenate(blocks, axis=1)


def controllable(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    *,
    tolerance: float | None = None,
) -> Bool[Array, ""]:
    """Whether the inputs can bring the state anywhere: Kalman's rank test.

    Every block of :func:`controllability_matrix` is first scaled to size one, which leaves the
    answer as it is and keeps slow and fast modes comparable. Rounding makes the test weak beyond
    about ten states; the pair that matters for control, stabilisable, is what
    :func:`discrete_riccati` finds out.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``; without inputs nothing is controllable.
        tolerance: Least ratio of the singular values, not negative; by default ``state`` times the
            rounding.

    Returns:
        True or false; false under ``jit`` where ``tolerance`` is negative.

    Raises:
        ValueError: If shapes disagree or a known ``tolerance`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> bool(controllable(jnp.eye(2), jnp.ones((2, 1))))
        False

    Source: Kalman, On the general theory of control systems, 1960.
    """
    a = require_square("a", a)
    n = a.shape[0]
    b = require_matrix("b", b, (n, None), "state, act").astype(a.dtype)
    least = n * jnp.finfo(a.dtype).eps
    if tolerance is not None:
        least = require_positive("tolerance", tolerance, or_zero=True)
    if b.shape[1] == 0:
        return jnp.zeros((), bool)
    blocks = [_scaled(b)]
    for _ in range(n - 1):
        blocks.append(_scaled(product(a, blocks[-1])))
    values = jnp.linalg.svd(jnp.concatenate(blocks, axis=1), compute_uv=False)
    return values[n - 1] > least * values[0]


def observable(
    a: Float[Array, "state state"],
    c: Float[Array, "measurement state"],
    *,
    tolerance: float | None = None,
) -> Bool[Array, ""]:
    """Whether the measurements tell the state: :func:`controllable` of the dual pair.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k``.
        c: ``C`` of ``y_k = C x_k``.
        tolerance: Least ratio of the singular values, not negative; by default ``state`` times the
            rounding.

    Returns:
        True or false; false under ``jit`` where ``tolerance`` is negative.

    Raises:
        ValueError: If shapes disagree or a known ``tolerance`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> integrator = jnp.array([[1.0, 1.0], [0.0, 1.0]])
        >>> bool(observable(integrator, jnp.array([[1.0, 0.0]])))
        True

    Source: Kalman, On the general theory of control systems, 1960.
    """
    a = require_square("a", a)
    c = require_matrix("c", c, (None, a.shape[0]), "measurement, state")
    return controllable(a.T, c.T, tolerance=tolerance)


def _scaled(block: Array) -> Array:
    size = jnp.max(jnp.abs(block))
    return block / jnp.where(size > 0, size, 1)
