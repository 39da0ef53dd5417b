"""The mean over the rows that a mask includes."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import checked_mask, floats, require_same_shape
from neorl_core._internal.float_widths import narrow, widen


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
