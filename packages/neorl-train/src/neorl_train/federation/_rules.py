"""Aggregates the sites' updates into one change of the common parameters."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core.federated import (
    Aggregate,
    bulyan,
    centred_clipping,
    coordinate_median,
    geometric_median,
    krum,
    multi_krum,
    trimmed_mean,
    weighted_mean,
)
from neorl_train.federation._settings import FederationConfig


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


def combined(
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
    return jax.jit(functools.partial(_combined, rule, byzantine))


def _combined(rule: str, byzantine: int, updates: Array, shares: Array, radius: Array) -> Aggregate:
    sites = updates.shape[0]
    match rule:
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
    return weighted_mean(updates, shares)
