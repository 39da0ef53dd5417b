"""Whether a linear system decays without input."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.matrix_products import product
from neorl_core.linear_systems._checks import checked_square

_SQUARINGS = 40


def spectral_radius(a: Float[Array, "state state"]) -> Float[Array, ""]:
    """The largest magnitude of an eigenvalue, by Gelfand's formula.

    ``lim |A^m|^{1/m}`` at ``m = 2^40``, by squaring a scaled matrix. It needs no eigenvalues, so it
    runs on every device and under every transformation. If it is below one, ``x_{k+1} = A x_k``
    decays.

    Args:
        a: Square matrix.

    Returns:
        Not negative; 0 for a nilpotent matrix, NaN if an entry is not finite. Not differentiable.

    Raises:
        ValueError: If ``a`` is not square.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(spectral_radius(jnp.array([[0.5, 100.0], [0.0, 0.9]]))), 4)
        0.9
    """
    a = checked_square("a", a)
    size = jnp.max(jnp.abs(a))
    start = (a / jnp.where(size > 0, size, 1), jnp.log(size))
    shares = 0.5 ** jnp.arange(1, _SQUARINGS + 1, dtype=a.dtype)
    (_, logarithm), _ = jax.lax.scan(_square, start, (jnp.arange(_SQUARINGS), shares))
    return jnp.where(jnp.all(jnp.isfinite(a)), jnp.exp(logarithm), jnp.nan)


def is_stable(a: Float[Array, "state state"]) -> Bool[Array, ""]:
    """Whether ``x_{k+1} = A x_k`` decays from every state: all eigenvalues inside the unit circle.

    Args:
        a: Square matrix.

    Returns:
        True or false; false if the spectral radius is within ``8 * state`` rounding units of one,
        which cannot be distinguished from one, or if an entry is not finite.

    Raises:
        ValueError: If ``a`` is not square.

    Example:
        >>> import jax.numpy as jnp
        >>> bool(is_stable(jnp.array([[0.5, 100.0], [0.0, 0.9]]))), bool(is_stable(jnp.eye(2)))
        (True, False)
    """
    a = checked_square("a", a)
    return spectral_radius(a) < 1 - rounding(a)


def rounding(a: Array) -> float:
    """Largest distance from the unit circle to which rounding can move an eigenvalue on it."""
    return 8 * a.shape[0] * float(jnp.finfo(a.dtype).eps)


def _square(
    state: tuple[Array, Array], number: tuple[Array, Array]
) -> tuple[tuple[Array, Array], None]:
    (matrix, logarithm), (step, share) = state, number
    squared = product(matrix, matrix)
    size = jnp.max(jnp.abs(squared))
    # A defective mode grows until its own size is lost in rounding; its square is then pure
    # rounding error. A nilpotent matrix has vanished before that.
    terms = product(jnp.abs(matrix), jnp.abs(matrix))
    states = matrix.shape[0]
    negligible = jnp.all(jnp.abs(squared) <= 4 * states * jnp.finfo(matrix.dtype).eps * terms)
    negligible = negligible & (2 ** jnp.minimum(step, 20) >= states)
    logarithm = logarithm + jnp.where(negligible, 0, share * jnp.log(size))
    return (jnp.where(negligible, matrix, squared / jnp.where(size > 0, size, 1)), logarithm), None
