"""Selecting the past rows that a training step uses."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, DTypeLike, Float, Int, PRNGKeyArray

from neorl_core._internal.checks import (
    booleans,
    checked_integer,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    require_integers,
    require_rank,
    require_same_shape,
)
from neorl_core._internal.missing_names import missing_name

__all__ = [
    "PrioritySample",
    "PriorityTree",
    "RingBuffer",
    "batch_indices",
    "episode_first_rows",
    "priority_tree",
    "priority_weights",
    "ring_buffer",
    "ring_order",
    "ring_push",
    "ring_sample",
    "sample_priorities",
    "set_priorities",
    "window_rows",
]
globals()["__getattr__"] = missing_name(__name__, __all__)

# Rows of a training step, as a function of only the key and the number of the step.


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


# Episode starts in a flat log, and windows of rows that stay inside an episode.


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


# A buffer of fixed capacity that overwrites its oldest rows, as pure functions.


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


# Sampling in proportion to changing priorities: a binary tree of sums.


class PriorityTree(NamedTuple):
    """Priorities and their sums, stored as one heap.

    Attributes:
        sums: Node ``i`` holds the sum of nodes ``2 i`` and ``2 i + 1``; node 1 is the total, and
            the second half holds the priorities of the items. Node 0 is unused. Shape ``(2
            leaves,)``, with the number of leaves a power of two.
        capacity: Number of leaves that are items, scalar int32.
    """

    sums: Float[Array, " node"]
    capacity: Int[Array, ""]


class PrioritySample(NamedTuple):
    """Items sampled in proportion to their priorities.

    Attributes:
        items: Indices, int32; -1 if nothing can be sampled because no priority is positive, or one
            was NaN, negative or infinite.
        probabilities: Probability of each sampled item in one draw; 0 if nothing could be sampled.
    """

    items: Int[Array, " batch"]
    probabilities: Float[Array, " batch"]


def priority_tree(capacity: int, dtype: DTypeLike = jnp.float32) -> PriorityTree:
    """A tree with all priorities zero.

    Args:
        capacity: Number of items.
        dtype: Dtype of the priorities.

    Returns:
        The tree.

    Raises:
        ValueError: If ``capacity`` is not a positive integer.

    Example:
        >>> priority_tree(3).sums.shape
        (8,)
    """
    capacity = checked_integer("capacity", capacity, 1, "give the number of items that it holds")
    sums = jnp.zeros(2 << (capacity - 1).bit_length(), dtype)
    return PriorityTree(sums, jnp.asarray(capacity, jnp.int32))


def set_priorities(
    tree: PriorityTree,
    items: Int[ArrayLike, " batch"],
    priorities: Float[ArrayLike, " batch"],
) -> PriorityTree:
    """Replaces the priorities of some items: ``O(batch log n)``.

    Args:
        tree: Priorities before the change.
        items: Indices from 0 to ``capacity - 1``; others have no effect. If an item occurs twice,
            the larger priority is kept.
        priorities: New priorities, not negative. A negative one becomes NaN, which sampling
            reports.

    Returns:
        The new tree. Every sum is recomputed from its two parts, so there is no drift.

    Raises:
        ValueError: If both do not have one axis of the same length, or an item is not an integer.

    Example:
        >>> import jax.numpy as jnp
        >>> tree = set_priorities(priority_tree(4), jnp.array([1, 3]), jnp.array([1.0, 3.0]))
        >>> float(tree.sums[1])
        4.0

    Source: Schaul et al., Prioritized experience replay, arXiv 1511.05952, appendix B.2.1.
    """
    require_integers("items", items)
    items = jnp.asarray(items).astype(jnp.int32)
    priorities = jnp.asarray(priorities, tree.sums.dtype)
    require_rank("items", items, 1, "batch")
    if items.shape != priorities.shape:
        raise ValueError(
            f"items and priorities must agree, got shapes {items.shape} and {priorities.shape}; "
            "give one priority per item"
        )
    nodes, leaves = tree.sums.shape[0], tree.sums.shape[0] // 2
    inside = (items >= 0) & (items < tree.capacity)
    node = jnp.where(inside, items + leaves, nodes)
    priorities = jnp.where(priorities >= 0, priorities, jnp.nan)
    sums = tree.sums.at[node].set(0, mode="drop").at[node].max(priorities, mode="drop")
    for _ in range(leaves.bit_length() - 1):
        node = jnp.where(inside, node // 2, nodes)
        both = jnp.take(sums, 2 * node, mode="clip") + jnp.take(sums, 2 * node + 1, mode="clip")
        sums = sums.at[node].set(both, mode="drop")
    return tree._replace(sums=sums)


def sample_priorities(tree: PriorityTree, key: PRNGKeyArray, *, batch: int) -> PrioritySample:
    """Samples items with probabilities proportional to their priorities, stratified.

    The total is divided into ``batch`` equal parts and one point is sampled in each, so an item of
    probability ``p`` occurs ``batch p`` times to within two. Takes ``O(batch log n)``. An item of
    priority zero is never sampled.

    Args:
        tree: Tree of priorities.
        key: Random key.
        batch: Number of samples.

    Returns:
        The items, in increasing order, and their probabilities.

    Raises:
        ValueError: If ``batch`` is not a positive integer.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> tree = set_priorities(priority_tree(3), jnp.array([0, 2]), jnp.array([1.0, 1.0]))
        >>> sample_priorities(tree, jax.random.key(0), batch=2).items.tolist()
        [0, 2]

    Source: Schaul et al., Prioritized experience replay, arXiv 1511.05952, appendix B.2.1.
    """
    batch = checked_integer("batch", batch, 1, "give the number of draws")
    sums, leaves = tree.sums, tree.sums.shape[0] // 2
    total = sums[1]
    valid = (total > 0) & jnp.isfinite(total)
    spread = jax.random.uniform(key, (batch,), sums.dtype)
    point = (jnp.arange(batch, dtype=sums.dtype) + spread) / batch * jnp.where(valid, total, 0)
    node = jnp.ones(batch, jnp.int32)
    for _ in range(leaves.bit_length() - 1):
        left, right = sums[2 * node], sums[2 * node + 1]
        go_right = (right > 0) & ((point >= left) | (left <= 0))
        point = jnp.where(go_right, point - left, point)
        node = 2 * node + go_right.astype(jnp.int32)
    probability = sums[node] / jnp.where(valid, total, 1)
    return PrioritySample(jnp.where(valid, node - leaves, -1), jnp.where(valid, probability, 0))


def priority_weights(
    probabilities: Float[ArrayLike, " batch"], *, size: ArrayLike, exponent: ArrayLike
) -> Float[Array, " batch"]:
    """Importance weights of prioritised samples: ``(size p)^-exponent`` divided by the largest.

    Args:
        probabilities: Probabilities of the sampled items, positive; the weight is 0 for a
            probability of 0.
        size: Number of items in the buffer, positive; NaN results under ``jit`` if it is not.
        exponent: 0 for no correction, 1 for a full one; NaN results under ``jit`` if it is outside
            [0, 1].

    Returns:
        Weights in [0, 1], of which the largest is 1.

    Raises:
        ValueError: If there is not exactly one axis, or a concrete ``size`` or ``exponent`` is out
            of range.

    Example:
        >>> import jax.numpy as jnp
        >>> priority_weights(jnp.array([0.5, 0.25]), size=4, exponent=1.0).tolist()
        [0.5, 1.0]

    Source: Schaul et al., Prioritized experience replay, arXiv 1511.05952, section 3.4.
    """
    require_rank("probabilities", probabilities, 1, "batch")
    size = checked_positive("size", size)
    exponent = checked_probability("exponent", exponent, closed=True)
    p = floats(probabilities)
    drawn = p > 0
    size, exponent = jnp.asarray(size, p.dtype), jnp.asarray(exponent, p.dtype)
    weights = jnp.where(drawn, (size * jnp.where(drawn, p, 1)) ** -exponent, 0)
    undefined = size + exponent  # because 1^NaN and NaN^0 are 1
    weights = jnp.where(jnp.isnan(undefined), undefined, weights)
    largest = jnp.max(weights, initial=0)
    return weights / jnp.where(largest > 0, largest, 1)
