"""Evaluates every policy on the same starts, with and without guard, with the controllers."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from neorl_core import Environment, Policy, Spec
from neorl_core.control import ConstantPolicy
from neorl_core.infrastructure import unknown_name
from neorl_envs import Dataset
from neorl_envs.blocks import Term
from neorl_envs.plants import Plant
from neorl_envs.recording import BehaviourPolicy, behaviour_policies
from neorl_safety.constraints import ActionConstraints, AnyConstraints, action_constraints
from neorl_safety.guards import GuardSettings, default_settings, guard_with
from neorl_train.configuration._sections import PAIRED_STARTS_SEED, EvaluationConfig
from neorl_train.data._source import require_same_channels
from neorl_train.judging._logged import source_of
from neorl_train.judging._pool import Pool, as_pool, check_names
from neorl_train.judging._results import (
    BEHAVIOUR,
    HARDEST,
    LOG,
    LOWEST,
    TYPICAL,
    Band,
    Episodes,
    Evaluation,
    PolicyResult,
    Trace,
    limited_quantity,
)
from neorl_train.judging._rollouts import (
    all_rollouts,
    episodes_of,
    join,
    recorded_episodes,
    rollouts_in_chunks,
    starts_key,
    trace_of,
    with_one_structure,
)
from neorl_train.judging._summary import policy_rows, pooled_rows
from neorl_train.judging._tables import ResultTables, Role
from neorl_train.runs._names import FALLBACK

STARTS_AT_ONCE = 128
WITHOUT_PLANT = "evaluate without environment"
AT_ONCE = 2
"""Policies that are evaluated at the same time, each with the memory of its episodes."""


@dataclasses.dataclass(frozen=True)
class _TestEntry:
    name: str
    role: Role
    guarded: bool
    policies: tuple[Policy, ...]
    group: str = ""
    seeds: tuple[int, ...] = ()


def evaluate(
    environment: Plant,
    policies: Pool | Mapping[str, Policy],
    dataset: Dataset | None = None,
    *,
    candidate: str | None = None,
    incumbent: str | None = None,
    constraints: AnyConstraints | None = None,
    fallbacks: Mapping[str, Policy] | None = None,
    settings: GuardSettings | None = None,
    spec: Spec | None = None,
    controllers: Mapping[str, Policy] | None = None,
    behaviour: Sequence[BehaviourPolicy] = (),
    key: PRNGKeyArray | None = None,
    n_starts: int = EvaluationConfig.starts,
    level: float = EvaluationConfig.level,
    episode_margin: float = EvaluationConfig.episode_margin,
) -> Evaluation:
    """Runs all policies and controllers in paired episodes (common random numbers).

    On start ``i`` every policy gets the same plant parameters, initial state, disturbances and
    noise, so differences are paired. In addition to the given policies, it runs all tunings of the
    plant and the behaviour that generated the log (its tunings with its operators, which alternate
    from start to start as they did in the log). Each learner and tuning runs once without and once
    with the guard. All kinds of policies and all seeds run in one compiled program. A fallback that
    holds a constant has a row too, because a guarded policy is worth no more than its fallback
    where only the fallback acts; all other fallbacks already have rows, as tunings or as
    ``controllers``. Without candidates, the controllers run as they are, without guard.

    Args:
        environment: A plant, with its controllers, operators and random parameters.
        policies: Candidates, whose seeds are pooled by learner, or policies by name; may be empty.
        dataset: The log, whose own episodes get a row as well; ``None`` for none.
        candidate: Name of the policy that would be exported; by default the first of ``policies``.
        incumbent: What runs on the plant today, with which the verdict compares: a tuning, one of
            ``controllers``, or ``"logged behaviour"``; by default that of the pool, or the plant's
            reference.
        constraints: Hard limits of the guard; by default the plant's ranges and rates.
        fallbacks: Controllers that take over inside the guard, by the names that ``settings`` puts
            in order; by default the plant's reference controller as ``fallback``.
        settings: Monitors and supervisor of the guard; by default those of
            :func:`~neorl_safety.guards.guard`.
        spec: Channels with the cost limits of the run; by default those of the plant.
        controllers: Additional classical controllers by name, such as fitted ones.
        behaviour: Policies that generated the log, in turns; by default all tunings of the plant
            with its operators.
        key: Key of starts and noise; use one that was not used in development.
        n_starts: Number of paired episodes, two or more; 100 or more for a verdict.
        level: Confidence level of all intervals, whose bounds the verdict uses.
        episode_margin: Margin for the fraction of episodes over a cost's limit: its upper bound may
            exceed the reference's fraction by at most this; infinite for no such requirement.

    Returns:
        The results with their tables.

    Raises:
        ValueError: If the candidate is unknown, a policy has the name of a controller, the log is
            of another plant or ``n_starts`` is below two.
    """
    tunings, pool = environment.tunings(), as_pool(policies)
    reference = incumbent or pool.incumbent or environment.reference
    name = str(getattr(environment, "name", type(environment).__name__))
    candidate = next(iter(pool.policies), "") if candidate is None else candidate
    constants = _constants(fallbacks or {})
    reserved = [*tunings, *constants, BEHAVIOUR, LOG]
    fitted = controllers or {}
    check_names([*pool.policies], candidate=candidate, reserved=[*reserved, *fitted])
    check_names([*fitted], reserved=reserved)
    if dataset is not None:
        require_same_channels(environment.spec, dataset.spec, name, WITHOUT_PLANT)
    _require(reference, [*tunings, *fitted, BEHAVIOUR], n_starts)
    spec = environment.spec if spec is None else spec
    key = starts_key(PAIRED_STARTS_SEED) if key is None else key
    learners = [
        _TestEntry(one.id, "learner", False, (one.policy,), one.group, one.seeds) for one in pool
    ]
    all_controllers = {**tunings, **fitted, **constants}
    plain = learners + [_TestEntry(n, "classical", False, (p,)) for n, p in all_controllers.items()]
    behaviour_members: Any = tuple(behaviour or behaviour_policies(environment).values())
    logged = _TestEntry(BEHAVIOUR, "behaviour", False, behaviour_members)
    guarded = []
    if learners:
        guard = guard_parts(environment, spec, constraints, fallbacks, settings)
        guarded = [
            dataclasses.replace(
                entry, guarded=True, policies=tuple(guard.wrap(p, spec) for p in entry.policies)
            )
            for entry in plain
        ]
    tested = _with_one_structure([*plain, *guarded, logged], spec)
    results = _results(environment, tested, key, n_starts, spec)
    logs = ()
    if dataset is not None:
        logs = (PolicyResult(LOG, LOG, LOG, False, recorded_episodes(dataset, spec)),)
    judged, margin = (candidate, episode_margin) if learners else (reference, math.inf)
    tables = _tables(name, environment, spec, results, logs, judged, reference, level, margin)
    traces = ()
    if learners:
        traces = _traces(environment, spec, tested, results, key, candidate, reference)
    return Evaluation(
        tables=tables,
        results=(*results, *logs),
        traces=traces,
        bands=bands_of(environment),
        imitation=(),
        score=None,
        source=source_of(dataset),
    )


def _constants(fallbacks: Mapping[str, Policy]) -> dict[str, Policy]:
    """The fallbacks that hold a constant action."""
    return {name: entry for name, entry in fallbacks.items() if isinstance(entry, ConstantPolicy)}


def _require(reference: str, known: Collection[str], n_starts: int) -> None:
    if reference not in known:
        raise unknown_name("controller as incumbent", reference, known)
    if n_starts < 2:
        raise ValueError(f"an evaluation needs at least two starts, got {n_starts}")


def plant_constraints(environment: Plant) -> ActionConstraints:
    """The ranges of a plant's actions with the rates of its actuators."""
    return action_constraints(environment.spec, environment.action_rates())


