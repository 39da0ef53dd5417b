"""Aggregation rules that treat each coordinate separately."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_core._internal.checks import checked_positive, floats
from neorl_core._internal.float_widths import widen
from neorl_core.federated._client_updates import (
    Aggregate,
    count_true,
    numbers,
    per_client,
    remaining_faulty,
    require_byzantine,
    require_updates,
    usable,
    weighted_average,
    zero_unusable,
)
from neorl_core.federated._ordering import in_order, running_count


def weighted_mean(updates: Any, weights: Float[Array, " client"] | None = None) -> Aggregate:
    """Federated averaging: ``sum_i n_i u_i / sum_i n_i``.

    One faulty client can move it anywhere, unlike the other rules of this family.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        weights: One weight per client, not negative, for example its number of rows; equal if
            ``None``. NaN results under ``jit`` if one is negative.

    Returns:
        The mean over the clients with finite numbers, in each leaf's dtype.

    Raises:
        ValueError: If there is no client, leaves disagree about the number of clients, or
            ``weights`` has another length or contains a concrete value that is negative or not
            finite.

    Example:
        >>> import jax.numpy as jnp
        >>> result = weighted_mean(jnp.array([1.0, 4.0, jnp.nan]), jnp.array([2.0, 1.0, 5.0]))
        >>> float(result.value), result.usable.tolist()
        (2.0, [True, True, False])

    Source: McMahan et al., Communication-efficient learning of deep networks from decentralized
    data, arXiv 1602.05629.
    """
    clients = require_updates(updates, 1, "a mean needs")
    weights = jnp.ones(clients) if weights is None else floats(weights)
    if weights.shape != (clients,):
        raise ValueError(
            f"weights must have shape ({clients},), got {weights.shape}; give one weight per client"
        )
    client_weights = checked_positive("weights", weights, or_zero=True, many=True)
    valid = usable(updates)
    return Aggregate(
        weighted_average(zero_unusable(updates, valid), jnp.where(valid, client_weights, 0)), valid
    )


def coordinate_median(updates: Any) -> Aggregate:
    """The median of every coordinate: robust while fewer than half of the clients are faulty.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.

    Returns:
        The median over the clients with finite numbers.

    Raises:
        ValueError: If there is no client or leaves disagree about their number.

    Example:
        >>> import jax.numpy as jnp
        >>> float(coordinate_median(jnp.array([1.0, 2.0, 1e30])).value)
        2.0

    Source: Yin et al., Byzantine-robust distributed learning, arXiv 1803.01498.
    """
    require_updates(updates, 1, "a median needs")
    valid = usable(updates)
    count = count_true(valid)
    middle = jax.tree.map(lambda leaf: masked_median(leaf, valid, count), updates)
    return Aggregate(middle, valid)


def trimmed_mean(updates: Any, *, num_byzantine: int) -> Aggregate:
    """The mean of every coordinate without its ``num_byzantine`` largest and smallest values.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        num_byzantine: How many clients may be faulty, in any way; more than twice as many clients
            are needed. Clients excluded because of NaNs count towards it.

    Returns:
        The trimmed mean over the clients with finite numbers.

    Raises:
        ValueError: If there are not more than ``2 num_byzantine`` clients, leaves disagree about
            their number, or ``num_byzantine`` is not an integer >= 0.

    Example:
        >>> import jax.numpy as jnp
        >>> float(trimmed_mean(jnp.array([1.0, 2.0, 3.0, -1e30]), num_byzantine=1).value)
        1.5

    Source: Yin et al., Byzantine-robust distributed learning, arXiv 1803.01498.
    """
    faulty = require_byzantine(num_byzantine)
    require_updates(updates, 2 * faulty + 1, f"trimming {faulty} at each end needs")
    valid = usable(updates)
    trim, count = remaining_faulty(valid, faulty), count_true(valid)

    def mean(leaf: Array) -> Array:
        rank = numbers(leaf)
        inside = (rank >= trim) & (rank < count - trim)
        return _mean_where(sorted_values(leaf, valid), inside)

    return Aggregate(jax.tree.map(mean, updates), valid)


def masked_median(leaf: Array, mask: Bool[Array, " client"], count: Int[Array, ""]) -> Array:
    """The median of every coordinate over the clients of the mask; NaN if there are none."""
    ordered = sorted_values(leaf, mask)
    low, high = jnp.maximum(count - 1, 0) // 2, count // 2
    middle = ordered[low] / 2 + ordered[jnp.minimum(high, leaf.shape[0] - 1)] / 2
    return jnp.where(count > 0, middle, jnp.nan)


def mean_near_median(
    leaf: Array, mask: Bool[Array, " client"], count: Int[Array, ""], n_nearest: Int[Array, ""]
) -> Array:
    """The mean of the ``n_nearest`` values nearest to the median, for each coordinate."""
    middle = masked_median(leaf, mask, count)
    distance = jnp.where(per_client(mask, leaf), jnp.abs(leaf - middle[None]), jnp.inf)
    bound = in_order(distance)[jnp.maximum(n_nearest, 1) - 1][None]
    closer, level = distance < bound, distance == bound
    # Of several at the same distance, take the first clients.
    remaining = n_nearest - jnp.sum(closer, axis=0, dtype=jnp.int32)
    first = running_count(level) <= remaining[None]
    return _mean_where(leaf, closer | (level & first))


def sorted_values(leaf: Array, valid: Bool[Array, " client"]) -> Array:
    """Every coordinate in increasing order, with the excluded clients last."""
    return in_order(jnp.where(per_client(valid, leaf), leaf, jnp.inf))


def _mean_where(values: Array, mask: Bool[Array, "client *one"]) -> Array:
    mask, wide = jnp.broadcast_to(mask, values.shape), widen(values)
    count = jnp.sum(mask, axis=0).astype(wide.dtype)
    mean = jnp.sum(jnp.where(mask, wide, 0), axis=0) / count
    return mean.astype(values.dtype)
