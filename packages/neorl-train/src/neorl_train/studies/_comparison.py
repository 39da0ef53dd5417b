"""Compares several runs: their differences, a row for each policy, and learners over plants."""

import contextlib
import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import load_policy
from neorl_core import InputError
from neorl_core.statistics import (
    holm,
    performance_profile,
)
from neorl_train.judging._results import LOG, MEAN, Evaluation, read_evaluation
from neorl_train.judging._summary import (
    mean_estimates,
    paired_comparison,
    seed_returns,
    wilcoxon_p_value,
)
from neorl_train.judging._tables import Estimate, PolicyRow, PooledRow, ResultTables, Role
from neorl_train.judging._verdict import Verdict, read_verdict
from neorl_train.runs._directory import DIVERGED, FINISHED, RunDirectory, policy_file
from neorl_train.studies._benchmark import interquartile_estimate


def baselines(
    runs: Sequence[str], evaluations: Sequence[Evaluation], name: str
) -> list[np.ndarray]:
    """The returns of the policy to compare with, on the starts of each run.

    A run that does not have it takes it from the first other run on the same starts, on which the
    controller that runs today has the same returns.

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


def _same_starts(one: Evaluation, other: Evaluation) -> bool:
    """Whether the controller that runs today, or the mean logged action, returns the same in both.

    A Gymnasium environment has no controller of today.
    """
    places = [(run.tables.environment, run.tables.judge) for run in (one, other)]
    if places[0] != places[1]:
        return False
    first, second = (seed_returns(run, run.tables.reference or MEAN) for run in (one, other))
    return first is not None and second is not None and np.array_equal(first, second)


LEFT_OUT_SECTIONS = ("output", "checkpoints")
"""Sections of a configuration that influence no result."""
LEFT_OUT_KEYS = ("devices.memory",)
"""Single settings that influence no result."""
STARTS_KEY = "evaluation.seed"

OTHER_COLUMNS = ("data.source", "training.algorithms", "evaluation.candidate")
OF_THE_SOURCE = (
    *("penalty.", "limits.", "fallback.", "evaluation.incumbent", "evaluation.environment"),
)
"""Settings that naturally differ between plants; shown only if all runs have the same source."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """One learner with the guard, over all its seeds, or one controller, of one run.

    Attributes:
        run: Name of the run's folder.
        source: Plant, or log if there is no simulator.
        settings: Settings of this run that differ between the compared runs.
        policy: Learner or controller.
        role: Role of the policy.
        seeds: Number of trained policies that are pooled.
        unit: Unit of the return.
        returns: Mean return over seeds and starts; ``None`` if no policy could be run.
        incumbent: Name of the controller that runs today in this run; empty if the run names none.
        gain: Paired gain in return over the incumbent; ``None`` for the incumbent itself and if
            there was no simulator.
        each_seed: Gain of every single seed.
        p_value: p value of Wilcoxon's two-sided signed-rank test of the returns, averaged over the
            seeds, against those of the incumbent on the same starts; ``None`` without a gain.
        adjusted: The p value after Holm's adjustment for all rows of the comparison.
        spread: Standard deviation of the incumbent's returns over the starts; zero if there is no
            incumbent.
        worst_cost: Cost whose limit was broken in the most episodes; empty if there is none.
        over: Fraction of the episodes over that limit, for the worst seed.
        trips: Fraction of the episodes that the plant ended, for the worst seed; ``None`` if
            unknown.
        explained: Fraction of the variance of the logged actions on held-out rows that the policy's
            actions explain, averaged over seeds and channels; ``None`` if there was a simulator.
        answer: Verdict of the run if this is its candidate; empty otherwise.
        predicted: Gain in return over the incumbent that a plant model of the log predicts;
            ``None`` if there was a simulator, for all but the candidate, and without such a model.
        size: Largest number of numbers in the policy of one of its seeds; ``None`` for a controller
            and for a policy whose file cannot be read.
    """

    run: str
    source: str
    settings: dict[str, str]
    policy: str
    role: Role
    seeds: int
    unit: str
    returns: Estimate | None = None
    incumbent: str
    gain: Estimate | None = None
    each_seed: tuple[float, ...] = ()
    p_value: float | None = None
    adjusted: float | None = None
    spread: float
    worst_cost: str = ""
    over: Estimate | None = None
    trips: float | None = None
    explained: float | None = None
    answer: str = ""
    predicted: Estimate | None = None
    size: int | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison of several runs.

    Attributes:
        level: Confidence level of all intervals.
        rows: Rows of every run, learners before controllers.
        against: Policy that gains and p values are compared with; empty for the incumbents.
        diverged: Learners without a row, because they diverged, by the name of their run.
    """

    level: float
    rows: tuple[ComparedRow, ...]
    against: str = ""
    diverged: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


