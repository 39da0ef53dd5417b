"""Base-stock control: orders fill the inventory position to a level, shared among suppliers."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from neorl_core.control import BaseStock, ConstantPolicy
from neorl_envs.plants.supply_chain._physics import LANES, RECEIVES, RETAILER

LARGEST_ORDER = 50.0


class Rule(NamedTuple):
    """Parameters of a base-stock rule.

    Attributes:
        levels: Levels of the six nodes, units.
        shares: Fraction of the receiver's order that goes to each lane.
        forecast: Multiple of yesterday's demand that is added to each level.
        downstream: Fraction of the mean inventory position of distributors and shop that is added
            to that of the factories.
    """

    levels: tuple[float, ...]
    shares: tuple[float, ...]
    forecast: tuple[float, ...] = (0.0,) * 6
    downstream: float = 0.0


ORDINARY = Rule(
    (260.0, 230.0, 200.0, 50.0, 20.0, 0.0), (0.6, 0.4, 0.3, 0.4, 0.4, 0.3, 0.6, 1.0, 1.0, 1.0)
)
STRONG = Rule(
    (250.0, 205.0, 190.0, 63.0, 70.0, 18.5),
    (0.73, 0.27, 0.36, 0.55, 0.41, 0.23, 0.45, 1.0, 1.0, 1.0),
    (2.7, 2.9, 5.0, 1.1, 1.5, 1.7),
    0.38,
)


def base_stock(rule: Rule) -> BaseStock:
    """Orders that fill the inventory positions up to the rule's levels, lane by lane."""
    receiver = np.argmax(RECEIVES, axis=0)
    lanes = len(LANES)
    # on hand, backlog, last demand, in the pipeline, arriving (already part of the pipeline)
    position = np.concatenate(
        [np.eye(6), -RETAILER[:, None], np.zeros((6, 1)), RECEIVES, np.zeros((6, lanes))], axis=1
    )
    position[3:] += rule.downstream * position[:3].mean(axis=0)
    position[:, 7] = -np.asarray(rule.forecast)
    shares = np.asarray(rule.shares)
    return BaseStock(
        level=jnp.asarray(shares * np.asarray(rule.levels)[receiver], jnp.float32),
        position=jnp.asarray(shares[:, None] * position[receiver], jnp.float32),
        low=jnp.zeros(lanes),
        high=jnp.full(lanes, LARGEST_ORDER),
    )


def bad_policy() -> ConstantPolicy:
    """Raw materials at full rate and nothing for the shop: full stores and unserved customers."""
    outside = np.array([supplier > 6 for supplier, _ in LANES])
    return ConstantPolicy(jnp.where(outside, LARGEST_ORDER, 0.0))
