"""The f-divergences of distribution-correction estimation, and their convex conjugates."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import floats, require_choice

DivergenceName = Literal["kl", "chi2", "soft_chi2"]


class _Generator(NamedTuple):
    """``f`` for ratios >= 0, and the ratio at which ``ratio y - f(ratio)`` is largest."""

    value: Callable[[Array], Array]
    ratio: Callable[[Array], Array]


def f_divergence(
    ratio: Float[Array, "*batch"], *, divergence: DivergenceName
) -> Float[Array, "*batch"]:
    """The generator ``f`` of an f-divergence: ``D_f(p || q) = E_q f(p / q)``; elementwise.

    ``"kl"``: ``x log x - x + 1``; ``"chi2"``: ``(x - 1)^2 / 2``; ``"soft_chi2"``: ``"kl"`` below
    one and ``"chi2"`` above, which is smooth, grows slowly and keeps weights positive. At one, all
    are zero with zero slope.

    Args:
        ratio: ``x``, ratios of densities, not negative.
        divergence: Name of the generator, static.

    Returns:
        ``f(x)``, same shape, accurate to the rounding unit of one near ``x = 1``; infinite for a
        negative ratio, which no distribution has.

    Raises:
        ValueError: If ``divergence`` is not one of the three.

    Example:
        >>> import jax.numpy as jnp
        >>> f_divergence(jnp.array([1.0, 3.0]), divergence="chi2").tolist()
        [0.0, 2.0]

    Source: Lee et al., OptiDICE: offline policy optimization via stationary distribution
    correction estimation, arXiv 2106.10783.
    """
    ratio = floats(ratio)
    inside = ratio >= 0
    value = _generator(divergence).value(jnp.where(inside, ratio, 1))
    return jnp.where(inside, value, jnp.where(jnp.isnan(ratio), jnp.nan, jnp.inf))


def f_conjugate(y: Float[Array, "*batch"], *, divergence: DivergenceName) -> Float[Array, "*batch"]:
    """The convex conjugate over ratios, ``max_{x >= 0} x y - f(x)``; elementwise.

    Its slope is :func:`f_ratio`. ``"kl"``: ``exp(y) - 1``; ``"chi2"``: ``y + y^2 / 2`` for ``y >=
    -1`` and -1/2 below; ``"soft_chi2"``: ``"kl"`` below zero and ``"chi2"`` above.

    Args:
        y: Any shape.
        divergence: Name of the generator, as in :func:`f_divergence`; static.

    Returns:
        The conjugate, same shape.

    Raises:
        ValueError: If ``divergence`` is not one of the three.

    Example:
        >>> import jax.numpy as jnp
        >>> f_conjugate(jnp.array([-9.0, 0.0, 2.0]), divergence="chi2").tolist()
        [-0.5, 0.0, 4.0]

    Source: as :func:`f_divergence`.
    """
    y = floats(y)
    if _named(divergence) == "kl":
        return jnp.expm1(y)
    # Written by cases, since maxima would halve the slope at a tie.
    if divergence == "chi2":
        above = jnp.where(y < -1, -1, y)
        return above + jnp.square(above) / 2
    below = y < 0
    above = jnp.where(below, 0, y)
    return jnp.where(below, jnp.expm1(jnp.where(below, y, 0)), above + jnp.square(above) / 2)


def f_ratio(y: Float[Array, "*batch"], *, divergence: DivergenceName) -> Float[Array, "*batch"]:
    """The ratio at which ``x y - f(x)`` is largest over ``x >= 0``: ``max(0, (f')^{-1}(y))``.

    ``"kl"``: ``exp(y)``; ``"chi2"``: ``max(0, y + 1)``; ``"soft_chi2"``: ``exp(y)`` below zero and
    ``y + 1`` above.

    Args:
        y: Any shape.
        divergence: Name of the generator, as in :func:`f_divergence`; static.

    Returns:
        The ratio, same shape, not negative.

    Raises:
        ValueError: If ``divergence`` is not one of the three.

    Example:
        >>> import jax.numpy as jnp
        >>> f_ratio(jnp.array([-9.0, 0.0, 2.0]), divergence="chi2").tolist()
        [0.0, 1.0, 3.0]

    Source: as :func:`f_divergence`.
    """
    return _generator(divergence).ratio(floats(y))


def _named(divergence: str) -> str:
    require_choice("divergence", divergence, tuple(_GENERATORS))
    return divergence


def _generator(divergence: str) -> _Generator:
    return _GENERATORS[_named(divergence)]


def _kl(x: Array) -> Array:
    moves = x > 0
    return jnp.where(moves, x * jnp.log(jnp.where(moves, x, 1)), 0) - x + 1


def _chi2(x: Array) -> Array:
    return jnp.square(x - 1) / 2


_GENERATORS: dict[str, _Generator] = {
    "kl": _Generator(_kl, jnp.exp),
    "chi2": _Generator(_chi2, lambda y: jnp.maximum(y + 1, 0)),
    "soft_chi2": _Generator(
        lambda x: jnp.where(x < 1, _kl(jnp.minimum(x, 1)), _chi2(x)),
        lambda y: jnp.where(y < 0, jnp.exp(jnp.where(y < 0, y, 0)), y + 1),
    ),
}