class GuardParts(NamedTuple):
    """Parts of a guard.

    Attributes:
        constraints: Limits that it enforces.
        fallbacks: Policies that take over, by name.
        settings: Its monitors and supervisor.
    """

    constraints: AnyConstraints
    fallbacks: Mapping[str, Policy]
    settings: GuardSettings

    def wrap(self, policy: Policy, spec: Spec) -> Policy:
        """Wraps a policy in the guard."""
        return guard_with(self.settings, policy, self.constraints, self.fallbacks, spec)


def guard_parts(
    environment: Plant,
    spec: Spec,
    constraints: AnyConstraints | None,
    fallbacks: Mapping[str, Policy] | None,
    settings: GuardSettings | None,
) -> GuardParts:
    """The guard for policies on a plant; parts that are not given come from the plant."""
    reference = environment.tunings()[environment.reference]
    return GuardParts(
        plant_constraints(environment) if constraints is None else constraints,
        {FALLBACK: reference} if fallbacks is None else fallbacks,
        default_settings(spec) if settings is None else settings,
    )


def _with_one_structure(tested: Sequence[_TestEntry], spec: Spec) -> list[_TestEntry]:
    flat = [policy for entry in tested for policy in entry.policies]
    wrapped = iter(with_one_structure(flat, spec.n_action))
    return [
        dataclasses.replace(entry, policies=tuple(next(wrapped) for _ in entry.policies))
        for entry in tested
    ]


