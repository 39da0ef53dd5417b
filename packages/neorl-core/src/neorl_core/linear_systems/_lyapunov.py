"""Lyapunov's equation: the stationary covariance of a linear system, and the cost of a loop."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.matrix_products import product, symmetric
from neorl_core.linear_systems._checks import checked_matrix, checked_square
from neorl_core.linear_systems._scaling import powers_of_two, state_weights

_SQUARINGS = 40


def discrete_lyapunov(
    a: Float[Array, "state state"], q: Float[Array, "state state"]
) -> Float[Array, "state state"]:
    """The solution of ``X = A X A^T + Q``: the stationary covariance of ``x_{k+1} = A x_k + w``.

    Smith's doubling: ``X <- X + A X A^T``, ``A <- A^2``. The cost ``sum_k x^T Q x`` of a stable
    loop is the solution with ``A^T`` in place of ``A``. Differentiable.

    Args:
        a: ``A``, stable.
        q: ``Q``, symmetric.

    Returns:
        ``X``, symmetric; NaN if ``a`` is not stable, or so nearly unstable that rounding may change
        ``X`` by more than about 0.001 of its size in float32, 1e-6 in float64.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> float(discrete_lyapunov(jnp.full((1, 1), 0.5), jnp.full((1, 1), 3.0))[0, 0])
        4.0

    Source: Smith, Matrix equation XA + BX = C, 1968.
    """
    a = checked_square("a", a)
    q = checked_matrix("q", q, a.shape, "state, state").astype(a.dtype)
    return _in_even_units(a, q)


@jax.jit
def _in_even_units(a: Array, q: Array) -> Array:
    unit = powers_of_two(jnp.sqrt(_sizes(*jax.lax.stop_gradient((a, q)))))
    a = a / unit[:, None] * unit[None, :]
    q = symmetric(q) / unit[:, None] / unit[None, :]
    complement = jnp.eye(a.shape[0], dtype=a.dtype) - a
    x = symmetric(stein(complement, q))
    fixed, q, evaluated = jax.lax.stop_gradient((complement, q, x))
    perturbed = smith(rounded(fixed, jnp.abs(fixed)), q)
    steady = jnp.max(jnp.abs(perturbed - evaluated)) <= tolerance(a) * jnp.max(jnp.abs(evaluated))
    return jnp.where(steady, x, jnp.nan) * unit[:, None] * unit[None, :]


def _sizes(a: Array, q: Array) -> Array:
    """Rough sizes of the diagonal of ``X``: a state's own noise, or the noise that reaches it.

    Scaled by the roots of these sizes, no significant entry of ``A`` is lost in rounding against
    one. A state that no noise reaches gets the size that balances ``A``.
    """
    squared = jnp.square(a)
    noise = jnp.abs(jnp.diagonal(q))

    def sweep(_: Array, size: Array) -> Array:
        return jnp.maximum(noise, jnp.max(squared * size[None, :], axis=1, initial=0))

    size = jax.lax.fori_loop(0, a.shape[0], sweep, noise)
    zero = jnp.zeros(a.shape[0], a.dtype)
    weight = state_weights(a, jnp.zeros_like(a[:, :0]), zero, zero[:0])
    return jnp.where((size > 0) & jnp.isfinite(size), size, 1 / weight)


def tolerance(like: Array) -> float:
    """Largest change by rounding of an accepted solution, relative to its diagonal."""
    return float(jnp.finfo(like.dtype).eps) ** 0.4


def rounded(complement: Array, terms: Array) -> Array:
    """Perturbs ``rest`` by a possible rounding error, given that it is a sum of ``terms``.

    The change of a solution under this perturbation estimates its error: slow loops accumulate the
    loss of every period.
    """
    row, column = jnp.indices(complement.shape)
    sign = 1 - 2 * ((5 * row * row + 3 * row * column + 7 * column) % 11 % 2)
    return complement + jnp.finfo(complement.dtype).eps * sign.astype(complement.dtype) * terms


def stein(complement: Array, q: Array) -> Array:
    """:func:`smith` with derivatives, which are solutions of the same equation."""

    def difference(x: Array) -> Array:
        transformed = product(complement, x)
        return transformed + product(x, complement.T) - product(transformed, complement.T)

    return jax.lax.custom_linear_solve(
        difference,
        q,
        lambda _, right: smith(complement, right),
        lambda _, right: smith(complement.T, right),
    )


def smith(complement: Array, q: Array) -> Array:
    """``sum_k A^k Q (A^T)^k`` with ``A = I - rest``, by doubling; NaN if the powers do not vanish.

    For a slow loop, ``rest`` holds digits that ``A`` has lost to rounding.
    """
    start = complement, q, jnp.zeros((), jnp.int32)
    complement, total, _ = jax.lax.while_loop(_continues, _double, start)
    return jnp.where(_vanished(_power(complement)), total, jnp.nan)


def _power(complement: Array) -> Array:
    return jnp.eye(complement.shape[0], dtype=complement.dtype) - complement


def _vanished(power: Array) -> Array:
    return jnp.max(jnp.abs(power)) <= 8 * power.shape[0] * jnp.finfo(power.dtype).eps


def _continues(state: tuple[Array, Array, Array]) -> Array:
    complement, _, count = state
    return (count < _SQUARINGS) & ~_vanished(_power(complement)) & jnp.all(jnp.isfinite(complement))


def _double(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    complement, total, count = state
    power = _power(complement)
    total = total + product(power, total, power.T)
    return complement + product(power, complement), total, count + 1
