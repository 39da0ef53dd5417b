"""The committed table of published logs."""

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import check_head
from neorl_envs.datasets._dataset import Dataset

VERSION = 1
SPREAD = 0.15
"""Relative spread of the sampled parameters in all published logs."""
SMALL = 2_000
SIZES: Mapping[str, int] = {
    "ChemicalReactor-v0": 1_000_000,
    "RobotAssembly-v0": 2_000_000,
    "HVACControl-v0": 1_500_000,
    "WaterTreatment-v0": 800_000,
    "SteelAnnealing-v0": 1_200_000,
    "PowerGrid-v0": 3_000_000,
    "SupplyChain-v0": 2_500_000,
}
"""Number of rows of the full logs; 100,000 for plants that are not listed."""


class PublishedLog(NamedTuple):
    """Record of one published log.

    Attributes:
        plant: Name of the plant.
        quality: See :func:`neorl_envs.recording.quality`.
        seed: Seed of the log.
        steps: Requested number of rows.
        settings: Digest from :func:`settings_digest`.
        rows: Actual number of rows.
        episodes: Number of episodes.
        returns: Mean and standard deviation of the returns.
        obs: Means of the observations.
        action: Means of the actions.
        content: Content hash by numerical environment.
    """

    plant: str
    quality: str
    seed: int
    steps: int
    settings: str
    rows: int
    episodes: int
    returns: tuple[float, float]
    obs: tuple[float, ...]
    action: tuple[float, ...]
    content: Mapping[str, str]


def log_size(plant: str, size: str) -> int:
    """Number of rows of a published size.

    Args:
        plant: Name of the plant.
        size: ``"small"`` (2,000 rows) or ``"full"``.

    Raises:
        InputError: If the size is neither of these.

    Example:
        >>> log_size("PowerGrid-v0", "full")
        3000000
    """
    if size not in ("small", "full"):
        raise InputError(f"size must be 'small' or 'full', got {size!r}")
    return SMALL if size == "small" else SIZES.get(plant, 100_000)


def log_statistics(dataset: Dataset) -> dict[str, Any]:
    """Statistics that are recorded with the hash of a log, with six significant digits.

    Args:
        dataset: A collected log.

    Returns:
        The entries ``rows`` to ``action`` of a :class:`PublishedLog`.
    """
    rows, returns = dataset.transitions, dataset.episode_returns()

    def short(values: Any) -> tuple[float, ...]:
        return tuple(float(f"{value:.6g}") for value in np.atleast_1d(values))

    return {
        "rows": dataset.n_rows,
        "episodes": dataset.n_episodes,
        "returns": short([returns.mean(), returns.std()]),
        "obs": short(np.mean(rows.obs, axis=0, dtype=np.float64)),
        "action": short(np.mean(rows.action, axis=0, dtype=np.float64)),
    }


@functools.cache
def published_logs() -> tuple[PublishedLog, ...]:
    """All published logs, in the order of the table.

    Example:
        >>> {log.quality for log in published_logs()} <= {"random", "medium", "mixed", "expert"}
        True
    """
    text = resources.files("neorl_envs.published").joinpath("logs.json").read_text()
    document = json.loads(text)
    check_head(document, "published-logs", VERSION, "logs.json")
    return tuple(PublishedLog(**entry) for entry in document["logs"])
