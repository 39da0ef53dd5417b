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
N_PERTURBATIONS = 8


def perturbed_observations(
    obs: Sequence[ChannelEntry], observations: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Seeds for the policy, with observations each perturbed to a neighbouring float32 number."""
    low = np.array([channel.low for channel in obs], np.float32)
    high = np.array([channel.high for channel in obs], np.float32)
    inside = (observations >= low) & (observations <= high)
    for seed in range(SEED, SEED + N_PERTURBATIONS):
        up = np.random.default_rng(seed).random(observations.shape) < 0.5
        moved = np.nextafter(observations, np.where(up, np.inf, -np.inf).astype(np.float32))
        # A number that left its range would raise another flag instead of testing rounding.
        moved = np.where(inside, np.clip(moved, low, high), moved)
        yield seed, np.where(np.isfinite(observations), moved, observations)


def perturbed_policy(policy: GuardedPolicy, key: Any) -> GuardedPolicy:
    """Perturbs every number of the policy and its fallback to a neighbouring float32 number.

    Each rounding inside a program is equivalent to a small perturbation of its inputs (backward
    error analysis), and a different one each time. A policy that is perturbed anew in every step
    therefore differs about as much as two correct compilations of it may.
    """
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    leaves, structure = jax.tree.flatten((policy.policy, policy.fallback))
    places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    flat, restored = ravel_pytree([leaves[i] for i in places])
    up = jax.random.bernoulli(key, shape=flat.shape)
    neighbour = jnp.nextafter(flat, jnp.where(up, jnp.inf, -jnp.inf).astype(flat.dtype))
    # Rounding leaves zero, infinity and NaN as they are.
    moved = restored(jnp.where(jnp.isfinite(flat) & (flat != 0), neighbour, flat))
    for i, leaf in zip(places, moved, strict=True):
        leaves[i] = leaf
    acting, fallback = jax.tree.unflatten(structure, leaves)
    return dataclasses.replace(policy, policy=acting, fallback=fallback)
