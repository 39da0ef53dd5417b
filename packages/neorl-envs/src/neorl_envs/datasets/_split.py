"""Splitting a log between training and validation, never inside an episode."""

import dataclasses

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

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
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
    n = dataset.n_episodes
    if n < 2:
        raise ValueError(f"a split needs at least two episodes, got {n}")
    n_first = min(max(round(fraction * n), 1), n - 1)
    order = np.asarray(jax.random.permutation(key, n))
    parts = []
    for indices in (np.sort(order[:n_first]), np.sort(order[n_first:])):
        part = dataset.select_episodes(indices)
        split = {"of": dataset.content_hash, "episodes": len(indices), "of_episodes": n}
        parts.append(dataclasses.replace(part, attributes={**part.attributes, "split": split}))
    return parts[0], parts[1]
