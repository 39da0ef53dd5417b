"""Averaging without a central server: every client mixes with its neighbours."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import checked_integer, floats, is_concrete, require_rank
from neorl_core._internal.precision import checked_wide, product, widen
from neorl_core.federated._client_updates import Aggregate, require_updates, usable, zero_unusable


def metropolis_mixing(adjacency: Bool[ArrayLike, "client client"]) -> Float[Array, "client client"]:
    """A symmetric doubly stochastic matrix for any undirected graph.

    ``W_ij = 1 / (1 + max(degree_i, degree_j))`` on edges; the diagonal completes each row to one.

    Args:
        adjacency: Which clients communicate; symmetric, the diagonal is ignored. Must be concrete.

    Returns:
        The mixing matrix.

    Raises:
        ValueError: If it is not square or not symmetric.

    Example:
        >>> metropolis_mixing([[False, True], [True, False]]).tolist()
        [[0.5, 0.5], [0.5, 0.5]]

    Source: Xiao, Boyd and Kim, Distributed average consensus with least-mean-square deviation,
    2007.
    """
    links = np.asarray(adjacency, bool)
    if links.ndim != 2 or links.shape[0] != links.shape[1] or not np.array_equal(links, links.T):
        raise ValueError(
            f"adjacency must be square and symmetric, got shape {links.shape}; "
            "list every link both ways, as links | links.T does"
        )
    links = links & ~np.eye(len(links), dtype=bool)
    degree = links.sum(axis=1)
    weights = np.where(links, 1 / (1 + np.maximum(degree[:, None], degree[None, :])), 0.0)
    return jnp.asarray(weights + np.diag(1 - weights.sum(axis=1)))


def ring_mixing(clients: int) -> Float[Array, "client client"]:
    """Every client mixes with its two neighbours on a ring, one third each.

    Args:
        clients: Number of clients, one or more.

    Returns:
        The mixing matrix; :func:`averaging_rounds` turns it into ``clients // 2`` rounds.

    Raises:
        ValueError: If ``clients`` is not a positive integer.

    Example:
        >>> ring_mixing(4).round(2).tolist()[0]
        [0.32999998331069946, 0.32999998331069946, 0.0, 0.32999998331069946]
    """
    clients = _at_least_one(clients)
    number = np.arange(clients)
    distance = np.abs(number[:, None] - number[None, :])
    return metropolis_mixing((distance == 1) | (distance == clients - 1))


def star_mixing(clients: int) -> Float[Array, "client client"]:
    """Client 0 mixes with all others, which mix only with it.

    Args:
        clients: Number of clients, one or more.

    Returns:
        The mixing matrix; :func:`averaging_rounds` turns it into two rounds.

    Raises:
        ValueError: If ``clients`` is not a positive integer.

    Example:
        >>> star_mixing(4).tolist()[1]
        [0.25, 0.75, 0.0, 0.0]
    """
    clients = _at_least_one(clients)
    links = np.zeros((clients, clients), bool)
    links[0] = links[:, 0] = True
    return metropolis_mixing(links)


def hierarchical_mixing(sizes: tuple[int, ...]) -> Float[Array, "level client client"]:
    """One matrix per level of a tree of equal groups; their product is the exact average.

    With ``sizes = (4, 3)``, twelve clients first average in three groups of four neighbours. Then
    each averages with its counterparts in the other groups.

    Args:
        sizes: Members of a group at each level, lowest level first; their product is the number
            of clients.

    Returns:
        The mixing matrices in order of use, one round per level.

    Raises:
        ValueError: If there is no level or a size is not a positive integer.

    Example:
        >>> hierarchical_mixing((2, 2))[0].tolist()[0]
        [0.5, 0.5, 0.0, 0.0]
    """
    advice = "give the members of a group, level by level"
    sizes = tuple(checked_integer("every entry of sizes", size, 1, advice) for size in sizes)
    if not sizes:
        raise ValueError(f"sizes must be one level or more, got none; {advice}")
    clients = int(np.prod(sizes))
    matrices, below = [], 1
    for size in sizes:
        above = clients // (below * size)
        level = np.kron(np.full((size, size), 1 / size), np.eye(below))
        matrices.append(np.kron(np.eye(above), level))
        below *= size
    return jnp.asarray(np.stack(matrices))


def averaging_rounds(
    mixing: Float[ArrayLike, "client client"],
) -> Float[Array, "round client client"]:
    """Rounds on the links of a symmetric mixing matrix after which all hold the exact average.

    One round ``(W - mu I) / (1 - mu)`` for each distinct eigenvalue ``mu`` below one removes that
    eigenvalue's part of the disagreement, so there are as many rounds as such eigenvalues. Rounding
    errors grow with their number: on rings and paths in float32, with numbers of size one, the
    measured error is 1e-5 after 30 rounds and 1e-3 after 60. For many clients mix in levels
    (:func:`hierarchical_mixing`). Computed on the host, in the default float dtype.

    Args:
        mixing: Symmetric and doubly stochastic, of a connected graph.

    Returns:
        The matrices in order of use, to be applied by :func:`gossip_step` one after the other.

    Raises:
        ValueError: If the matrix is not square, symmetric and doubly stochastic, or the graph is
            not connected.

    Example:
        >>> averaging_rounds(star_mixing(5)).shape
        (2, 5, 5)

    Source: Sandryhaila, Kar and Moura, Finite-time distributed consensus through graph filters,
    2014.
    """
    matrix = np.asarray(mixing, np.float64)
    _require_doubly_stochastic(matrix)
    if np.abs(matrix - matrix.T).max(initial=0) > 1e-6:
        raise ValueError("mixing must be symmetric for exact rounds; mix with metropolis_mixing")
    clients = len(matrix)
    modes = np.sort(np.linalg.eigvalsh(matrix))
    below = modes[modes < 1 - 1e-6]
    if len(below) < clients - 1:
        raise ValueError(
            "the graph of mixing is not connected: some clients never hear of others; "
            "add links until every client reaches every other"
        )
    distinct = below[np.append(True, np.diff(below) > 1e-6)] if len(below) else below
    identity = np.eye(clients)
    # Alternate distant eigenvalues by golden-section steps; in sorted order rounding would build
    # up.
    order = np.argsort(np.arange(len(distinct)) * 0.6180339887498949 % 1)
    rounds = [(matrix - mode * identity) / (1 - mode) for mode in distinct[order]]
    return jnp.asarray(np.stack(rounds) if rounds else identity[None])


def mixing_rate(mixing: Float[ArrayLike, "client client"]) -> Float[Array, ""]:
    """Upper bound on the factor by which a round shrinks the disagreement: ``|W - 1 1^T / n|``.

    For a symmetric matrix it is the second largest magnitude of an eigenvalue. After ``k`` rounds
    the distance of the clients from their mean is at most ``rate^k`` times the initial one.

    Args:
        mixing: Doubly stochastic.

    Returns:
        Between 0 (exact average in one round) and 1 (not connected); NaN under ``jit`` if rows or
        columns do not sum to one.

    Raises:
        ValueError: If the matrix is not square, has half precision, or is concrete and has rows or
            columns that do not sum to one.

    Example:
        >>> round(float(mixing_rate(ring_mixing(4))), 4)
        0.3333
    """
    mixing, stochastic = _check_mixing(mixing)
    mixing = checked_wide("mixing", mixing)
    rate = jnp.linalg.norm(mixing - 1 / mixing.shape[0], ord=2)
    return jnp.where(stochastic, rate, jnp.nan)


def gossip_step(updates: Any, mixing: Float[ArrayLike, "client client"]) -> Aggregate:
    """One round: every client takes the weighted mean of its neighbours' updates.

    ``X <- W X``. The mean over the clients is preserved. If a client has a NaN or an infinity, each
    receiver keeps its own value in place of that client's share. The faulty client takes the mean
    of its usable neighbours' values, or keeps its own if there are none.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        mixing: Mixing matrix; rows and columns sum to one.

    Returns:
        All clients' new updates, stacked like the old ones, and which clients were usable before.
        The updates are NaN under ``jit`` if rows or columns of ``mixing`` do not sum to one.

    Raises:
        ValueError: If shapes disagree, or a concrete ``mixing`` has rows or columns that do not sum
            to one.

    Example:
        >>> import jax.numpy as jnp
        >>> gossip_step(jnp.array([0.0, 3.0]), jnp.full((2, 2), 0.5)).value.tolist()
        [1.5, 1.5]
    """
    clients = require_updates(updates, 1, "gossip needs")
    mixing, stochastic = _check_mixing(mixing)
    if mixing.shape[0] != clients:
        raise ValueError(
            f"mixing must be of the {clients} clients, got shape {mixing.shape}; "
            "make it for that number of clients"
        )
    valid = usable(updates)
    received_weights = jnp.where(valid[None, :], mixing, 0)
    missing = 1 - jnp.sum(received_weights, axis=1)
    own = jnp.eye(clients, dtype=received_weights.dtype)
    total = jnp.sum(received_weights, axis=1, keepdims=True)
    normalised = received_weights / jnp.where(total > 0, total, 1)
    weights = jnp.where(valid[:, None], received_weights + missing[:, None] * own, normalised)
    isolated = ~valid & (total[:, 0] <= 0)

    def mix(leaf: Array, old: Array) -> Array:
        wide = widen(leaf).reshape(clients, -1)
        flat = product(weights.astype(wide.dtype), wide).reshape(leaf.shape).astype(leaf.dtype)
        isolated_rows = isolated.reshape((-1,) + (1,) * (leaf.ndim - 1))
        return jnp.where(stochastic, jnp.where(isolated_rows, old, flat), jnp.nan)

    return Aggregate(jax.tree.map(mix, zero_unusable(updates, valid), updates), valid)


def _at_least_one(clients: int) -> int:
    return checked_integer("clients", clients, 1, "leave mixing out without a graph")


def _check_mixing(mixing: ArrayLike) -> tuple[Array, ArrayLike]:
    """The matrix as floats, and whether its rows and columns sum to one; if concrete, they must."""
    require_rank("mixing", mixing, 2, "client, client")
    if np.shape(mixing)[0] != np.shape(mixing)[1]:
        raise ValueError(
            f"mixing must be square, got shape {np.shape(mixing)}; "
            "give one row and one column for each client"
        )
    if not is_concrete(mixing):
        return floats(mixing), _sums_to_one(jnp, widen(jax.lax.stop_gradient(mixing)))[0]
    stochastic, sums = _sums_to_one(np, np.asarray(mixing, np.float64))
    if not stochastic:
        raise ValueError(
            f"rows and columns of mixing must sum to one, got {sums.min():.6g} to "
            f"{sums.max():.6g}; make it with metropolis_mixing"
        )
    return floats(mixing), True


def _sums_to_one(xp: Any, matrix: Any) -> tuple[Any, Any]:
    """Whether all sums are one, computed with NumPy or JAX, and the sums."""
    sums = xp.concatenate([matrix.sum(axis=0), matrix.sum(axis=1)])
    # Rounds of slow modes have entries in the hundreds, and their sums round accordingly.
    slack = 1e-5 * xp.abs(matrix).max(initial=1)
    return xp.abs(sums - 1).max(initial=0) <= slack, sums


def _require_doubly_stochastic(matrix: np.ndarray) -> None:
    _check_mixing(matrix)
    if np.min(matrix, initial=0) < -1e-9:
        raise ValueError(
            f"mixing must not be negative, got {matrix.min():.6g}; make it with metropolis_mixing"
        )
