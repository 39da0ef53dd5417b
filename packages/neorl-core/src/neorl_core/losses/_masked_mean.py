"""The mean over the rows that count."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def masked_mean(x: Float[Array, "*batch"], mask: Bool[Array, "*batch"] | None) -> Float[Array, ""]:
    """The mean of the elements of ``x`` where ``mask`` is true.

    Args:
        x: Any shape. Elements that do not count may be NaN or infinite; they reach neither the
            value nor the gradient with respect to ``x``. The gradient with respect to what ``x``
            was computed from is another matter: the zero that arrives at such an element meets its
            derivative, and 0 * NaN is NaN. Take NaN out before the loss.
        mask: Same shape; ``None`` counts every element.

    Returns:
        Scalar; zero where nothing counts.

    Raises:
        ValueError: If the shapes differ.

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
    if mask is None:
        return jnp.mean(x) if jnp.size(x) else jnp.zeros((), jnp.asarray(x).dtype)
    if jnp.shape(mask) != jnp.shape(x):
        raise ValueError(
            f"mask must have the shape of x, got {jnp.shape(mask)} for {jnp.shape(x)}; broadcast it"
        )
    count = jnp.maximum(jnp.sum(mask), 1).astype(x.dtype)
    return jnp.sum(jnp.where(mask, x, 0)) / count
