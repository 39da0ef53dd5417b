"""Bounded influence of one client: clipping, and noise that hides it."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import require_positive
from neorl_core.federated._client_updates import (
    Aggregate,
    averaged,
    cleaned,
    distances,
    how_many,
    require_updates,
    usable,
)


def clip_update(update: Any, *, limit: float | Float[Array, ""]) -> Any:
    """Scales a whole update down to a Euclidean length of at most ``limit``.

    Args:
        update: A PyTree of one client.
        limit: Largest length, positive; NaN results under ``jit`` where it is not.

    Returns:
        The update, unchanged where it is short enough; all NaN where it holds a NaN or an infinity,
        since no scale would bound it.

    Raises:
        ValueError: If there is no array or a known ``limit`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> clip_update(jnp.array([3.0, 4.0]), limit=10.0).tolist()
        [3.0, 4.0]
        >>> clip_update(jnp.array([8.0, 0.0]), limit=2.0).tolist()
        [2.0, 0.0]
    """
    limit = require_positive("limit", limit)
    stacked = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], update)
    require_updates(stacked, 1, "clipping needs")
    return jax.tree.map(lambda leaf: leaf[0], _clipped(stacked, limit))


def private_mean(
    updates: Any,
    key: PRNGKeyArray,
    *,
    limit: float | Float[Array, ""],
    noise: float | Float[Array, ""],
) -> Aggregate:
    """The mean of clipped updates plus Gaussian noise: the Gaussian mechanism.

    ``(sum_i clip(u_i, limit) + N(0, (noise limit)^2)) / n``. What a client sends moves the sum by
    at most ``limit``, so ``noise`` is the multiplier that privacy accountants ask for.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        key: Random key.
        limit: Largest Euclidean length of an update, positive; NaN results under ``jit``
            where it is not.
        noise: Deviation of the noise in multiples of ``limit``, not negative; NaN results under
            ``jit`` where it is negative.

    Returns:
        The noisy mean over the clients with finite numbers.

    Raises:
        ValueError: If there is no client, leaves disagree about their number, or a known
            hyperparameter is out of range.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> updates = jnp.array([[3.0, 0.0], [1.0, 0.0]])
        >>> private_mean(updates, jax.random.key(0), limit=1.0, noise=0.0).value.tolist()
        [1.0, 0.0]

    Source: McMahan et al., Learning differentially private recurrent language models, arXiv
    1710.06963, algorithm 1 with a fixed number of clients.
    """
    require_updates(updates, 1, "a mean needs")
    limit = require_positive("limit", limit)
    noise = require_positive("noise", noise, or_zero=True)
    kept = usable(updates)
    mean = averaged(_clipped(cleaned(updates, kept), limit), kept)
    leaves, structure = jax.tree.flatten(mean)
    keys = jax.random.split(key, len(leaves))
    noisy = [
        leaf + _noise(one, leaf, limit, noise) / how_many(kept).astype(leaf.dtype)
        for leaf, one in zip(leaves, keys, strict=True)
    ]
    return Aggregate(jax.tree.unflatten(structure, noisy), kept)


def _clipped(updates: Any, limit: float | Array) -> Any:
    nothing = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), updates)
    length = distances(updates, nothing)
    limit = jnp.asarray(limit).astype(length.dtype)
    factor = jnp.where(length > limit, limit / jnp.where(length > limit, length, 1), 1)
    factor = jnp.where(jnp.isnan(limit) | ~usable(updates), jnp.nan, factor)
    return jax.tree.map(
        lambda leaf: leaf * factor.astype(leaf.dtype).reshape((-1,) + (1,) * (leaf.ndim - 1)),
        updates,
    )


def _noise(key: Array, leaf: Array, limit: float | Array, noise: float | Array) -> Array:
    scale = (jnp.asarray(limit) * jnp.asarray(noise)).astype(leaf.dtype)
    return scale * jax.random.normal(key, leaf.shape, leaf.dtype)