def compare_runs(paths: Sequence[Path], *, against: str = "") -> Comparison:
    """Reads the evaluations of several runs.

    Args:
        paths: Directories of the runs.
        against: Learner, one of its seeds, or controller that gains and p values are compared with;
            empty for the incumbent of each run. A run that does not have it takes it from another
            one on the same starts.

    Returns:
        One row for each learner of each run, and one for each controller of a plant; a controller
        with the same results in several runs appears once.

    Raises:
        InputError: If none is given, one is not a run or is not finished, one is given twice,
            their intervals have different confidence levels, or ``against`` was not run on the
            starts of one of them.
    """
    runs = [RunDirectory(path.absolute()) for path in paths]
    repeated = [str(p) for p, run in zip(paths, runs, strict=True) if runs.count(run) > 1]
    if repeated:
        raise InputError(f"{repeated[0]} is given twice; name each run once")
    diverged = {}
    for run in runs:
        record = run.record()
        if lost := tuple(record.get(DIVERGED, {})):
            diverged[run.path.name] = lost
        if record["status"] != FINISHED:
            raise InputError(f"{run.path} is {record['status']}, not finished: {run.resume_line()}")
    if not runs:
        raise InputError(
            "there is no run to compare; name some, as `neorl-train compare runs/0001 runs/0002`"
        )
    evaluations = [read_evaluation(run.path) for run in runs]
    differing = _differences([_flat(*pair) for pair in zip(runs, evaluations, strict=True)])
    levels = {evaluation.tables.level for evaluation in evaluations}
    if len(levels) > 1:
        raise InputError(
            "these runs have intervals of different confidence levels "
            f"({', '.join(map(str, sorted(levels)))}); compare runs with the same evaluation.level"
        )
    level, names = levels.pop(), [run.path.name for run in runs]
    others = baselines(names, evaluations, against) if against else [None] * len(runs)
    rows: list[ComparedRow] = []
    for run, evaluation, settings, other in zip(runs, evaluations, differing, others, strict=True):
        own = _rows(run, evaluation, settings)
        if other is not None:
            own = [_compare_with(row, evaluation, other, against, level) for row in own]
        rows += [row for row in own if not _is_repeated(row, rows)]
    return Comparison(level, _adjust(rows), against, diverged)


def _compare_with(
    row: ComparedRow, evaluation: Evaluation, baseline: np.ndarray, name: str, level: float
) -> ComparedRow:
    """A row whose gain and p value are those over another policy than the incumbent."""
    returns = seed_returns(evaluation, row.policy)
    if returns is None or row.policy == name:
        return dataclasses.replace(row, gain=None, each_seed=(), p_value=None)
    return dataclasses.replace(row, **paired_comparison(returns, baseline, level=level)._asdict())


def _adjust(rows: Sequence[ComparedRow]) -> tuple[ComparedRow, ...]:
    """The rows with their p values adjusted, because the best of many rows looks good by chance."""
    tested = [row.p_value for row in rows if row.p_value is not None]
    adjusted = iter(np.asarray(holm(np.asarray(tested, np.float32))).tolist())
    return tuple(
        row if row.p_value is None else dataclasses.replace(row, adjusted=next(adjusted))
        for row in rows
    )


