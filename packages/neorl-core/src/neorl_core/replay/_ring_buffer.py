"""A buffer of fixed capacity that overwrites its oldest rows, as pure functions."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_core._internal.checks import checked_integer


class RingBuffer(NamedTuple):
    """The last ``capacity`` rows that were pushed.

    Attributes:
        rows: A PyTree whose leaves have the capacity as first axis; unused slots hold zeros.
        next_slot: Slot of the next row, scalar int32.
        size: Number of slots in use, scalar int32.
    """

    rows: Any
    next_slot: Int[Array, ""]
    size: Int[Array, ""]


def ring_buffer(example: Any, *, capacity: int) -> RingBuffer:
    """An empty buffer.

    Args:
        example: One row: a PyTree of arrays, which gives the shapes and dtypes.
        capacity: Number of rows that the buffer holds.

    Returns:
        The buffer.

    Raises:
        ValueError: If ``capacity`` is not a positive integer.

    Example:
        >>> import jax.numpy as jnp
        >>> buffer = ring_push(ring_buffer(0.0, capacity=2), jnp.array([1.0, 2.0, 3.0]))
        >>> ring_order(buffer).tolist(), buffer.rows.tolist()
        ([1, 0], [3.0, 2.0])
    """
    capacity = checked_integer("capacity", capacity, 1, "give the number of rows that it holds")
    zero = jnp.zeros((), jnp.int32)
    return RingBuffer(jax.tree.map(lambda leaf: _slots(leaf, capacity), example), zero, zero)


def ring_push(buffer: RingBuffer, rows: Any) -> RingBuffer:
    """Appends rows, oldest first, replacing the oldest rows in the buffer.

    Args:
        buffer: Buffer to append to.
        rows: A PyTree like the example, with one more axis in front; may be empty. If there are
            more rows than the capacity, the last ones are kept.

    Returns:
        The new buffer.

    Raises:
        ValueError: If structure, shapes or dtypes differ from those of the example.

    Example:
        >>> import jax.numpy as jnp
        >>> ring_push(ring_buffer(0.0, capacity=2), jnp.array([1.0, 2.0, 3.0])).rows.tolist()
        [3.0, 2.0]
    """
    stored, capacity = jax.tree.leaves(buffer.rows), _capacity(buffer)
    _check_rows(buffer.rows, rows)
    count = jax.tree.leaves(rows)[0].shape[0] if stored else 0
    n_written = min(count, capacity)
    slots = (
        buffer.next_slot + (count - n_written) + jnp.arange(n_written, dtype=jnp.int32)
    ) % capacity
    written = jax.tree.map(
        lambda old, new: old.at[slots].set(new[count - n_written :]), buffer.rows, rows
    )
    size = jnp.minimum(buffer.size + count, capacity)
    return RingBuffer(written, (buffer.next_slot + count) % capacity, size)


def ring_order(buffer: RingBuffer) -> Int[Array, " slot"]:
    """The slots from the oldest row to the newest; -1 at the end for unused slots.

    Args:
        buffer: Any buffer.

    Returns:
        Array of int32, as long as the capacity.

    Example:
        >>> import jax.numpy as jnp
        >>> ring_order(ring_push(ring_buffer(0.0, capacity=3), jnp.ones(2))).tolist()
        [0, 1, -1]
    """
    capacity = _capacity(buffer)
    age = jnp.arange(capacity, dtype=jnp.int32)
    slots = (buffer.next_slot - buffer.size + age) % capacity
    return jnp.where(age < buffer.size, slots, -1)


def ring_sample(
    buffer: RingBuffer, key: PRNGKeyArray, *, batch: int
) -> tuple[Any, Int[Array, " batch"]]:
    """Samples rows uniformly with replacement.

    Args:
        buffer: Buffer to sample from.
        key: Random key.
        batch: Number of rows.

    Returns:
        The rows and their slots; for an empty buffer, zeros and slots of -1.

    Raises:
        ValueError: If ``batch`` is not an integer >= 0.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> buffer = ring_push(ring_buffer(0.0, capacity=9), jnp.array([5.0]))
        >>> rows, slots = ring_sample(buffer, jax.random.key(0), batch=2)
        >>> rows.tolist(), slots.tolist()
        ([5.0, 5.0], [0, 0])
    """
    batch = checked_integer("batch", batch, 0, "give the number of draws")
    slots = jax.random.randint(key, (batch,), 0, jnp.maximum(buffer.size, 1), jnp.int32)
    rows = jax.tree.map(lambda leaf: leaf[slots], buffer.rows)
    return rows, jnp.where(buffer.size > 0, slots, -1)


def _slots(leaf: Any, capacity: int) -> Array:
    leaf = jnp.asarray(leaf)
    return jnp.zeros((capacity, *leaf.shape), leaf.dtype)


def _capacity(buffer: RingBuffer) -> int:
    leaves = jax.tree.leaves(buffer.rows)
    if not leaves:
        raise ValueError("the buffer holds no array; make it from an example with one or more")
    return leaves[0].shape[0]


def _check_rows(stored: Any, rows: Any) -> None:
    if jax.tree.structure(stored) != jax.tree.structure(rows):
        raise ValueError(
            f"rows must have the structure {jax.tree.structure(stored)}, "
            f"got {jax.tree.structure(rows)}; push rows like the example"
        )
    leaves = jax.tree_util.tree_leaves_with_path(rows)
    counts = {np.shape(new)[:1] for _, new in leaves}
    for (path, new), old in zip(leaves, jax.tree.leaves(stored), strict=True):
        expected, actual = (old.shape[1:], old.dtype), (np.shape(new)[1:], jnp.result_type(new))
        if expected != actual or np.ndim(new) != old.ndim or len(counts) > 1:
            raise ValueError(
                f"rows{jax.tree_util.keystr(path)} must be (row, *{expected[0]}) of {expected[1]} "
                f"with as many rows in every leaf, got shape {np.shape(new)} of {actual[1]}; "
                "push rows like the example"
            )
