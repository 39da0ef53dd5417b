"""Stacks of client updates as PyTrees: which are usable, and how far apart they are."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from neorl_core._internal.checks import checked_integer
from neorl_core._internal.precision import widen

FEW = 32
"""With more clients, compiling a sorting network takes longer than it saves."""

BLOCK = 2048
"""Number of coordinates whose distances are computed together."""


class Aggregate(NamedTuple):
    """One update that combines many.

    Attributes:
        value: A PyTree like one client's update; NaN if too few clients were usable.
        usable: Which clients were usable, shape ``(client,)``. A client with a NaN or an infinity
            anywhere is excluded from every rule.
    """

    value: Any
    usable: Bool[Array, " client"]


def require_updates(updates: Any, minimum: int, reason: str) -> int:
    """The number of clients; raises an error if there are too few or leaves disagree about it."""
    leaves = jax.tree.leaves(updates)
    if not leaves:
        raise ValueError("updates hold no array; stack the clients along the first axis")
    for leaf in leaves:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise ValueError(
                f"updates must be floating point, got a leaf of type {jnp.result_type(leaf)}; "
                "leave counters and keys out"
            )
    lengths = {jnp.shape(leaf)[:1] for leaf in leaves}
    if len(lengths) > 1 or () in lengths:
        raise ValueError(
            "every leaf of updates needs the clients along its first axis, got shapes "
            f"{sorted({jnp.shape(leaf) for leaf in leaves})}; "
            "stack the clients' updates with jax.tree.map and jnp.stack"
        )
    ((clients,),) = lengths
    if clients < minimum:
        raise ValueError(
            f"{reason}: {minimum} clients or more, got {clients}; add clients or choose another "
            "rule"
        )
    return clients


def require_byzantine(num_byzantine: int) -> int:
    """The number of faulty clients; raises an error unless it is an integer >= 0."""
    return checked_integer("num_byzantine", num_byzantine, 0, "give 0 for none")


def usable(updates: Any) -> Bool[Array, " client"]:
    """Which clients have only finite numbers."""
    flags = [
        jnp.all(jnp.isfinite(leaf).reshape(leaf.shape[0], -1), axis=1)
        for leaf in map(jnp.asarray, jax.tree.leaves(updates))
    ]
    return jnp.all(jnp.stack(flags), axis=0)


def count_true(clients: Bool[Array, " client"]) -> Int[Array, ""]:
    """Number of true entries, as int32 even if the default integer is wider."""
    return jnp.sum(clients, dtype=jnp.int32)


def remaining_faulty(valid: Bool[Array, " client"], faulty: int) -> Int[Array, ""]:
    """Number of valid clients that may still be faulty after some were excluded."""
    return jnp.maximum(faulty - count_true(~valid), 0)


def numbers(leaf: Array) -> Int[Array, "client *one"]:
    """Client indices 0, 1, ... along the first axis, with as many axes as the leaf."""
    return per_client(jnp.arange(leaf.shape[0], dtype=jnp.int32), leaf)


def zero_unusable(updates: Any, valid: Bool[Array, " client"]) -> Any:
    """The updates with zeros for the excluded clients."""
    return jax.tree.map(lambda leaf: jnp.where(per_client(valid, leaf), leaf, 0), updates)


def per_client(values: Array, leaf: Array) -> Array:
    """One value per client, with as many axes as the leaf."""
    return values.reshape(values.shape + (1,) * (jnp.ndim(leaf) - 1))


def weighted_sum(leaf: Array, weights: Shaped[Array, " client"]) -> Array:
    """``sum_i w_i u_i`` of one leaf, in float32 if the leaf has half precision."""
    wide = widen(leaf)
    weights = weights.astype(wide.dtype)
    if not 0 < wide.shape[0] <= FEW:
        return jnp.sum(per_client(weights, wide) * wide, axis=0)
    # Summing rows takes one pass through memory; summing along the first axis takes several.
    return functools.reduce(jnp.add, (weights[i] * row for i, row in enumerate(wide)))


def weighted_average(updates: Any, weights: Shaped[Array, " client"]) -> Any:
    """``sum_i w_i u_i / sum_i w_i``; NaN where the weights sum to zero."""

    def mean(leaf: Array) -> Array:
        total = weighted_sum(leaf, weights)
        return (total / jnp.sum(weights.astype(total.dtype))).astype(leaf.dtype)

    return jax.tree.map(mean, updates)


def distances(updates: Any, centre: Any) -> Float[Array, " client"]:
    """Euclidean distance of every client from one point; the squares cannot overflow."""
    differences = jax.tree.map(lambda leaf, at: widen(leaf) - widen(at)[None], updates, centre)
    joined = _join_leaves(differences)
    largest = jnp.max(jnp.abs(joined), axis=1, initial=0)
    scale = jnp.where(largest > 0, largest, 1)
    squares = jnp.sum((joined / scale[:, None]) ** 2, axis=1)
    return jnp.where(largest > 0, scale * jnp.sqrt(jnp.where(largest > 0, squares, 1)), 0)


def widest(updates: Any) -> jnp.dtype:
    """The widest dtype of the leaves, but at least float32."""
    dtypes = [widen(leaf).dtype for leaf in jax.tree.leaves(updates)]
    return max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits)


def squared_distances(updates: Any) -> Float[Array, "client client"]:
    """All squared distances from direct differences; expanding the square cancels late in training.

    Computed in blocks of coordinates, so that a block stays in the cache for all its pairs.
    """
    joined = _join_leaves(updates)
    blocks = joined.shape[1] // BLOCK
    rest = _squared_distances(joined[:, blocks * BLOCK :])
    if not blocks:
        return rest
    starts = BLOCK * jnp.arange(blocks, dtype=jnp.int32)
    return jax.lax.scan(_with_block, (joined, rest), starts)[0][1]


def _with_block(state: tuple[Array, Array], start: Array) -> tuple[tuple[Array, Array], None]:
    joined, total = state
    block = jax.lax.dynamic_slice_in_dim(joined, start, BLOCK, axis=1)
    return (joined, total + _squared_distances(block)), None


def _squared_distances(joined: Array) -> Array:
    return jax.lax.scan(_from_one, joined, joined)[1]


def _join_leaves(updates: Any) -> Float[Array, "client coordinate"]:
    """Every client as one row, in the widest dtype of the leaves, but at least float32."""
    flat = [
        leaf.astype(widest(updates)).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(updates)
    ]
    return jnp.concatenate(flat, axis=1)


def _from_one(all_clients: Array, client: Array) -> tuple[Array, Array]:
    return all_clients, jnp.sum((all_clients - client[None, :]) ** 2, axis=1)