def _is_repeated(row: ComparedRow, rows: Sequence[ComparedRow]) -> bool:
    """Whether an earlier run has the same controller on the same starts, with the same results."""
    if row.role == "learner":
        return False
    incumbent = row.policy == row.incumbent
    # Results that are compared with no incumbent do not depend on its name.
    same = [
        dataclasses.replace(other, run=row.run, incumbent=row.incumbent)
        for other in rows
        if other.policy == row.policy and (other.policy == other.incumbent) == incumbent
    ]
    return row in same


def _rows(run: RunDirectory, evaluation: Evaluation, settings: dict[str, str]) -> list[ComparedRow]:
    tables, answer = evaluation.tables, read_verdict(run.path)
    source = tables.environment or tables.judge or Path(evaluation.source.name).name
    spread = next((r.return_std for r in tables.rows if r.name == tables.reference), 0.0)
    common: dict[str, Any] = {
        "run": run.path.name,
        "source": source,
        "unit": tables.reward_unit,
        # Only a prediction from the log names the controller that runs today.
        "incumbent": tables.reference if tables.environment else answer.reference,
        "spread": spread,
    }
    # Policies that were scored have returns, and no row for their distance to the log.
    rows = [] if tables.judge else _imitations(run, evaluation, common, settings, answer)
    groups = list(dict.fromkeys(row.group for row in tables.rows if row.role == "learner"))
    for group in groups:
        members = [r for r in tables.rows if r.group == group and r.role == "learner" and r.guarded]
        members = members or [r for r in tables.rows if r.group == group and r.role == "learner"]
        names = [member.name for member in members]
        pooled, paired = _pooled_row(tables, group), {}
        if pooled is not None:
            gain = pooled.fresh_seeds or pooled.difference
            paired = _paired_fields(evaluation, group, gain, pooled.each_seed)
        rows.append(
            ComparedRow(
                **common,
                **paired,
                **_worst_fields(members),
                settings=_learner_settings(settings, group, groups),
                policy=group,
                role="learner",
                seeds=len(members),
                returns=_pooled_return(evaluation, group),
                answer=answer.answer if tables.candidate in names else "",
                size=_size(run, names),
            )
        )
    for row in tables.rows:
        if row.role == "learner" or row.guarded:
            continue
        gain, paired = row.difference, {}
        if tables.environment and row.name != tables.reference and gain is not None:
            paired = _paired_fields(evaluation, row.name, gain, [gain])
        rows.append(
            ComparedRow(
                **common,
                **paired,
                **_worst_fields([row]),
                settings=_learner_settings(settings, "", groups),
                policy=row.name,
                role=row.role,
                seeds=1,
                returns=row.returns,
            )
        )
    return rows


def _paired_fields(
    evaluation: Evaluation, name: str, gain: Estimate, each_seed: Sequence[Estimate]
) -> dict[str, Any]:
    """Fields of a row that is paired with the incumbent."""
    each = tuple(seed.value for seed in each_seed)
    return {"gain": gain, "each_seed": each, "p_value": _p_value(evaluation, name)}


def _worst_fields(members: Sequence[PolicyRow]) -> dict[str, Any]:
    """Fields of a row on limits and trips, for the worst seed."""
    cells = [cell for member in members for cell in member.costs]
    trips = [member.trips.value for member in members if member.trips is not None]
    worst: dict[str, Any] = {"trips": max(trips)} if trips else {}
    if cells:
        cell = max(cells, key=lambda cell: (cell.violating.value, cell.violating.high))
        worst |= {"worst_cost": cell.name, "over": cell.violating}
    return worst


