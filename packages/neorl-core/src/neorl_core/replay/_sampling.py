"""Rows of a training step, as a function of only the key and the number of the step."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int, PRNGKeyArray

from neorl_core._internal.checks import checked_integer, is_concrete, require_integers


def batch_indices(
    key: PRNGKeyArray, step: Int[ArrayLike, ""], n: int, batch: int
) -> Int[Array, " batch"]:
    """Rows of one step, sampled uniformly with replacement.

    Counter-based: the result depends on ``(key, step)`` only. A position in the stream is therefore
    a number, and resuming, prefetching or splitting over hosts does not change the rows.

    Args:
        key: Random key of the whole run.
        step: Number of the step, from 0 to 2^32 - 1.
        n: Number of rows to sample from.
        batch: Number of rows to sample; zero gives an empty array.

    Returns:
        Indices in ``0 .. n - 1``, int32; -1 under ``jit`` if ``step`` is out of range.

    Raises:
        ValueError: If ``n`` is not from 1 to 2^31 - 1, ``batch`` is negative, one of the three is
            not an integer, or a concrete ``step`` is out of range.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> rows = batch_indices(jax.random.key(0), 7, 100, 4)
        >>> rows.shape, bool(jnp.all((rows >= 0) & (rows < 100)))
        ((4,), True)
    """
    n, batch = _check(n, batch)
    inside = _check_step(step, 2**32)
    rows = jax.random.randint(jax.random.fold_in(key, step), (batch,), 0, n, jnp.int32)
    return rows if inside is True else jnp.where(inside, rows, -1)


def _check(n: int, batch: int) -> tuple[int, int]:
    n, batch = checked_integer("n", n), checked_integer("batch", batch)
    if not 1 <= n < 2**31:
        raise ValueError(f"n must be from 1 to 2^31 - 1 rows, got {n}; split larger logs")
    if batch < 0:
        raise ValueError(f"batch must not be negative, got {batch}; give the rows of a batch")
    return n, batch


def _check_step(step: ArrayLike, end: int) -> bool | Array:
    """Whether the step lies in ``0 .. end - 1``; if concrete, raises an error unless it does."""
    require_integers("step", step)
    if not is_concrete(step):
        number = jnp.asarray(step)
        if jnp.iinfo(number.dtype).max < end:
            return number >= 0
        return (number >= 0) & (number < jnp.asarray(end, number.dtype))
    if not 0 <= int(np.asarray(step)) < end:
        raise ValueError(
            f"step must be from 0 to {end - 1}, got {step}; start again from 0 with another key"
        )
    return True
