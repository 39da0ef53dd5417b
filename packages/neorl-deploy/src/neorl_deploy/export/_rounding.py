"""Sensitivity of an answer to float32 rounding of its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neorl_deploy.bundle._manifest import ChannelEntry

if TYPE_CHECKING:
    from neorl_safety.guards import GuardedPolicy

SEED = 9
N_MOVES = 8


def moved_observations(
    obs: Sequence[ChannelEntry], observations: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """The observations with every finite number moved to a neighbouring float32 number.

    Args:
        obs: Observed channels. No number leaves the range of its channel: that would be another
            finding, not rounding.
        observations: One observation a row, float32.

    Yields:
        A few seeds for the policy to move by, each with observations moved up and down at random.
    """
    low = np.array([channel.low for channel in obs], np.float32)
    high = np.array([channel.high for channel in obs], np.float32)
    inside = (observations >= low) & (observations <= high)
    for seed in range(SEED, SEED + N_MOVES):
        up = np.random.default_rng(seed).random(observations.shape) < 0.5
        moved = np.nextafter(observations, np.where(up, np.inf, -np.inf).astype(np.float32))
        moved = np.where(inside, np.clip(moved, low, high), moved)
        yield seed, np.where(np.isfinite(observations), moved, observations)


def moved_policy(policy: GuardedPolicy, key: Any) -> GuardedPolicy:
    """The policy with every number of itself and of its fallback moved to a neighbour.

    Each rounding inside a program equals a small move of what goes in (backward analysis), and
    not the same one twice: a policy that is moved anew in every step answers about as far apart
    as two right compilations of it may.

    Args:
        policy: Guarded policy; its constraints stay.
        key: Random key.

    Returns:
        A policy of the same structure; zeros and numbers that are not finite stay.
    """
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    leaves, structure = jax.tree.flatten((policy.policy, policy.fallback))
    places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    flat, restored = ravel_pytree([leaves[i] for i in places])
    up = jax.random.bernoulli(key, shape=flat.shape)
    neighbour = jnp.nextafter(flat, jnp.where(up, jnp.inf, -jnp.inf).astype(flat.dtype))
    moved = restored(jnp.where(jnp.isfinite(flat) & (flat != 0), neighbour, flat))
    for i, leaf in zip(places, moved, strict=True):
        leaves[i] = leaf
    acting, fallback = jax.tree.unflatten(structure, leaves)
    return dataclasses.replace(policy, policy=acting, fallback=fallback)
