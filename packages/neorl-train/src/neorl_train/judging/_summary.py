"""Tables from raw results: every mean with its interval, paired if the starts are common.

The resampling unit is the episode, that is the start: everything that belongs to one start (all
policies, all seeds, all costs) is resampled together, so differences stay paired. All intervals are
computed in float64.
"""

import dataclasses
from collections.abc import Collection, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import betaincinv

from neorl_core import Spec
from neorl_core.statistics import Interval, bootstrap_interval, crossed_interval, wilcoxon_test
from neorl_envs.blocks import Term
from neorl_train.judging._results import LOG, Episodes, Evaluation, PolicyResult, limited_quantity
from neorl_train.judging._tables import (
    AmountCell,
    AmountKind,
    CostCell,
    Estimate,
    PolicyRow,
    PooledCost,
    PooledRow,
)

RESAMPLES = 16_000
"""For rare large losses BCa uses an extreme quantile: of 4,000 resamples the eighth smallest."""
COLUMNS_AT_ONCE = 16  # tables of any width use the same two programs
_SEED = 20_260_101


def mean_estimates(
    samples: Float[np.ndarray, "episode quantity"], *, level: float
) -> list[Estimate]:
    """Bootstrap intervals (BCa) of the mean of every column; rows are resampled together.

    Args:
        samples: At least two episodes as rows, one column for each quantity.
        level: Confidence level of every interval, in (0, 1).

    Returns:
        One estimate per column. A column with a NaN gets NaN, which fails every clause.

    Raises:
        ValueError: If there are fewer than two episodes.
    """
    samples = np.asarray(samples, np.float64)
    estimates: list[Estimate] = []
    for begin in range(0, samples.shape[1], COLUMNS_AT_ONCE):
        chunk = samples[:, begin : begin + COLUMNS_AT_ONCE]
        padded = np.zeros((len(samples), COLUMNS_AT_ONCE))
        padded[:, : chunk.shape[1]] = chunk
        with jax.enable_x64(True):
            interval = bootstrap_interval(
                padded, jax.random.key(_SEED), level=level, resamples=RESAMPLES, method="bca"
            )
            estimates += _estimates(interval, chunk.shape[1])
    return estimates


def fraction_estimates(
    outcomes: Bool[np.ndarray, "episode event"], *, level: float
) -> list[Estimate]:
    """Fractions of episodes with exact intervals (Clopper-Pearson), one per column.

    The coverage of an interval is at least ``level``, whatever the probability is.

    Source: Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, Biometrika 26 (1934) 404.
    """
    outcomes = np.asarray(outcomes, np.bool_)
    n, tail = len(outcomes), (1 - level) / 2
    counts = outcomes.sum(axis=0)
    ends = (
        counts / n,
        np.where(counts > 0, betaincinv(np.maximum(counts, 1), n - counts + 1, tail), 0.0),
        np.where(counts < n, betaincinv(counts + 1, np.maximum(n - counts, 1), 1 - tail), 1.0),
    )
    return [Estimate(*map(float, column)) for column in zip(*ends, strict=True)]


def crossed_estimate(samples: Float[np.ndarray, "seed episode"], *, level: float) -> Estimate:
    """Interval of the grand mean with both seeds and starts treated as random."""
    with jax.enable_x64(True):
        interval = _crossed_interval(np.asarray(samples, np.float64), level=level)
        return Estimate(*(float(end) for end in interval))


_crossed_interval = jax.jit(crossed_interval, static_argnames="level")
"""One program; without it, the first interval would compile 80 small ones."""


def _estimates(interval: Interval, count: int) -> list[Estimate]:
    ends = [np.asarray(end, np.float64)[:count] for end in interval]
    return [Estimate(*map(float, column)) for column in zip(*ends, strict=True)]


