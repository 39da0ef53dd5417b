"""Rounds without a server: every site averages its parameters with those of its neighbours."""

import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neorl_core import InputError
from neorl_core.federated import (
    averaging_rounds,
    gossip_step,
    hierarchical_mixing,
    metropolis_mixing,
    mixing_rate,
    ring_mixing,
    star_mixing,
)
from neorl_core.infrastructure import unknown_name
from neorl_train.federation._parameters import Vector
from neorl_train.federation._settings import GossipConfig

_STEP = jax.jit(gossip_step)


def mixings(gossip: GossipConfig, names: Sequence[str]) -> Float[np.ndarray, "step site site"]:
    """The mixing matrices of one round, in the order of use.

    Args:
        gossip: Graph and number of steps.
        names: Names of the sites, in order.

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


def mixed(
    present: Mapping[str, Vector],
    names: Sequence[str],
    matrices: Float[np.ndarray, "step site site"],
) -> tuple[dict[str, Vector], list[str], int]:
    """The parameters of every present site after one round of mixing.

    The weight of an absent site's contribution, or of one that is not finite, stays with each
    receiver; the mean over the present sites is preserved. A site whose own parameters are not
    finite takes the mean of its neighbours'.

    Args:
        present: Parameters of the present sites.
        names: Names of all sites, in order.
        matrices: Result of :func:`mixings`.

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
