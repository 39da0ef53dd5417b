"""Coverage of an ensemble's intervals, measured on episodes that it never saw."""

import numpy as np

from neorl_agents.calibration import episode_interval
from neorl_agents.critics._columns import checked_columns
from neorl_agents.critics._ensemble import Ensemble
from neorl_agents.critics._ensemble_fit import member_predictions
from neorl_agents.critics._ensemble_learner import outcome
from neorl_core import InputError, Spec, Transition


def assess_ensemble(
    ensemble: Ensemble, log: Transition, spec: Spec, *, replicates: int = 500
) -> dict[str, list[float]]:
    """The measured coverage of the intervals, with equal weight for every episode.

    Args:
        ensemble: A calibrated ensemble of dynamics or behaviour.
        log: Episodes that it was neither trained nor calibrated on.
        spec: Channels of the log.
        replicates: Number of bootstrap samples for the intervals.

    Returns:
        ``[coverage, low, high]`` of every predicted channel by name, with 95 % intervals by a
        bootstrap of episodes.

    Raises:
        InputError: If the ensemble has no intervals, or there are fewer than two episodes.
    """
    width = np.asarray(ensemble.width, np.float64)
    if not np.isfinite(width).all():
        raise InputError(
            "the ensemble has no calibrated intervals; fit it with a calibration_share above 0"
        )
    columns = checked_columns(log, spec, cost=False)
    mean, std = member_predictions(ensemble, columns)
    noise, spread = (np.asarray(x, np.float64) for x in (ensemble.noise, ensemble.spread))
    half = width * np.sqrt(noise**2 + (spread * std) ** 2)
    inside = np.abs(outcome(columns, ensemble.target) - mean) <= half
    _, index, length = np.unique(columns.episode, return_inverse=True, return_counts=True)
    row_weight = 1 / length[index]

    def coverage(covered: np.ndarray, row_weight: np.ndarray, weight: np.ndarray) -> float:
        return float((covered * row_weight) @ weight / (row_weight @ weight))

    channels = spec.action if ensemble.target == "behaviour" else spec.obs
    ones = np.ones(len(row_weight))
    coverages = {}
    for channel, covered in zip(channels, inside.T, strict=True):
        interval = episode_interval(
            coverage, columns.episode, covered, row_weight, replicates=replicates
        )
        coverages[channel.name] = [coverage(covered, row_weight, ones), *interval]
    return coverages
