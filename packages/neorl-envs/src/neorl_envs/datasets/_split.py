"""Splitting a log between training and validation, never inside an episode."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from neorl_envs.datasets._dataset import Dataset


def split_episodes(dataset: Dataset, fraction: float, key: PRNGKeyArray) -> tuple[Dataset, Dataset]:
    """Splits by complete episodes, at random.

    Args:
        dataset: The log.
        fraction: Part of the episodes that goes into the first split, in (0, 1); rounded to a
            whole number of episodes, at least one on each side.
        key: Decides which; the same key gives the same split.

    Returns:
        The first split and the rest, each with its episodes in their order of time. The attribute
        ``split`` of each says what it is.

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
    """The numbers of the episodes that :func:`split_episodes` puts on each side, ascending.

    Args:
        n_episodes: How many there are.
        fraction: Part of them that goes into the first split.
        key: Decides which.

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