def _results(
    environment: Environment,
    tested: Sequence[_TestEntry],
    key: PRNGKeyArray,
    n_starts: int,
    spec: Spec,
) -> tuple[PolicyResult, ...]:
    """The results of every entry, two at a time.

    A program of episodes uses one core, and JAX runs what one thread asks for in turn. The first
    entry is alone, because the others use the program that is compiled for it.
    """

    def of_entry(entry: _TestEntry) -> PolicyResult:
        return _result(environment, entry, key, n_starts, spec)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return (of_entry(tested[0]), *threads.map(of_entry, tested[1:]))


def _result(
    environment: Environment, entry: _TestEntry, key: PRNGKeyArray, n_starts: int, spec: Spec
) -> PolicyResult:
    """Runs all starts; start ``i`` is assigned to policy ``i mod len(policies)``."""
    turns = len(entry.policies)
    parts, order = [], []
    for turn, policy in enumerate(entry.policies):
        indices = np.arange(turn, n_starts, turns)
        if not len(indices):
            break
        chunks = rollouts_in_chunks(environment, policy, key, indices, at_once=STARTS_AT_ONCE)
        parts += [episodes_of(rows, spec) for rows in chunks]
        order.append(indices)
    episodes = join(parts).reorder(np.argsort(np.concatenate(order)))
    group = entry.group or entry.name
    return PolicyResult(entry.name, group, entry.role, entry.guarded, episodes, entry.seeds)


def _tables(
    name: str,
    environment: Environment,
    spec: Spec,
    results: Sequence[PolicyResult],
    logs: Sequence[PolicyResult],
    candidate: str,
    reference: str,
    level: float,
    episode_margin: float,
) -> ResultTables:
    plain = [result for result in results if not result.guarded]
    known = {reference, str(getattr(environment, "reference", reference))}
    others = [entry for entry in plain if entry.name in known or entry.role == "behaviour"]
    return ResultTables(
        environment=name,
        reason="",
        spec=spec,
        reward_unit=str(getattr(environment, "reward_unit", "reward")),
        level=level,
        n_starts=results[0].episodes.count,
        candidate=candidate,
        reference=reference,
        rows=policy_rows(
            results,
            spec,
            reference=reference,
            level=level,
            detailed={(candidate, True), (reference, False)},
            terms=terms_of(environment),
        )
        + policy_rows(logs, spec, reference="", level=level),
        pooled=pooled_rows(results, spec, against=others, level=level),
        episode_margin=episode_margin,
    )


