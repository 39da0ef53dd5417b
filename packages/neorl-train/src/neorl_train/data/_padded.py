"""The episodes of a log as padded arrays, for running monitors over them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_envs import Dataset


def padded_episodes(dataset: Dataset) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Observations, actions and mask of all episodes, one episode per row, padded at its end.

    Args:
        dataset: Any episodes.

    Returns:
        Shapes ``(episode, time, obs)``, ``(episode, time, act)`` and ``(episode, time)``; the mask
        is false for padding, for masked rows and for lost readings.
    """
    columns: Any = dataset.transitions
    rows, mask = dataset.padded_rows()
    obs, action = np.asarray(columns.obs)[rows], np.asarray(columns.action)[rows]
    counted = mask & np.isfinite(obs).all(axis=2)
    return jnp.asarray(obs), jnp.asarray(action), jnp.asarray(counted)
