"""Which rows a training step sees: a function of the key and the number of the step alone."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int, PRNGKeyArray

from neorl_core._permutation import shuffled_position


def batch_indices(
    key: PRNGKeyArray, step: Int[ArrayLike, ""], n: int, batch: int
) -> Int[Array, " batch"]:
    """Rows of one step, drawn uniformly with replacement.

    Counter-based: the draw hangs on ``(key, step)`` only, so a position in the stream is a
    number, and resuming, prefetching or splitting over hosts changes nothing.

    Args:
        key: Of the whole run.
        step: Number of the step, from zero.
        n: Number of rows to draw from.
        batch: Number of rows to draw; zero gives an empty array.

    Returns:
        int32 indices in ``0 .. n - 1``.

    Raises:
        ValueError: If ``n`` is not from 1 to 2^31 - 1 or ``batch`` is negative.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> rows = batch_indices(jax.random.key(0), 7, 100, 4)
        >>> rows.shape, bool(jnp.all((rows >= 0) & (rows < 100)))
        ((4,), True)
    """
    _check(n, batch)
    return jax.random.randint(jax.random.fold_in(key, step), (batch,), 0, n, jnp.int32)


def epoch_indices(
    key: PRNGKeyArray, step: Int[ArrayLike, ""], n: int, batch: int
) -> Int[Array, " batch"]:
    """Rows of one step, without replacement within an epoch.

    An epoch is ``n // batch`` steps over a shuffle of its own (:func:`shuffled_position`); the
    last ``n % batch`` rows of that shuffle sit it out. Counter-based like :func:`batch_indices`.

    Args:
        key: Of the whole run.
        step: Number of the step, from zero, over all epochs.
        n: Number of rows.
        batch: Rows per step, from 1 to ``n``.

    Returns:
        int32 indices in ``0 .. n - 1``, none twice within an epoch.

    Raises:
        ValueError: If ``n`` is not from 1 to 2^31 - 1 or ``batch`` not from 1 to ``n``.

    Example:
        >>> import jax
        >>> first = epoch_indices(jax.random.key(0), 0, 4, 2)
        >>> second = epoch_indices(jax.random.key(0), 1, 4, 2)
        >>> sorted(first.tolist() + second.tolist())
        [0, 1, 2, 3]
    """
    _check(n, batch)
    if not 1 <= batch <= n:
        raise ValueError(
            f"batch must be from 1 to the {n} rows of an epoch, got {batch}; "
            "sample with batch_indices for larger ones"
        )
    steps = n // batch
    step = jnp.asarray(step)
    position = (step % steps) * batch + jnp.arange(batch, dtype=step.dtype)
    return shuffled_position(jax.random.fold_in(key, step // steps), position, n=n)


def _check(n: int, batch: int) -> None:
    if not 1 <= n < 2**31:
        raise ValueError(f"n must be from 1 to 2^31 - 1 rows, got {n}; split larger logs")
    if batch < 0:
        raise ValueError(f"batch must not be negative, got {batch}; give the rows of a batch")
