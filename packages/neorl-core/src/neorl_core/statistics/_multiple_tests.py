"""A correction for testing several hypotheses together."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import floats, is_concrete, require_rank


def holm(p_values: Float[ArrayLike, " test"]) -> Float[Array, " test"]:
    """Holm's step-down adjustment: reject where the adjusted value is at most ``alpha``.

    With the ``m`` values in increasing order, the ``i``-th becomes the largest of ``min(1, (m - j)
    p_j)`` over ``j <= i`` (counting from zero). The probability of any false rejection is then at
    most ``alpha``, whatever the dependence of the tests.

    Args:
        p_values: One per test; may be empty.

    Returns:
        Adjusted values in the original order. Under ``jit`` a value that is NaN or outside [0, 1]
        makes all of them NaN.

    Raises:
        ValueError: If there is not exactly one axis or a concrete value is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(p), 3) for p in holm(jnp.array([0.01, 0.04, 0.03]))]
        [0.03, 0.06, 0.06]

    Source: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    Statistics 6 (1979) 65.
    """
    p = _check(p_values)
    order = jnp.argsort(p)
    remaining = jnp.arange(p.shape[0], 0, -1).astype(p.dtype)
    stepped = jnp.minimum(jax.lax.cummax(p[order] * remaining), 1)
    adjusted = jnp.zeros_like(p).at[order].set(stepped)
    return jnp.where(jnp.all((p >= 0) & (p <= 1)), adjusted, jnp.nan)


def _check(p_values: ArrayLike) -> Float[Array, " test"]:
    require_rank("p_values", p_values, 1, "test")
    if is_concrete(p_values):
        values = np.asarray(p_values)
        if not np.all((values >= 0) & (values <= 1)):
            raise ValueError(
                f"p_values must be in [0, 1], got {values}; "
                "give probabilities, not percentages or test statistics"
            )
    return floats(p_values)
