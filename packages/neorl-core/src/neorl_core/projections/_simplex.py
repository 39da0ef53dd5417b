"""The probability simplex."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import floats, require_length, require_rank
from neorl_core._internal.float_widths import narrowed, widened


def project_simplex(values: Float[ArrayLike, " item"]) -> Float[Array, " item"]:
    """The nearest point whose entries are not negative and sum to one.

    ``max(values - tau, 0)`` with the ``tau`` that makes the sum one, computed with one sort.

    Args:
        values: One-dimensional array with at least one entry.

    Returns:
        The projection; NaN if an entry is not finite.

    Raises:
        ValueError: If there is not exactly one axis or there is no entry.

    Example:
        >>> import jax.numpy as jnp
        >>> project_simplex(jnp.array([0.5, 2.0, 1.5])).tolist()
        [0.0, 0.75, 0.25]

    Source: Duchi et al., Efficient projections onto the l1-ball, ICML 2008.
    """
    require_rank("values", values, 1, "item")
    require_length("values", values, 1)
    dtype, values = floats(values).dtype, widened(values)
    # The result depends only on differences; subtracting first avoids losing digits to an offset.
    shifted = values - jnp.max(values)
    largest_first = -jnp.sort(-shifted)
    excess = jnp.cumsum(largest_first) - 1
    count = jnp.arange(1, values.shape[0] + 1).astype(values.dtype)
    support = jnp.sum(largest_first * count > excess)
    tau = excess[support - 1] / support.astype(values.dtype)
    point = jnp.maximum(shifted - tau, 0)
    return narrowed(jnp.where(jnp.all(jnp.isfinite(values)), point, jnp.nan), dtype)
