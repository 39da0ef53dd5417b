"""Scores of policies in a Gymnasium environment, which judges them by their returns alone."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from neorl_core import Policy, Spec
from neorl_envs.ingest import dataset_from_rollouts
from neorl_envs.scoring import GymnasiumJudge, episode_return
from neorl_train.judging._pool import Pool
from neorl_train.judging._results import Episodes, PolicyResult, limited_quantity
from neorl_train.judging._rollouts import recorded_episodes
from neorl_train.judging._summary import crossed_estimate, mean_estimates
from neorl_train.judging._tables import EnvironmentScore

NO_RULE = (
    "a Gymnasium environment has no controller of today, no guard and no limits of a plant, so "
    "scores in it permit nothing on one"
)
"""Why scores in a Gymnasium environment are no verdict."""


def environment_results(
    judge: GymnasiumJudge,
    pool: Pool,
    controllers: Mapping[str, Policy],
    seeds: Sequence[int],
    spec: Spec,
) -> list[PolicyResult]:
    """The episodes of all candidates and controllers, all with the same seeds of their resets."""

    def episodes(policy: Policy) -> Episodes:
        return environment_episodes(judge, policy, seeds, spec)

    learned = [
        PolicyResult(one.id, one.group, "learner", False, episodes(one.policy), one.seeds)
        for one in pool
    ]
    compared = [
        PolicyResult(name, name, "classical", False, episodes(policy))
        for name, policy in controllers.items()
    ]
    return learned + compared


def environment_episodes(
    judge: GymnasiumJudge, policy: Policy, seeds: Sequence[int], spec: Spec
) -> Episodes:
    """The episodes of one policy, one for each seed of a reset, without guard.

    Returns are the sums of a plain loop in double precision, up to rounding in the policy.
    """
    rollouts = judge.rollouts(policy, seeds)
    rows = dataset_from_rollouts(spec, rollouts, source=judge.name)
    returns = np.array([episode_return(rollout) for rollout in rollouts])
    return dataclasses.replace(recorded_episodes(rows, spec), returns=returns)


def environment_scores(
    results: Iterable[PolicyResult], spec: Spec, *, level: float
) -> tuple[EnvironmentScore, ...]:
    """Pools the seeds of each policy, which all played the same episodes.

    Args:
        results: Episodes of every seed of every policy.
        spec: Cost channels.
        level: Confidence level of the intervals.
    """
    groups: dict[str, list[PolicyResult]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return tuple(_score(group, members, spec, level) for group, members in groups.items())


def _score(
    group: str, members: Sequence[PolicyResult], spec: Spec, level: float
) -> EnvironmentScore:
    returns = np.stack([member.episodes.returns for member in members])
    pooled = len(members) > 1
    estimate = (
        crossed_estimate(returns, level=level)
        if pooled
        else mean_estimates(returns.T, level=level)[0]
    )
    costs = [
        float(np.mean([limited_quantity(member.episodes, spec, i) for member in members]))
        for i in range(spec.n_cost)
    ]
    return EnvironmentScore(
        policy=group,
        role=members[0].role,
        seeds=len(members),
        returns=estimate,
        seed_std=float(np.std(returns.mean(axis=1), ddof=1)) if pooled else float("nan"),
        costs=tuple(costs),
    )
