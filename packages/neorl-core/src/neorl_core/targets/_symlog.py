"""The symmetric logarithm, for targets of unknown magnitude."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import floats


def symlog(x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """``sign(x) log(1 + |x|)``: the identity near zero, logarithmic far from it.

    Args:
        x: Any shape.

    Returns:
        Same shape; its slope is one at zero.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(x, 3) for x in symlog(jnp.array([0.0, 1e6])).tolist()]
        [0.0, 13.816]

    Source: Hafner et al., Mastering diverse domains through world models, arXiv 2301.04104.
    """
    x = floats(x)
    size = jnp.log1p(_size(x))
    return jnp.where(x < 0, -size, size)


def symexp(x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """``sign(x) (exp(|x|) - 1)``, the inverse of :func:`symlog`.

    Args:
        x: Any shape.

    Returns:
        Same shape; infinite beyond 88 in float32.

    Example:
        >>> import jax.numpy as jnp
        >>> symexp(symlog(jnp.array([-3.0, 0.0]))).round(5).tolist()
        [-3.0, 0.0]

    Source: as :func:`symlog`.
    """
    x = floats(x)
    size = jnp.expm1(_size(x))
    return jnp.where(x < 0, -size, size)


def _size(x: Array) -> Array:
    """``|x|``, with a slope of one at zero."""
    return jnp.where(x < 0, -x, x)