def terms_of(environment: Environment) -> tuple[Term, ...]:
    """The terms of the return that a plant declares; none if it declares none."""
    return tuple(getattr(environment, "terms", ()))


def bands_of(environment: Environment) -> tuple[Band, ...]:
    """Soft limits of measurements that a plant declares."""
    declared = getattr(environment, "bands", dict)()
    return tuple(Band(name, float(low), float(high)) for name, (low, high) in declared.items())


def _traces(
    environment: Environment,
    spec: Spec,
    tested: Sequence[_TestEntry],
    results: Sequence[PolicyResult],
    key: PRNGKeyArray,
    candidate: str,
    reference: str,
) -> tuple[Trace, ...]:
    """Reruns the selected starts and keeps the rows; the programs are already compiled."""
    shown = [(candidate, True), (reference, False)]
    by_name = {(entry.name, entry.guarded): entry for entry in tested}
    result_of = {(result.name, result.guarded): result for result in results}
    guarded_episodes = result_of[candidate, True].episodes
    starts = select_starts(guarded_episodes, spec)
    gains = guarded_episodes.returns - result_of[reference, False].episodes.returns
    starts |= {f"start {start}": start for start in further_starts(gains, starts.values(), spec)}
    chunk = np.array(list(starts.values()))
    traces = []
    for name, guarded in shown:
        policies, rerun = by_name[name, guarded].policies, {}
        for turn, policy in enumerate(policies):
            own_starts = chunk[chunk % len(policies) == turn]
            if len(own_starts):
                rows = all_rollouts(environment, policy, key, own_starts, at_once=STARTS_AT_ONCE)
                rerun |= {int(start): (rows, row) for row, start in enumerate(own_starts)}
        traces += [
            trace_of(*rerun[int(start)], label=label, policy=name, guarded=guarded, start=start)
            for label, start in starts.items()
        ]
    return tuple(traces)


MAX_FURTHER, MAX_NUMBERS = 8, 200_000
"""Number of additional episodes, and the most numbers that the trace file may contain for them."""


def select_starts(episodes: Episodes, spec: Spec) -> dict[str, int]:
    """Starts to show: the median return, the lowest return, and the one nearest its limits.

    Args:
        episodes: Paired episodes of the candidate.
        spec: Cost channels with their limits.

    Returns:
        Label and number of each start. The last label is omitted if there is no cost, or its start
        was already chosen.
    """
    order = np.argsort(episodes.returns, kind="stable")
    chosen = {TYPICAL: int(order[(len(order) - 1) // 2]), LOWEST: int(order[0])}
    if spec.n_cost:
        hardest = int(np.argmax(_margin_used(episodes, spec)))
        if hardest not in chosen.values():
            chosen[HARDEST] = hardest
    return chosen


def further_starts(
    gains: Float[np.ndarray, " episode"], chosen: Collection[int], spec: Spec
) -> list[int]:
    """Additional starts to keep, spread evenly from the largest loss to the largest gain.

    At most eight, and at most about 200,000 numbers in their rows.
    """
    width = spec.n_obs + 2 * spec.n_action + spec.n_cost + 2
    available = MAX_NUMBERS // (2 * spec.horizon * width) - len(chosen)
    rest = [int(start) for start in np.argsort(gains, kind="stable") if int(start) not in chosen]
    count = min(MAX_FURTHER, available, len(rest))
    if count < 1:
        return []
    positions = np.unique(np.linspace(0, len(rest) - 1, count).round().astype(int))
    return [rest[position] for position in positions]


def _margin_used(episodes: Episodes, spec: Spec) -> Float[np.ndarray, " episode"]:
    """Constraint margin used: the largest limited cost over its limit (over 1 where that is 0)."""
    used = np.zeros(episodes.count)
    for i, channel in enumerate(spec.cost):
        cost = np.nan_to_num(limited_quantity(episodes, spec, i), nan=np.inf)
        used = np.maximum(used, cost / (channel.limit or 1.0))
    return used