def _size(run: RunDirectory, policies: Sequence[str]) -> int | None:
    """The number of numbers in the largest of several policies."""
    sizes = []
    for name in policies:
        with contextlib.suppress(InputError, OSError):
            leaves = jax.tree.leaves(load_policy(run.path / policy_file(name)).policy)
            sizes.append(sum(leaf.size for leaf in leaves))
    return max(sizes, default=None)


def _imitations(
    run: RunDirectory,
    evaluation: Evaluation,
    common: dict[str, Any],
    settings: dict[str, str],
    answer: Verdict,
) -> list[ComparedRow]:
    """Rows of learners on a log without a simulator: how near their actions are to the log's."""
    predicted = _predicted_gain(evaluation, answer)
    judged = {fit.group for fit in evaluation.imitation if fit.policy == answer.candidate}
    groups: dict[str, list[Any]] = {}
    for fit in evaluation.imitation:
        groups.setdefault(fit.group, []).append(fit)
    return [
        ComparedRow(
            **common,
            settings=_learner_settings(settings, group, list(groups)),
            policy=group,
            role="learner" if fits[0].family else "classical",
            seeds=len({fit.policy for fit in fits}),
            explained=float(np.mean([fit.explained for fit in fits])),
            predicted=predicted if group in judged else None,
            answer=answer.answer if group in judged else "",
            size=_size(run, [fit.policy for fit in fits]) if fits[0].family else None,
        )
        for group, fits in groups.items()
    ]


def _predicted_gain(evaluation: Evaluation, answer: Verdict) -> Estimate | None:
    """The predicted gain of the candidate of a run on a log, which its verdict was based on."""
    for clause in answer.clauses if not evaluation.tables.environment else ():
        if clause.name == "return":
            return Estimate(clause.value, clause.low, clause.high)
    return None


def _pooled_row(tables: ResultTables, group: str) -> PooledRow | None:
    """All seeds of a learner with the guard, compared with the incumbent."""
    for row in tables.pooled:
        if row.group == group and row.guarded and row.against == tables.reference:
            return row
    return None


def _pooled_return(evaluation: Evaluation, group: str) -> Estimate:
    """Mean over seeds and starts; intervals are over the starts."""
    returns = seed_returns(evaluation, group)
    if returns is None:
        return next(row.returns for row in evaluation.tables.rows if row.group == group)
    return mean_estimates(returns.mean(axis=0)[:, None], level=evaluation.tables.level)[0]


def _p_value(evaluation: Evaluation, name: str) -> float | None:
    """The p value of the paired differences to the incumbent; ``None`` if there is no incumbent."""
    reference = evaluation.tables.reference
    if not evaluation.tables.environment or name == reference:
        return None
    returns, incumbent = (seed_returns(evaluation, one) for one in (name, reference))
    if returns is None or incumbent is None:
        return None
    return wilcoxon_p_value((returns - incumbent).mean(axis=0))


def _flat(run: RunDirectory, evaluation: Evaluation) -> dict[str, str]:
    """The configuration of a run, one entry for each value, by dotted name.

    Where no policy was run, the seed of the starts influences nothing, so it is left out.
    """
    try:
        content = tomllib.loads(run.config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{run.config} is damaged ({error}); restore it") from None
    settings = {name: value for name, value in content.items() if name not in LEFT_OUT_SECTIONS}
    acted = evaluation.tables.environment or evaluation.tables.judge
    left_out = LEFT_OUT_KEYS if acted else (*LEFT_OUT_KEYS, STARTS_KEY)
    return {name: value for name, value in _leaves(settings, "") if name not in left_out}


def _leaves(value: Mapping[str, Any], where: str) -> Any:
    for name, entry in value.items():
        dotted = f"{where}.{name}" if where else name
        if isinstance(entry, Mapping):
            yield from _leaves(entry, dotted)
        else:
            listed = entry if isinstance(entry, list) else [entry]
            yield dotted, ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in listed)


