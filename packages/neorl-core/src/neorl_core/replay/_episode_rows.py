"""Episode starts in a flat log, and windows of rows that stay inside an episode."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Int

from neorl_core._internal.checks import booleans, checked_integer, require_rank, require_same_shape


def episode_first_rows(
    terminated: Bool[ArrayLike, " time"], truncated: Bool[ArrayLike, " time"]
) -> Int[Array, " time"]:
    """For every row of a flat log, the index of the first row of its episode.

    Row 0 begins an episode, and so does every row after one that is ``terminated | truncated``. A
    row is the first of its episode if the result equals its own index.

    Args:
        terminated: One flag per row; may be empty.
        truncated: One flag per row.

    Returns:
        Row indices, int32.

    Raises:
        ValueError: If the shapes differ or there is not exactly one axis.

    Example:
        >>> import jax.numpy as jnp
        >>> ends = jnp.array([False, True, False, False])
        >>> episode_first_rows(ends, jnp.zeros(4, bool)).tolist()
        [0, 0, 2, 2]
    """
    require_same_shape("terminated", terminated, "truncated", truncated)
    require_rank("terminated", terminated, 1, "time")
    ends = booleans(terminated) | booleans(truncated)
    rows = jnp.arange(ends.shape[0], dtype=jnp.int32)
    starts = jnp.concatenate([jnp.ones(1, bool), ends])[: ends.shape[0]]
    return jax.lax.cummax(jnp.where(starts, rows, 0))


def window_rows(
    row: Int[ArrayLike, ""], first_row: Int[ArrayLike, ""], *, length: int
) -> tuple[Int[Array, " window"], Bool[Array, " window"]]:
    """The rows of the last ``length`` steps up to a row, within its episode.

    Args:
        row: Newest row of the window.
        first_row: First row of its episode (:func:`episode_first_rows`).
        length: Number of steps.

    Returns:
        ``(rows, mask)``: the row indices with which to gather from the log, newest last. Where the
        mask is false, the episode has no such step and the index is ``first_row``.

    Raises:
        ValueError: If ``length`` is not a positive integer.

    Example:
        >>> rows, mask = window_rows(3, 2, length=3)
        >>> rows.tolist(), mask.tolist()
        ([2, 2, 3], [False, True, True])
    """
    length = checked_integer("length", length, 1, "give the number of rows of a window")
    row, first_row = jnp.asarray(row), jnp.asarray(first_row)
    rows = row - jnp.arange(length - 1, -1, -1, dtype=row.dtype)
    mask = rows >= first_row
    return jnp.where(mask, rows, first_row.astype(row.dtype)), mask