def policy_rows(
    results: Sequence[PolicyResult],
    spec: Spec,
    *,
    reference: str,
    level: float,
    detailed: Collection[tuple[str, bool]] = (),
    terms: Sequence[Term] = (),
) -> tuple[PolicyRow, ...]:
    """Computes one row per result; differences are paired with the unguarded reference.

    Args:
        results: Either all paired, or each with its own starts.
        spec: Cost channels with their limits.
        reference: Name of the controller to which differences refer; empty for none.
        level: Confidence level of the intervals.
        detailed: Names and guards of the policies for which single amounts are estimated too.
        terms: Terms of the reward, in the order of the episodes' ``terms``.

    Returns:
        The rows, in the order of the results.
    """
    if not results:
        return ()
    base = _find(results, reference)
    columns: dict[Hashable, np.ndarray] = {}
    for i, result in enumerate(results):
        columns[i, "return"] = result.episodes.returns
        columns[i, "length"] = result.episodes.length
        for j in range(spec.n_cost):
            columns[i, "total", j] = result.episodes.cost_sum[:, j]
            columns[i, "worst", j] = result.episodes.cost_worst[:, j]
        if base is not None:
            columns[i, "return", "difference"] = result.episodes.returns - base.returns
            for j in range(spec.n_cost):
                of_base = limited_quantity(base, spec, j)
                columns[i, j, "difference"] = limited_quantity(result.episodes, spec, j) - of_base
    amounts = {
        i: amounts_of(result.episodes, spec, terms)
        for i, result in enumerate(results)
        if (result.name, result.guarded) in detailed
    }
    of_base = None if base is None else amounts_of(base, spec, terms)
    for i, result_amounts in amounts.items():
        for key, values in result_amounts.items():
            columns[i, "amount", key] = values
            if of_base is not None and results[i].episodes is not base:
                columns[i, "amount", key, "difference"] = values - of_base[key]
    means = _estimate(columns, level)
    cells = {
        i: tuple(_amount(key, i, means) for key in result_amounts)
        for i, result_amounts in amounts.items()
    }
    least_differences: list[float | None] = [None] * len(results)
    if base is not None:
        least_differences = [
            float(np.min(columns[i, "return", "difference"])) for i in range(len(results))
        ]
    rows = [
        _row(i, result, spec, means, level, least_differences[i])
        for i, result in enumerate(results)
    ]
    return tuple(dataclasses.replace(row, amounts=cells.get(i, ())) for i, row in enumerate(rows))


class Amount(NamedTuple):
    """Identifies one amount of an episode, with the fields that the cells of the tables have."""

    kind: AmountKind
    name: str
    unit: str
    worth: float = 0.0


def amounts_of(episodes: Episodes, spec: Spec, terms: Sequence[Term]) -> dict[Amount, np.ndarray]:
    """Every amount of an episode: terms of the return, travel, reversals, time beyond limits."""
    amounts: dict[Amount, np.ndarray] = {}
    for j, term in enumerate(terms if episodes.terms.shape[-1] == len(terms) else ()):
        amounts[Amount("term", term.name, term.unit, term.worth)] = episodes.terms[:, j]
    for j, channel in enumerate(spec.action):
        amounts[Amount("travel", channel.name, channel.unit)] = episodes.travel[:, j]
        amounts[Amount("reversals", channel.name, "1")] = episodes.reversals[:, j].astype(float)
    for j, channel in enumerate(spec.cost):
        if channel.per == "step":
            minutes = episodes.steps_over[:, j] * spec.dt / 60
            amounts[Amount("beyond", channel.name, "min")] = minutes
    return amounts


def _amount(key: Amount, i: int, means: dict[Hashable, Estimate]) -> AmountCell:
    difference = means.get((i, "amount", key, "difference"))
    return AmountCell(*key, amount=means[i, "amount", key], difference=difference)


def pooled_rows(
    results: Sequence[PolicyResult],
    spec: Spec,
    *,
    against: Sequence[PolicyResult],
    level: float,
) -> tuple[PooledRow, ...]:
    """Compares each learner's pooled seeds, guarded and not, with other policies per episode.

    Args:
        results: Results of paired episodes.
        spec: Cost channels with their limits.
        against: Results of the policies to compare with, paired with these.
        level: Confidence level of the intervals.

    Returns:
        One row for each group, guard and compared policy.
    """
    groups: dict[tuple[str, bool], list[PolicyResult]] = {}
    for result in results:
        if result.role == "learner":
            groups.setdefault((result.group, result.guarded), []).append(result)
    pairs = [(seeds, other) for seeds in groups.values() for other in against]
    columns: dict[Hashable, np.ndarray] = {}
    differences = []
    for i, (seeds, other) in enumerate(pairs):
        differences.append(_compare(columns, i, seeds, other))
        _compare_costs(columns, i, seeds, other, spec)
    means = _estimate(columns, level) if columns else {}
    return tuple(
        _pooled_row(i, seeds, other, spec, differences[i], means, level)
        for i, (seeds, other) in enumerate(pairs)
    )


def _find(results: Sequence[PolicyResult], reference: str) -> Episodes | None:
    for result in results:
        if result.name == reference and not result.guarded:
            return result.episodes
    return None


def _estimate(columns: dict[Hashable, np.ndarray], level: float) -> dict[Hashable, Estimate]:
    estimates = mean_estimates(np.stack(list(columns.values()), axis=1), level=level)
    return dict(zip(columns, estimates, strict=True))


