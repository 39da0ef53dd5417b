"""Bounding the influence of one client by clipping, and hiding it with noise."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import checked_positive
from neorl_core._internal.precision import widen
from neorl_core.federated._client_updates import (
    Aggregate,
    distances,
    per_client,
    require_updates,
    usable,
    weighted_sum,
    zero_unusable,
)


def clip_update(update: Any, *, clip_norm: float | Float[Array, ""]) -> Any:
    """Scales a whole update down to a Euclidean norm of at most ``clip_norm``.

    Args:
        update: The update of one client, a PyTree.
        clip_norm: Largest norm, positive; NaN results under ``jit`` if it is not.

    Returns:
        The update, unchanged if its norm is small enough; all NaN if it holds a NaN or an infinity,
        since no scale would bound it.

    Raises:
        ValueError: If there is no array or a concrete ``clip_norm`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> clip_update(jnp.array([3.0, 4.0]), clip_norm=10.0).tolist()
        [3.0, 4.0]
        >>> clip_update(jnp.array([8.0, 0.0]), clip_norm=2.0).tolist()
        [2.0, 0.0]
    """
    clip_norm = checked_positive("clip_norm", clip_norm)
    stacked = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], update)
    require_updates(stacked, 1, "clipping needs")
    return jax.tree.map(lambda leaf: leaf[0], _clip(stacked, clip_norm))


def private_mean(
    updates: Any,
    key: PRNGKeyArray,
    *,
    clip_norm: float | Float[Array, ""],
    noise_multiplier: float | Float[Array, ""],
    expected_clients: float | Float[Array, ""] | None = None,
) -> Aggregate:
    """The mean of clipped updates plus Gaussian noise: the Gaussian mechanism.

    ``(sum_i clip(u_i, clip_norm) + N(0, (noise_multiplier clip_norm)^2)) / n``. A client changes
    the sum by at most ``clip_norm`` and does not change ``n``, which is ``expected_clients`` or the
    number of clients in ``updates``, whatever they hold. A client with a NaN or an infinity adds
    nothing, and nothing replaces it. The noise does not protect ``usable``, which shows the usable
    clients.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        key: Random key.
        clip_norm: Largest Euclidean norm of an update, positive; NaN results under ``jit`` if it is
            not.
        noise_multiplier: Standard deviation of the noise in multiples of ``clip_norm``, the
            convention of privacy accountants, not negative; NaN results under ``jit`` if it is
            negative.
        expected_clients: Number of clients expected in a round, positive, fixed in advance:
            sampling probability times population if clients are sampled at random. NaN results
            under ``jit`` if it is not positive. ``None`` uses the number of clients in ``updates``.

    Returns:
        The noisy mean; only noise if no client is usable.

    Raises:
        ValueError: If there is no client, leaves disagree about their number, or a concrete
            hyperparameter is out of range.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> updates, key = jnp.array([[3.0, 0.0], [1.0, 0.0]]), jax.random.key(0)
        >>> private_mean(updates, key, clip_norm=1.0, noise_multiplier=0.0).value.tolist()
        [1.0, 0.0]

    Source: McMahan et al., Learning differentially private recurrent language models, arXiv
    1710.06963, algorithm 1 with the estimator of a fixed denominator.
    """
    clients = require_updates(updates, 1, "a mean needs")
    clip_norm = checked_positive("clip_norm", clip_norm)
    noise_multiplier = checked_positive("noise_multiplier", noise_multiplier, or_zero=True)
    if expected_clients is not None:
        clients = checked_positive("expected_clients", expected_clients)
    valid = usable(updates)
    clipped = _clip(zero_unusable(updates, valid), clip_norm)
    leaves, structure = jax.tree.flatten(clipped)
    keys = jax.random.split(key, len(leaves))

    def noisy(leaf: Array, key: Array) -> Array:
        total = weighted_sum(leaf, valid)
        scale = (jnp.asarray(clip_norm) * jnp.asarray(noise_multiplier)).astype(total.dtype)
        total = total + scale * jax.random.normal(key, total.shape, total.dtype)
        return (total / jnp.asarray(clients, total.dtype)).astype(leaf.dtype)

    means = [noisy(leaf, leaf_key) for leaf, leaf_key in zip(leaves, keys, strict=True)]
    return Aggregate(jax.tree.unflatten(structure, means), valid)


def _clip(updates: Any, clip_norm: float | Array) -> Any:
    zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), updates)
    length = distances(updates, zero)
    longest = jnp.asarray(clip_norm).astype(length.dtype)
    factor = jnp.where(length > longest, longest / jnp.where(length > longest, length, 1), 1)
    factor = jnp.where(jnp.isnan(longest) | ~usable(updates), jnp.nan, factor)

    def shorten(leaf: Array) -> Array:
        wide = widen(leaf)
        return (wide * per_client(factor.astype(wide.dtype), leaf)).astype(leaf.dtype)

    return jax.tree.map(shorten, updates)
