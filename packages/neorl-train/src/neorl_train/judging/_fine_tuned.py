"""Compares a learner before and after its fine-tuning in an evaluation's paired episodes."""

from collections.abc import Sequence

import numpy as np

from neorl_train.judging._estimates import crossed_estimate, mean_estimates
from neorl_train.judging._fine_tuning import Collected, FineTuned
from neorl_train.judging._results import Evaluation
from neorl_train.judging._tables import Estimate


def fine_tuned(
    evaluation: Evaluation,
    after: str,
    before: str,
    *,
    seeds: Sequence[int],
    collected: tuple[Collected, ...],
    regret: tuple[float, ...] | None,
) -> FineTuned:
    """Effect of fine-tuning one learner, paired by start, with the policies behind the guard.

    Args:
        evaluation: Evaluation of the policies before and after.
        after: Group of the fine-tuned policies, such as ``"iql"``.
        before: Group of the offline ones, such as ``"iql_offline"``.
        seeds: Seeds of both.
        collected: Record of every seed's collection on the plant.
        regret: Shortfall of every seed during learning.

    Returns:
        Means with intervals at the level of the evaluation.
    """
    returns = {
        result.name: result.episodes.returns for result in evaluation.results if result.guarded
    }
    ours = np.stack([returns[f"{after}-{seed}"] for seed in seeds])
    theirs = np.stack([returns[f"{before}-{seed}"] for seed in seeds])
    level = evaluation.tables.level
    return FineTuned(
        name=after,
        before=_estimate(theirs, level),
        after=_estimate(ours, level),
        gain=_estimate(ours - theirs, level),
        each_seed=tuple(float(mean) for mean in (ours - theirs).mean(axis=1)),
        regret=regret,
        collected=collected,
    )


def _estimate(samples: np.ndarray, level: float) -> Estimate:
    """Estimates the mean over seeds and starts; with one seed, the mean over the starts."""
    if len(samples) > 1:
        return crossed_estimate(samples, level=level)
    return mean_estimates(samples.T, level=level)[0]