def _row(
    i: int,
    result: PolicyResult,
    spec: Spec,
    means: dict[Hashable, Estimate],
    level: float,
    least_difference: float | None,
) -> PolicyRow:
    episodes = result.episodes
    steps = max(int(episodes.length.sum()), 1)
    nothing_broken = np.logical_not(episodes.violated.any(axis=1))
    return PolicyRow(
        name=result.name,
        group=result.group,
        role=result.role,
        guarded=result.guarded,
        n_episodes=episodes.count,
        returns=means[i, "return"],
        return_std=float(np.std(episodes.returns, ddof=1)),
        return_min=float(np.min(episodes.returns)),
        return_max=float(np.max(episodes.returns)),
        length=means[i, "length"],
        length_std=float(np.std(episodes.length, ddof=1)),
        costs=_cells(i, episodes, spec, means, level),
        satisfied=_fraction(nothing_broken, level),
        success=None if episodes.success is None else _fraction(episodes.success, level),
        trips=None if episodes.trip is None else _fraction(episodes.trip, level),
        n_trips=0 if episodes.trip is None else int(episodes.trip.sum()),
        filtered=float(episodes.filtered.sum()) / steps,
        fallback=float(episodes.fallback.sum()) / steps,
        difference=means.get((i, "return", "difference")),
        least_difference=least_difference,
    )


def _fraction(happened: Any, level: float) -> Estimate:
    return fraction_estimates(np.asarray(happened)[:, None], level=level)[0]


def _cells(
    i: int, episodes: Episodes, spec: Spec, means: dict[Hashable, Estimate], level: float
) -> tuple[CostCell, ...]:
    violating = fraction_estimates(episodes.violated, level=level)
    return tuple(
        CostCell(
            name=channel.name,
            unit=channel.unit,
            limit=float(channel.limit),
            per=channel.per,
            total=means[i, "total", j],
            worst=means[i, "worst", j],
            largest=float(np.max(limited_quantity(episodes, spec, j))),
            violations=int(episodes.violated[:, j].sum()),
            violating=violating[j],
            steps_over=int(episodes.steps_over[:, j].sum()),
            difference=means.get((i, j, "difference")),
        )
        for j, channel in enumerate(spec.cost)
    )


def _compare(
    columns: dict[Hashable, np.ndarray], i: int, seeds: Sequence[PolicyResult], other: PolicyResult
) -> np.ndarray:
    """Adds quantities to estimate; returns the differences in return, ``(seed, start)``."""
    differences = np.stack([seed.episodes.returns - other.episodes.returns for seed in seeds])
    columns[i, "return"] = differences.mean(axis=0)
    columns.update({(i, "seed", s): row for s, row in enumerate(differences)})
    return differences


def _compare_costs(
    columns: dict[Hashable, np.ndarray],
    i: int,
    seeds: Sequence[PolicyResult],
    other: PolicyResult,
    spec: Spec,
) -> None:
    for j in range(spec.n_cost):
        pooled = np.mean([limited_quantity(seed.episodes, spec, j) for seed in seeds], axis=0)
        compared = limited_quantity(other.episodes, spec, j)
        columns[i, "mean", j], columns[i, "other", j] = pooled, compared
        columns[i, "less", j] = pooled - compared


def _pooled_row(
    i: int,
    seeds: Sequence[PolicyResult],
    other: PolicyResult,
    spec: Spec,
    differences: np.ndarray,
    means: dict[Hashable, Estimate],
    level: float,
) -> PooledRow:
    return PooledRow(
        group=seeds[0].group,
        guarded=seeds[0].guarded,
        seeds=tuple(seed.name for seed in seeds),
        against=other.name,
        against_role=other.role,
        difference=means[i, "return"],
        fresh_seeds=crossed_estimate(differences, level=level) if len(seeds) > 1 else None,
        each_seed=tuple(means[i, "seed", s] for s in range(len(seeds))),
        costs=tuple(
            PooledCost(
                name=channel.name,
                unit=channel.unit,
                mean=means[i, "mean", j],
                other=means[i, "other", j],
                difference=means[i, "less", j],
            )
            for j, channel in enumerate(spec.cost)
        ),
    )


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


def seed_returns(evaluation: Evaluation, name: str) -> np.ndarray | None:
    """Returns of a learner's seeds behind their guard, or of a controller, by seed and start.

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


def paired_comparison(returns: np.ndarray, baseline: np.ndarray, *, level: float) -> Paired:
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
    each_seed = tuple(map(float, differences.mean(axis=1)))
    p_value = wilcoxon_p_value(differences.mean(axis=0))
    return Paired(mean_over_seeds(differences, level=level), each_seed, p_value)


def mean_over_seeds(samples: Float[np.ndarray, "seed episode"], *, level: float) -> Estimate:
    """Mean over seeds and starts; with several seeds, the interval treats them as random too."""
    if len(samples) > 1:
        return crossed_estimate(samples, level=level)
    return mean_estimates(samples.T, level=level)[0]


def wilcoxon_p_value(differences: Float[np.ndarray, " episode"]) -> float | None:
    """P value of Wilcoxon's two-sided signed-rank test; ``None`` if it is unknown."""
    single = np.asarray(differences, np.float32)
    p_value = float(_test(single, np.zeros_like(single)).p_value)
    return None if np.isnan(p_value) else p_value


_test = jax.jit(wilcoxon_test)