def _differences(configurations: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The entries of each configuration that are not equal in all of them."""
    sources = {settings.get("data.source") for settings in configurations}
    skipped = OTHER_COLUMNS + (OF_THE_SOURCE if len(sources) > 1 else ())
    names = sorted({name for settings in configurations for name in settings})
    names = [name for name in names if not name.startswith(skipped)]
    differing = []
    for name in names:
        values = [settings.get(name) for settings in configurations]
        stated = [value for value in values if value is not None]
        of_one_learner = name.startswith("algorithms.") and len(stated) < len(values)
        if len(set(stated if of_one_learner else values)) > 1:
            differing.append(name)
    return [
        {name: settings[name] for name in differing if name in settings}
        for settings in configurations
    ]


def _learner_settings(
    settings: dict[str, str], group: str, groups: Sequence[str]
) -> dict[str, str]:
    """Leaves out the hyperparameters of the other learners of a run."""
    others = [f"algorithms.{name}." for name in groups if name != group]
    return {n: value for n, value in settings.items() if not n.startswith(tuple(others))}


THRESHOLDS = tuple(round(0.5 * step, 1) for step in range(-8, 9))
"""Thresholds of a profile: gains in standard deviations of the incumbent's return."""


@dataclasses.dataclass(frozen=True)
class LearnerAggregate:
    """One learner with one choice of settings over several plants.

    The score of a seed is its gain over the incumbent in standard deviations of the incumbent's
    return over the starts. It is comparable between plants, and above zero if the learner is better
    than the incumbent. It does not show whether limits are kept.

    Attributes:
        learner: Name of the learner.
        settings: Its settings that differ between the compared runs.
        sources: Plants that are included.
        seeds: Number of seeds per plant.
        score: Interquartile mean of the scores, with a bootstrap interval that resamples the seeds
            within each plant; its ends are NaN with a single seed.
        profile: Fraction of the scores above each of :data:`THRESHOLDS`.
        deployed: Number of runs that have this learner as candidate and answered *deploy*.
        judged: Number of runs that have this learner as candidate.
    """

    learner: str
    settings: dict[str, str]
    sources: tuple[str, ...]
    seeds: int
    score: Estimate
    profile: tuple[float, ...]
    deployed: int
    judged: int


def aggregate(comparison: Comparison) -> tuple[LearnerAggregate, ...]:
    """One row for each learner and choice of settings that ran on at least two plants.

    Args:
        comparison: Result of :func:`compare_runs`.

    Returns:
        The rows, best first. If plants have different numbers of seeds, only the first seeds of
        each are used, as many as the plant with the fewest has.
    """
    groups: dict[Any, list[ComparedRow]] = {}
    for row in comparison.rows:
        if row.role == "learner" and row.each_seed and row.spread > 0:
            groups.setdefault((row.policy, tuple(row.settings.items())), []).append(row)
    aggregates = [
        _aggregate(policy, dict(settings), rows, comparison.level)
        for (policy, settings), rows in groups.items()
        if len({row.source for row in rows}) > 1
    ]
    return tuple(sorted(aggregates, key=lambda learner: -learner.score.value))


def _aggregate(
    learner: str, settings: dict[str, str], rows: Sequence[ComparedRow], level: float
) -> LearnerAggregate:
    by_source: dict[str, list[float]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).extend(g / row.spread for g in row.each_seed)
    seeds = min(map(len, by_source.values()))
    scores = np.asarray([values[:seeds] for values in by_source.values()], np.float64).T
    judged = [row for row in rows if row.answer]
    profile = performance_profile(scores.astype(np.float32), jnp.asarray(THRESHOLDS))
    return LearnerAggregate(
        learner=learner,
        settings=settings,
        sources=tuple(by_source),
        seeds=seeds,
        score=interquartile_estimate(scores, level),
        profile=tuple(map(float, profile)),
        deployed=sum(row.answer == "deploy" for row in judged),
        judged=len(judged),
    )
