"""Aggregation rules that select whole clients by their distances from each other."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_core._internal.checks import checked_integer
from neorl_core.federated._client_updates import (
    Aggregate,
    count_true,
    remaining_faulty,
    require_byzantine,
    require_updates,
    squared_distances,
    usable,
    weighted_average,
    zero_unusable,
)
from neorl_core.federated._coordinate_rules import mean_near_median


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
