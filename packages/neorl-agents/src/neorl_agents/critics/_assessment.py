"""Calibration of a safety critic's risks, measured on episodes that it never saw."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.calibration import episode_interval
from neorl_agents.critics._columns import checked_columns
from neorl_agents.critics._safety_critic import SafetyCritic
from neorl_agents.critics._safety_critic_fit import outcomes
from neorl_core import Spec, Transition
from neorl_core.statistics import area_under_roc, brier_skill, calibration_error

MEASURES = {
    "calibration_error": jax.jit(calibration_error),
    "area_under_roc": jax.jit(area_under_roc),
    "brier_skill": jax.jit(brier_skill),
}


def assess_safety_critic(
    critic: SafetyCritic, log: Transition, spec: Spec, *, replicates: int = 500
) -> dict[str, dict[str, Any]]:
    """Compares the predicted risks with the log's outcomes, limit by limit.

    Args:
        critic: A critic of violations.
        log: Episodes that it was neither trained nor calibrated on, recorded under the behaviour
            that its risks refer to.
        spec: Channels and limits of the log.
        replicates: Number of bootstrap samples for the intervals.

    Returns:
        For every limit: ``rows``, ``episodes``, the ``rate`` of windows with a violation, and
        ``calibration_error``, ``area_under_roc`` and ``brier_skill``, each as ``[value, low,
        high]`` with 95 % intervals by a bootstrap of episodes; NaN if all outcomes are equal.

    Raises:
        InputError: If the log has no cost, too few episodes, or no window of that length; or if
            the critic predicts costs, which are not probabilities.
    """
    columns = checked_columns(log, spec, cost=True)
    predicted, observed, episode = outcomes(critic, columns, spec, discount=1.0)
    risks = _calibrated_risks(critic, predicted)
    assessment = {}
    for k, channel in enumerate(spec.cost):
        risk, occurred = np.clip(risks[:, k], 0, 1), observed[:, k] > 0
        assessment[channel.name] = {
            "rows": len(occurred),
            "episodes": len(np.unique(episode)),
            "rate": float(occurred.mean()),
        } | {
            name: [
                float(measure(risk, occurred)),
                *episode_interval(measure, episode, risk, occurred, replicates=replicates),
            ]
            for name, measure in MEASURES.items()
        }
    return assessment


def _calibrated_risks(critic: SafetyCritic, predicted: np.ndarray) -> np.ndarray:
    mapped = jax.jit(jax.vmap(critic.calibration))(jnp.asarray(predicted, jnp.float32))
    return np.asarray(mapped, np.float64)
