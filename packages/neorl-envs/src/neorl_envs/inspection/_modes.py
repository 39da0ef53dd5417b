"""Movements of each actuator in manual and in automatic, to check the logged mode."""

from typing import Any

import numpy as np

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._channels import MOVES, SATURATED
from neorl_envs.inspection._sample import Sample

STILL_STEPS = 20
"""Smallest length of a long standstill of an actuator, in steps."""


def modes(sample: Sample, dataset: Dataset) -> list[dict[str, Any]]:
    """Movements of every manipulated variable with a logged mode, in manual and in automatic.

    Returns for each variable its name, the fraction of steps in manual, the fraction of these in
    which it moves, the fraction of the steps in automatic that belong to long standstills inside
    its range, and the fraction of the other steps in automatic in which it moves.
    """
    if dataset.mode is None or len(sample.action) < 2:
        return []
    follows = sample.episode[1:] == sample.episode[:-1]
    manual = np.asarray(dataset.mode[sample.row], np.bool_)
    entries = []
    for i, channel in enumerate(dataset.spec.action):
        span, value = channel.high - channel.low, sample.action[:, i]
        step = np.abs(np.diff(value))
        known = follows & np.isfinite(step)
        by_hand = known & manual[1:, i] & manual[:-1, i]
        automatic = known & ~manual[1:, i] & ~manual[:-1, i]
        inside = (value > channel.low + SATURATED * span) & (
            value < channel.high - SATURATED * span
        )
        moves = step > MOVES * span
        still = _long(automatic & ~moves & inside[1:])
        others = automatic & ~still
        entries.append(
            {
                "name": channel.name,
                "manual": _share(by_hand, known),
                "moves_in_manual": _share(moves & by_hand, by_hand),
                "still_in_automatic": _share(still, automatic),
                "moves_in_automatic": _share(moves & others, others),
            }
        )
    return entries


def _share(part: np.ndarray, whole: np.ndarray) -> float:
    return float(part.sum() / max(whole.sum(), 1))


def _long(still: np.ndarray) -> np.ndarray:
    """Which steps belong to long standstills."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], still, [False]]).astype(np.int8)))
    long = np.zeros_like(still)
    for first, stop in edges.reshape(-1, 2):
        long[first:stop] = stop - first >= STILL_STEPS
    return long
