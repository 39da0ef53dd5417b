"""Sample of a log for expensive statistics: whole episodes, evenly spread over the log."""

from typing import Any, NamedTuple

import numpy as np

from neorl_envs.datasets._dataset import Dataset

MOST_ROWS = 100_000


class Sample(NamedTuple):
    """Rows of some whole episodes, float64; NaN where a row is masked.

    Attributes:
        obs: Observations.
        action: Actions.
        episode: Index of the episode of each row.
        row: Index of each row in the log.
    """

    obs: np.ndarray
    action: np.ndarray
    episode: np.ndarray
    row: np.ndarray


def episodes_sample(dataset: Dataset) -> Sample:
    """Takes every n-th episode to get about ``MOST_ROWS`` rows; a single long episode is cut."""
    rows: Any = dataset.transitions
    every = max(1, -(-dataset.n_rows // MOST_ROWS))
    chosen = range(0, dataset.n_episodes, every)
    parts = [np.arange(dataset.episode_starts[i], dataset.episode_ends[i]) for i in chosen]
    index = np.concatenate(parts)[: 2 * MOST_ROWS]
    episode = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[: 2 * MOST_ROWS]
    used = np.asarray(rows.mask)[index][:, None]
    obs, action = (
        np.where(used, np.asarray(column[index], np.float64), np.nan)
        for column in (rows.obs, rows.action)
    )
    return Sample(obs, action, episode, index)
