"""Aggregates the sites' updates, also faulty ones, or those of neighbours alone."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core import InputError
from neorl_core.federated import (
    Aggregate,
    averaging_rounds,
    bulyan,
    centred_clipping,
    coordinate_median,
    geometric_median,
    gossip_step,
    hierarchical_mixing,
    krum,
    metropolis_mixing,
    mixing_rate,
    multi_krum,
    ring_mixing,
    star_mixing,
    trimmed_mean,
    weighted_mean,
)
from neorl_core.infrastructure import unknown_name
from neorl_train.federation._messages import Update, Vector
from neorl_train.federation._settings import Fault, FaultKind, FederationConfig, GossipConfig


def limited_shares(
    rows: Float[np.ndarray, " site"], largest: float
) -> tuple[Float[np.ndarray, " site"], Bool[np.ndarray, " site"]]:
    """The share of every site in a mean, proportional to its rows but never above ``largest``.

    The part that is cut off a share is divided among the sites below the limit, in proportion to
    their rows. If there are so few sites that all would be at the limit, they share equally.

    Args:
        rows: Rows of every site, positive.
        largest: Largest share, in (0, 1].

    Returns:
        Shares that sum to one, and which of them were cut.
    """
    rows = np.asarray(rows, np.float64)
    cut = np.zeros(len(rows), bool)
    if largest * len(rows) <= 1:
        shares = np.full(len(rows), 1 / len(rows))
        return shares, rows / rows.sum() > shares + 1e-12
    while True:
        shares = np.where(cut, largest, 0.0)
        shares[~cut] = (1 - largest * cut.sum()) * rows[~cut] / rows[~cut].sum()
        over = ~cut & (shares > largest + 1e-12)
        if not over.any():
            return shares, cut
        cut |= over


def combine(
    federation: FederationConfig,
    updates: Float[np.ndarray, "site parameter"],
    shares: Float[np.ndarray, " site"],
) -> tuple[Float[np.ndarray, " parameter"], Bool[np.ndarray, " site"]]:
    """The change that a rule computes from the updates of the sites that answered.

    Args:
        federation: Rule and its settings; not ``"gossip"``.
        updates: One row per site; rows with a non-finite number are left out.
        shares: Weight of every site in a mean.

    Returns:
        The change of the common parameters, and which sites were usable.
    """
    answer = _program(federation.rule, federation.byzantine)(
        jnp.asarray(updates), jnp.asarray(shares, jnp.float32), jnp.float32(federation.radius)
    )
    return np.asarray(answer.value), np.asarray(answer.usable)


@functools.cache
def _program(rule: str, byzantine: int) -> Any:
    return jax.jit(functools.partial(_combine, rule, byzantine))


def _combine(rule: str, byzantine: int, updates: Array, shares: Array, radius: Array) -> Aggregate:
    sites = updates.shape[0]
    match rule:
        case "mean":
            return weighted_mean(updates, shares)
        case "median":
            return coordinate_median(updates)
        case "trimmed-mean":
            return trimmed_mean(updates, num_byzantine=byzantine)
        case "krum":
            return krum(updates, num_byzantine=byzantine)
        case "multi-krum":
            return multi_krum(updates, num_byzantine=byzantine, selected=sites - byzantine)
        case "bulyan":
            return bulyan(updates, num_byzantine=byzantine)
        case "geometric-median":
            return geometric_median(updates)
        case "centred-clipping":
            return centred_clipping(updates, jnp.zeros_like(updates[0]), radius=radius)
    raise ValueError(f"no program computes the rule {rule!r}")  # never a mean in its place


def is_fault(faults: Sequence[Fault], site: str, kind: FaultKind, round_: int) -> bool:
    """Whether a site has a fault of a kind in a round."""
    return any(fault.site == site and fault.kind == kind and fault.at(round_) for fault in faults)


def alter(faults: Sequence[Fault], update: Update) -> Update:
    """The update that a site with these faults sends instead of an honest one."""
    for fault in faults:
        if fault.site != update.site or not fault.at(update.round):
            continue
        first, *rest = update.arrays or (np.zeros(0, np.float32),)
        match fault.kind:
            case "scaled":
                first = (first * np.float32(fault.factor)).astype(first.dtype)
            case "flipped":
                first = (-first * np.float32(fault.factor)).astype(first.dtype)
            case "nan":
                first = np.full_like(first, np.nan)
            case "miscounts":
                update = update._replace(rows=int(update.rows * fault.factor))
        if update.arrays:
            update = update._replace(arrays=(first, *rest))
    return update


_STEP = jax.jit(gossip_step)


def mixings(gossip: GossipConfig, names: Sequence[str]) -> Float[np.ndarray, "step site site"]:
    """The mixing matrices of one round, in the order of use.

    Raises:
        InputError: If a link names an unknown site, the links leave a site unconnected, or the
            groups of a hierarchy do not cover all sites.
    """
    count = len(names)
    match gossip.graph:
        case "hierarchical":
            return _levels(gossip.groups, count)
        case "ring":
            mixing = ring_mixing(count)
        case "star":
            mixing = star_mixing(count)
        case "complete":
            mixing = jnp.full((count, count), 1 / count)
        case "links":
            mixing = metropolis_mixing(_adjacency(gossip.links, names))
    if float(mixing_rate(mixing)) > 1 - 1e-6:
        raise InputError(
            "gossip.links do not connect all sites; add links until there is a path from every "
            "site to every other site"
        )
    if gossip.exact:
        return np.asarray(averaging_rounds(mixing))
    return np.broadcast_to(np.asarray(mixing), (gossip.steps, count, count))


def _levels(groups: Sequence[int], count: int) -> Float[np.ndarray, "step site site"]:
    """One exact average per level; after the last one all sites agree."""
    if not groups or min(groups) < 1 or math.prod(groups) != count:
        raise InputError(
            f'gossip.graph is "hierarchical" and gossip.groups is {list(groups)}; give the members '
            f"of a group level by level, as integers whose product is the {count} sites"
        )
    return np.asarray(hierarchical_mixing(tuple(groups)))


def _adjacency(links: Sequence[Sequence[str]], names: Sequence[str]) -> np.ndarray:
    adjacency = np.zeros((len(names), len(names)), bool)
    if not links:
        raise InputError('gossip.graph is "links", but gossip.links is empty; list pairs of sites')
    for link in links:
        if len(link) != 2:
            raise InputError(f"gossip.links must be pairs of sites, got {list(link)}")
        for name in link:
            if name not in names:
                raise unknown_name("site in gossip.links", name, names)
        i, j = (names.index(name) for name in link)
        adjacency[i, j] = adjacency[j, i] = True
    return adjacency


def mix(
    present: Mapping[str, Vector],
    names: Sequence[str],
    matrices: Float[np.ndarray, "step site site"],
) -> tuple[dict[str, Vector], list[str], int]:
    """The parameters of every present site after one round of mixing.

    The weight of an absent site's contribution, or of one that is not finite, stays with each
    receiver; the mean over the present sites is preserved. A site whose own parameters are not
    finite takes the mean of its neighbours'.

    Returns:
        Their new parameters, the sites whose parameters were not finite, and the bytes sent.
    """
    size = len(next(iter(present.values())))
    unknown = np.full(size, np.nan, np.float32)
    stacked = np.stack([present.get(name, unknown) for name in names])
    is_present = np.asarray([name in present for name in names])
    finite = [bool(np.isfinite(row).all()) for row in stacked]
    not_finite = [
        name for name, ok in zip(names, finite, strict=True) if name in present and not ok
    ]
    sent = 0
    for matrix in matrices:
        off = (np.abs(matrix) > 0) & ~np.eye(len(names), dtype=bool)
        sent += int((off & is_present[:, None] & is_present[None, :]).sum()) * size * 4
        after = np.asarray(_STEP(stacked, np.asarray(matrix, np.float32)).value)
        stacked = np.where(is_present[:, None], after, unknown)
    return {name: stacked[i] for i, name in enumerate(names) if name in present}, not_finite, sent
