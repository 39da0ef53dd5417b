"""The rows of a comparison, compared with one policy in place of what runs today."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from neorl_core import InputError
from neorl_core.statistics import wilcoxon_test
from neorl_train.judging._estimates import crossed_estimate, mean_estimates
from neorl_train.judging._results import LOG, Evaluation
from neorl_train.judging._tables import Estimate


class Paired(NamedTuple):
    """One policy, with all its seeds, compared with another one on the same starts.

    Attributes:
        gain: Mean difference in return; if both have several seeds, its interval treats seeds and
            starts as random, so that it applies to the next training run of both.
        each_seed: Mean difference of every seed.
        p_value: p value of Wilcoxon's two-sided signed-rank test of the returns, averaged over the
            seeds, start by start; ``None`` if all differences are zero or unknown.
    """

    gain: Estimate
    each_seed: tuple[float, ...]
    p_value: float | None


_test = jax.jit(wilcoxon_test)


def seed_returns(evaluation: Evaluation, name: str) -> np.ndarray | None:
    """Returns of a learner's seeds behind their guard, or of a controller, by seed and start.

    Args:
        evaluation: Results of one run.
        name: A learner, one of its seeds, or a controller.

    Returns:
        Shape ``(seed, start)``; ``None`` if there is no such policy.
    """
    # The log has episodes of its own, from other starts.
    rows = {row.name: row for row in evaluation.tables.rows if row.role != LOG}
    learners = [row.name for row in rows.values() if row.role == "learner"]
    results = [
        one
        for one in evaluation.results
        if one.name in rows and name in (one.name, rows[one.name].group)
    ]
    # A learner acts behind its guard; a controller is shown as it is.
    wanted = [one for one in results if one.guarded == (one.name in learners)] or results
    return np.stack([one.episodes.returns for one in wanted]) if wanted else None


def baselines(
    runs: Sequence[str], evaluations: Sequence[Evaluation], name: str
) -> list[np.ndarray]:
    """The returns of the policy to compare with, on the starts of each run.

    Args:
        runs: Names of the runs.
        evaluations: Their results.
        name: The policy. A run that does not have it takes it from the first other run on the same
            starts, on which the controller that runs today has the same returns.

    Raises:
        InputError: If no policy of this name was run on the starts of some run.
    """
    available = [seed_returns(evaluation, name) for evaluation in evaluations]
    taken = []
    for i, (run, own) in enumerate(zip(runs, evaluations, strict=True)):
        others = [
            returns
            for returns, other in zip(available, evaluations, strict=True)
            if returns is not None and _same_starts(own, other)
        ]
        returns = available[i] if available[i] is not None else next(iter(others), None)
        if returns is None:
            known = dict.fromkeys(row.group for row in own.tables.rows if row.role != LOG)
            raise InputError(
                f"no policy {name!r} was run on the starts of run {run}, which has "
                f"{', '.join(known) or 'none'}; name one of these with --against"
            )
        taken.append(returns)
    return taken


def paired_with(returns: np.ndarray, baseline: np.ndarray, *, level: float) -> Paired:
    """Compares two policies seed by seed and start by start.

    Args:
        returns: Returns of the one, shape ``(seed, start)``.
        baseline: Returns of the other on the same starts; of several seeds the first ones are used,
            as many as the policy with fewer has, but a single one is paired with all.
        level: Confidence level of the interval.
    """
    several = min(len(returns), len(baseline))
    if several > 1:
        returns, baseline = returns[:several], baseline[:several]
    differences = np.asarray(returns, np.float64) - np.asarray(baseline, np.float64)
    if len(differences) > 1:
        gain = crossed_estimate(differences, level=level)
    else:
        gain = mean_estimates(differences[0][:, None], level=level)[0]
    mean = np.asarray(differences.mean(axis=0), np.float32)
    p_value = float(_test(mean, np.zeros_like(mean)).p_value)
    each_seed = tuple(map(float, differences.mean(axis=1)))
    return Paired(gain, each_seed, None if np.isnan(p_value) else p_value)


def _same_starts(one: Evaluation, other: Evaluation) -> bool:
    """Whether the controller that runs today has the same returns in both."""
    if one.tables.environment != other.tables.environment:
        return False
    first, second = (seed_returns(run, run.tables.reference) for run in (one, other))
    return first is not None and second is not None and np.array_equal(first, second)
