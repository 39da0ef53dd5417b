"""Sampling in proportion to changing priorities: a binary tree of sums."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, DTypeLike, Float, Int, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_integer,
    checked_positive,
    checked_probability,
    floats,
    require_integers,
    require_rank,
)


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
