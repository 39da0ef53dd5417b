"""Splits a log by complete episodes, for example into training and validation data."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from neorl_envs.datasets._dataset import Dataset


def split_episodes(dataset: Dataset, fraction: float, key: PRNGKeyArray) -> tuple[Dataset, Dataset]:
    """Splits a dataset at random by complete episodes.

    Args:
        dataset: The log.
        fraction: Fraction of the episodes in the first split, in (0, 1). It is rounded to a whole
            number of episodes, at least one on each side.
        key: Random key; the same key gives the same split.

    Returns:
        The first split and the rest, each with its episodes in their original order. The attribute
        ``split`` of each describes how it was made.

    Raises:
        ValueError: If ``fraction`` is outside (0, 1) or there are fewer than two episodes.
    """
    n = dataset.n_episodes
    parts = []
    for indices in split_indices(n, fraction, key):
        part = dataset.select_episodes(indices)
        split = {"of": dataset.content_hash, "episodes": len(indices), "of_episodes": n}
        parts.append(dataclasses.replace(part, attributes={**part.attributes, "split": split}))
    return parts[0], parts[1]


def split_indices(
    n_episodes: int, fraction: float, key: PRNGKeyArray
) -> tuple[Int[np.ndarray, " first"], Int[np.ndarray, " rest"]]:
    """The indices of the episodes in each split of :func:`split_episodes`, ascending.

    Args:
        n_episodes: Number of episodes.
        fraction: Fraction of the episodes in the first split.
        key: Random key.

    Raises:
        ValueError: See :func:`split_episodes`.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
    if n_episodes < 2:
        raise ValueError(f"a split needs at least two episodes, got {n_episodes}")
    n_first = min(max(round(fraction * n_episodes), 1), n_episodes - 1)
    order = np.asarray(jax.random.permutation(key, n_episodes))
    return np.sort(order[:n_first]), np.sort(order[n_first:])
