"""Aggregation rules that bound what a few hostile clients can do."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from neorl_core._internal.checks import (
    checked_integer,
    checked_positive,
    floats,
    like,
    require_same_shape,
)
from neorl_core._internal.precision import widen
from neorl_core.federated._client_updates import (
    FEW,
    Aggregate,
    count_true,
    distances,
    numbers,
    per_client,
    remaining_faulty,
    require_byzantine,
    require_updates,
    squared_distances,
    usable,
    weighted_average,
    weighted_sum,
    widest,
    zero_unusable,
)

# Sorting every coordinate over a few clients, by a network that compiles to a single loop.


def in_order(values: Shaped[Array, "client *shape"]) -> Shaped[Array, "client *shape"]:
    """The values in increasing order along the first axis; NaN is not allowed.

    On a CPU, XLA sorts by calling its comparison for every pair of every coordinate. A fixed
    sequence of minima and maxima over whole rows takes a tenth of the time.

    Source: Batcher, Sorting networks and their applications, 1968 (odd-even merge sort).
    """
    if not 0 < values.shape[0] <= FEW:
        return jnp.sort(values, axis=0)
    rows = list(values)
    for i, j in _comparators(len(rows)):
        rows[i], rows[j] = jnp.minimum(rows[i], rows[j]), jnp.maximum(rows[i], rows[j])
    return jnp.stack(rows)


def running_count(flags: Bool[Array, "client *shape"]) -> Int[Array, "client *shape"]:
    """Number of true entries up to each position, along the first axis."""
    if not 0 < flags.shape[0] <= FEW:
        return jnp.cumsum(flags, axis=0, dtype=jnp.int32)
    return jnp.stack(list(itertools.accumulate(flags.astype(jnp.int32))))


@functools.cache
def _comparators(count: int) -> tuple[tuple[int, int], ...]:
    """The pairs to compare, in order, that sort ``count`` rows."""
    pairs, merged = [], 1
    while merged < count:
        distance = merged
        while distance >= 1:
            for start in range(distance % merged, count - distance, 2 * distance):
                for first in range(start, start + min(distance, count - start - distance)):
                    if first // (2 * merged) == (first + distance) // (2 * merged):
                        pairs.append((first, first + distance))
            distance //= 2
        merged *= 2
    return tuple(pairs)


# Aggregation rules that treat each coordinate separately.


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


# Aggregation rules that select whole clients by their distances from each other.


def krum(updates: Any, *, num_byzantine: int) -> Aggregate:
    """Selects the client nearest to its ``n - f - 2`` nearest clients, with ``f = num_byzantine``.

    The score of a client is the sum of its squared distances to those. The lowest score wins; of
    two equal scores, the earlier client does.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        num_byzantine: How many clients may be faulty, in any way; ``2 f + 3`` are needed. Clients
            excluded because of NaNs count towards it.

    Returns:
        The selected client's update.

    Raises:
        ValueError: If there are too few clients, leaves disagree about their number, or
            ``num_byzantine`` is not an integer >= 0.

    Example:
        >>> import jax.numpy as jnp
        >>> float(krum(jnp.array([0.0, 1.0, 1.1, 1.2, 99.0]), num_byzantine=1).value)
        1.100000023841858

    Source: Blanchard et al., Machine learning with adversaries, NeurIPS 2017.
    """
    return multi_krum(updates, num_byzantine=num_byzantine, selected=1)


def multi_krum(updates: Any, *, num_byzantine: int, selected: int) -> Aggregate:
    """The mean of the ``selected`` clients with the lowest Krum scores.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        num_byzantine: How many clients may be faulty, in any way; ``2 f + 3`` are needed.
        selected: How many clients are averaged, from 1 to the number of clients; at most ``n - f``
            of them are sure to be honest.

    Returns:
        The mean of the selected clients; of all usable ones if they are fewer than ``selected``.

    Raises:
        ValueError: If there are too few clients, leaves disagree about their number,
            ``num_byzantine`` is not an integer >= 0 or ``selected`` is out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> updates = jnp.array([1.0, 2.0, 3.0, 2.0, 1e30])
        >>> float(multi_krum(updates, num_byzantine=1, selected=4).value)
        2.0

    Source: Blanchard et al., Machine learning with adversaries, NeurIPS 2017.
    """
    faulty = require_byzantine(num_byzantine)
    clients = require_updates(updates, 2 * faulty + 3, f"Krum against {faulty} faulty needs")
    selected = checked_integer("selected", selected)
    if not 1 <= selected <= clients:
        raise ValueError(
            f"selected must be from 1 to the {clients} clients, got {selected}; "
            "select fewer, or one by krum"
        )
    valid = usable(updates)
    updates = zero_unusable(updates, valid)
    scores = _scores(squared_distances(updates), valid, remaining_faulty(valid, faulty))
    rank = jnp.argsort(jnp.argsort(scores))
    selected_clients = valid & (rank < selected)
    if selected > 1:
        return Aggregate(weighted_average(updates, selected_clients), valid)
    best = jnp.argmax(selected_clients)
    single = jax.tree.map(lambda leaf: jnp.where(jnp.any(valid), leaf[best], jnp.nan), updates)
    return Aggregate(single, valid)


def bulyan(updates: Any, *, num_byzantine: int) -> Aggregate:
    """Krum followed by trimming, so that no single coordinate is controlled by a faulty client.

    With ``f = num_byzantine``, Krum selects ``n - 2 f`` clients one after the other, each time
    among those not selected yet. Every coordinate is then the mean of the ``n - 4 f`` selected
    values nearest to their median.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        num_byzantine: How many clients may be faulty, in any way; ``4 f + 3`` are needed. Clients
            excluded because of NaNs count towards it.

    Returns:
        The aggregate.

    Raises:
        ValueError: If there are too few clients, leaves disagree about their number, or
            ``num_byzantine`` is not an integer >= 0.

    Example:
        >>> import jax.numpy as jnp
        >>> updates = jnp.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1e30])
        >>> float(bulyan(updates, num_byzantine=1).value)
        1.6666666269302368

    Source: El Mhamdi, Guerraoui and Rouault, The hidden vulnerability of distributed learning in
    Byzantium, arXiv 1802.07927.
    """
    faulty = require_byzantine(num_byzantine)
    clients = require_updates(updates, 4 * faulty + 3, f"Bulyan against {faulty} faulty needs")
    valid = usable(updates)
    updates = zero_unusable(updates, valid)
    n_faulty, count = remaining_faulty(valid, faulty), count_true(valid)
    target_count = count - 2 * n_faulty
    start = _Choice(
        squared_distances(updates), valid, jnp.zeros(clients, bool), n_faulty, target_count
    )
    choice, _ = jax.lax.scan(_choose_next, start, None, length=clients)
    value = jax.tree.map(
        lambda leaf: mean_near_median(
            leaf, choice.selected_clients, target_count, target_count - 2 * n_faulty
        ),
        updates,
    )
    return Aggregate(value, valid)


class _Choice(NamedTuple):
    squared: Float[Array, "client client"]
    remaining: Bool[Array, " client"]
    selected_clients: Bool[Array, " client"]
    faulty: Int[Array, ""]
    target_count: Int[Array, ""]


def _choose_next(state: _Choice, _: None) -> tuple[_Choice, None]:
    best = jnp.argmin(_scores(state.squared, state.remaining, state.faulty))
    more = count_true(state.selected_clients) < state.target_count
    newly_selected = (jnp.arange(state.remaining.shape[0]) == best) & more
    return state._replace(
        remaining=state.remaining & ~newly_selected,
        selected_clients=state.selected_clients | newly_selected,
    ), None


def _scores(
    squared: Float[Array, "client client"],
    present: Bool[Array, " client"],
    faulty: Int[Array, ""],
) -> Float[Array, " client"]:
    """Krum scores among the clients present; infinite for the others."""
    clients = present.shape[0]
    other = present[:, None] & present[None, :] & ~jnp.eye(clients, dtype=bool)
    nearest = jnp.sort(jnp.where(other, squared, jnp.inf), axis=1)
    neighbours = jnp.maximum(count_true(present) - faulty - 2, 1)
    counted = jnp.arange(clients, dtype=jnp.int32)[None, :] < neighbours
    scores = jnp.sum(jnp.where(counted, nearest, 0), axis=1)
    # Keep a present client ahead of an absent one, however far away it is.
    largest = jnp.finfo(squared.dtype).max
    return jnp.where(present, jnp.minimum(scores, largest), jnp.inf)


# Aggregation rules that find a centre iteratively.


def geometric_median(updates: Any, *, iterations: int = 64) -> Aggregate:
    """The point with the smallest total distance to the clients; robust if under half are faulty.

    Weiszfeld's iteration from the coordinate median, with the step of Vardi and Zhang where it
    meets a client. It is equivariant under rotations, unlike the coordinate median.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        iterations: Fixed number of steps.

    Returns:
        The median over the clients with finite numbers. Not differentiable.

    Raises:
        ValueError: If there is no client, leaves disagree about their number, or ``iterations``
            is not a positive integer.

    Example:
        >>> import jax.numpy as jnp
        >>> corners = jnp.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [1.0, 1.0]])
        >>> geometric_median(corners).value.tolist()
        [1.0, 1.0]

    Source: Vardi and Zhang, The multivariate L1-median and associated data depth, 2000; Pillutla,
    Kakade and Harchaoui, Robust aggregation for federated learning, arXiv 1912.13445.
    """
    require_updates(updates, 1, "a geometric median needs")
    iterations = checked_integer("iterations", iterations, 1, "give the number of steps")
    valid = usable(updates)
    wide = jax.tree.map(widen, zero_unusable(updates, valid))
    count = count_true(valid)
    centre = jax.tree.map(lambda leaf: masked_median(leaf, valid, count), wide)
    start = (centre, wide, valid)
    (centre, _, _), _ = jax.lax.scan(_towards_median, start, None, length=iterations)
    return Aggregate(jax.tree.map(like, centre, updates), valid)


def _towards_median(state: tuple, _: None) -> tuple[tuple, None]:
    centre, updates, valid = state
    distance = distances(updates, centre)
    coincident = valid & (distance == 0)
    weights = jnp.where(valid & ~coincident, 1 / jnp.where(distance > 0, distance, 1), 0)
    total = jnp.sum(weights)
    goal = weighted_average(updates, jnp.where(total > 0, weights, valid.astype(weights.dtype)))
    # Compares the pull of the other clients with the weight of those at this point.
    pull = jnp.sum(distances(jax.tree.map(lambda leaf: leaf[None], goal), centre)) * total
    n_coincident = count_true(coincident).astype(pull.dtype)
    stay = jnp.where(
        n_coincident > 0, jnp.minimum(1, n_coincident / jnp.where(pull > 0, pull, 1)), 0
    )
    stay = jnp.where((n_coincident > 0) & (pull <= 0), 1, stay)
    updated = jax.tree.map(
        lambda new, old: (1 - stay.astype(new.dtype)) * new + stay.astype(new.dtype) * old,
        goal,
        centre,
    )
    return (updated, updates, valid), None


def centred_clipping(
    updates: Any,
    centre: Any,
    *,
    radius: float | Float[Array, ""],
    iterations: int = 3,
) -> Aggregate:
    """Adds to a centre the mean of the clients' differences from it, each clipped to a length.

    ``v <- v + mean_i (u_i - v) min(1, radius / |u_i - v|)``: a client moves the centre by no more
    than ``radius / n`` in one step, whatever it sends.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        centre: Starting point, such as the last aggregate, shaped like one client's update.
        radius: Length to which a difference is clipped, positive; choose the spread of honest
            clients. NaN results under ``jit`` if it is not positive.
        iterations: Number of steps.

    Returns:
        The centre after the last step; the start itself if no client was usable.

    Raises:
        ValueError: If there is no client, leaves disagree about their number or with ``centre``, a
            concrete ``radius`` is not positive or ``iterations`` is not a positive integer.

    Example:
        >>> import jax.numpy as jnp
        >>> updates = jnp.array([1.0, 1.0, 1e30])
        >>> centred_clipping(updates, jnp.array(0.0), radius=1.0, iterations=1).value
        Array(1., dtype=float32)

    Source: Karimireddy, He and Jaggi, Learning from history for Byzantine robust optimization,
    arXiv 2012.10333.
    """
    require_updates(updates, 1, "clipping needs")
    radius = checked_positive("radius", radius)
    iterations = checked_integer("iterations", iterations, 1, "give the number of steps")
    _require_centre(updates, centre)
    valid = usable(updates)
    wide = jax.tree.map(widen, zero_unusable(updates, valid))
    radius = jnp.asarray(radius).astype(widest(updates))
    start = (jax.tree.map(like, centre, wide), wide, valid, radius)
    (last, *_), _ = jax.lax.scan(_clipped_step, start, None, length=iterations)
    return Aggregate(jax.tree.map(like, last, updates), valid)


def _clipped_step(state: tuple, _: None) -> tuple[tuple, None]:
    centre, updates, valid, radius = state
    distance = distances(updates, centre)
    step_size = jnp.where(distance > radius, radius / jnp.where(distance > radius, distance, 1), 1)
    step_size = step_size / jnp.maximum(count_true(valid), 1).astype(step_size.dtype)
    step_size = jnp.where(jnp.isnan(radius), radius, jnp.where(valid, step_size, 0))
    updated = jax.tree.map(
        lambda leaf, old: old + weighted_sum(leaf - old[None], step_size), updates, centre
    )
    return (updated, updates, valid, radius), None


def _require_centre(updates: Any, centre: Any) -> None:
    if jax.tree.structure(updates) != jax.tree.structure(centre):
        raise ValueError(
            f"centre must have the structure of one update, {jax.tree.structure(updates)}, "
            f"got {jax.tree.structure(centre)}; take the last aggregate's value"
        )
    for leaf, middle in zip(jax.tree.leaves(updates), jax.tree.leaves(centre), strict=True):
        require_same_shape("one update", leaf[0], "centre", middle)
