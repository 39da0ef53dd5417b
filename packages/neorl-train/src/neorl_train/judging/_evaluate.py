"""Evaluates a pool: on a plant, paired and with the controllers, or beside a log."""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Environment, Policy, Spec
from neorl_core.control import ConstantPolicy
from neorl_core.infrastructure import factorises, unknown_name
from neorl_core.statistics import normalised_score
from neorl_envs import Dataset
from neorl_envs.blocks import Term
from neorl_envs.plants import Plant
from neorl_envs.recording import BehaviourPolicy, behaviour_policies
from neorl_envs.scoring import GymnasiumJudge
from neorl_safety.constraints import ActionConstraints, AnyConstraints, action_constraints
from neorl_safety.guards import GuardSettings, default_settings, guard_with
from neorl_train.configuration._sections import PAIRED_STARTS_SEED, EvaluationConfig
from neorl_train.data._source import known_plant, require_same_channels
from neorl_train.judging._environment_scores import (
    NO_RULE,
    environment_results,
    environment_scores,
)
from neorl_train.judging._pool import Pool, as_pool, check_names
from neorl_train.judging._results import (
    BEHAVIOUR,
    LOG,
    Band,
    ChannelExcitation,
    Evaluation,
    LogDescription,
    LogScore,
    PolicyResult,
    Stretch,
    Trace,
)
from neorl_train.judging._rollouts import (
    STARTS_AT_ONCE,
    all_rollouts,
    episodes_of,
    further_starts,
    join_episodes,
    recorded_episodes,
    rollouts,
    rollouts_in_chunks,
    select_starts,
    starts_key,
    trace_of,
    with_one_structure,
)
from neorl_train.judging._shadow import (
    Training,
    action_fits,
    classical_imitators,
    declared_bands,
    shown_channels,
    stretches,
)
from neorl_train.judging._summary import policy_rows, pooled_rows
from neorl_train.judging._tables import Estimate, PolicyRow, ResultTables, Role
from neorl_train.judging._wording import no_simulator
from neorl_train.runs._directory import FALLBACK

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
    candidate: str = "",
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
    candidate = candidate or next(iter(pool.policies), "")
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
    if learners:
        tables = dataclasses.replace(tables, kept=pool[candidate].kept)
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
    entry is alone, because the others use the program that is compiled for it. Programs that
    factorise matrices, such as those of predictive control, run in turn.
    """

    def of_entry(entry: _TestEntry) -> PolicyResult:
        return _result(environment, entry, key, n_starts, spec)

    starts = jnp.arange(STARTS_AT_ONCE)
    first = of_entry(tested[0])
    in_turn = any(
        factorises(jax.make_jaxpr(rollouts)(environment, entry.policies[0], key, starts))
        for entry in tested
    )
    with ThreadPoolExecutor(1 if in_turn else AT_ONCE) as threads:
        return (first, *threads.map(of_entry, tested[1:]))


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
        chunks = rollouts_in_chunks(environment, policy, key, indices)
        parts += [episodes_of(rows, spec) for rows in chunks]
        order.append(indices)
    episodes = join_episodes(parts).reorder(np.argsort(np.concatenate(order)))
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
            terms=tuple(getattr(environment, "terms", ())),
        )
        + policy_rows(logs, spec, reference="", level=level),
        pooled=pooled_rows(results, spec, against=others, level=level),
        episode_margin=episode_margin,
    )


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
                rows = all_rollouts(environment, policy, key, own_starts)
                rerun |= {int(start): (rows, row) for row, start in enumerate(own_starts)}
        traces += [
            trace_of(*rerun[int(start)], label=label, policy=name, guarded=guarded, start=start)
            for label, start in starts.items()
        ]
    return tuple(traces)


NEORL2_RETURNS = {
    "Pipeline": (-296.0, 751.0),
    "Simglucose": (9.75, 475.0),
    "RocketRecovery": (-176.0, 208.0),
    "RandomFrictionHopper": (-3.0, 503.0),
    "DMSD": (30.60, 849.51),
    "Fusion": (-107.601, 98.05),
    "SafetyHalfCheetah": (-283.0, 2507.0),
    "Salespromotion": (357.62, 602.21),
}
"""Returns of the poor and the good reference, from ``neorl2/envs/info.py`` in polixir/NeoRL2."""


def score_of(dataset: Dataset, log: PolicyRow) -> LogScore | None:
    """The score of a NeoRL-2 log; ``None`` for any other, because its references are not known."""
    provenance = dataset.attributes.get("provenance", {})
    task = str(dataset.attributes.get("name", "")).split("-")[0]
    is_neorl2 = str(provenance.get("format", "")).startswith("NeoRL-2")
    if not is_neorl2 or task not in NEORL2_RETURNS:
        return None
    low, high = NEORL2_RETURNS[task]
    ends = (log.returns.value, log.returns.low, log.returns.high)
    scored = Estimate(*(float(normalised_score(end, low=low, high=high)) for end in ends))
    return LogScore(f"NeoRL-2 {task}", low, high, scored)


NO_LOG = LogDescription(
    name="no log", rows=0, episodes=0, content_hash="", attribution="", excitation=()
)
"""Describes an evaluation without a log."""


def source_of(dataset: Dataset | None) -> LogDescription:
    """Description of a dataset; :data:`NO_LOG` if there is none."""
    if dataset is None:
        return NO_LOG
    return LogDescription(
        name=str(dataset.attributes.get("name", "log")),
        rows=dataset.n_rows,
        episodes=dataset.n_episodes,
        content_hash=dataset.content_hash,
        attribution=str(dataset.attributes.get("attribution", "")),
        excitation=tuple(_excitation(entry) for entry in _channels(dataset)),
    )


def _channels(dataset: Dataset) -> list[Mapping[str, Any]]:
    excitation = dataset.attributes.get("excitation", {})
    return list(excitation.get("channels", [])) if isinstance(excitation, Mapping) else []


def _excitation(entry: Mapping[str, Any]) -> ChannelExcitation:
    return ChannelExcitation(
        channel=str(entry.get("channel", "")),
        unit=str(entry.get("unit", "")),
        signal=float(entry.get("prbs_amplitude", math.nan)),
        manual=float(entry.get("manual_fraction_of_steps", math.nan)),
        deviation=float(entry.get("action_std", math.nan)),
    )


def evaluate_offline(
    policies: Pool | Mapping[str, Policy],
    *,
    dataset: Dataset,
    held_out: Dataset,
    training: Training,
    candidate: str = "",
    spec: Spec | None = None,
    controllers: Mapping[str, Policy] | None = None,
    held_out_episodes: Sequence[int] = (),
    loops: Sequence[str] = (),
    guard: Callable[[Policy], Policy] | None = None,
    judge: GymnasiumJudge | None = None,
    judge_seeds: Sequence[int] = (),
    level: float = EvaluationConfig.level,
    episode_margin: float = EvaluationConfig.episode_margin,
) -> Evaluation:
    """Evaluates without running a policy on a plant: statistics of the log, and shadow actions.

    With a Gymnasium environment as judge, all policies and controllers are scored in it as well.

    Args:
        policies: Candidates, or policies by name; may be empty to compare only the controllers.
        dataset: Complete log.
        held_out: Those of its episodes on which no policy was trained.
        training: Training data; classical imitators are fitted to them and compared with the
            learned policies.
        candidate: Name of the policy that would be exported; by default the first of ``policies``.
        spec: Channels with the cost limits of the run; by default those of the log.
        controllers: Classical controllers fitted to the log, by name; their actions are listed with
            those of the imitators.
        held_out_episodes: Numbers of the episodes in ``held_out``, to mark them in trends.
        loops: Controlled variables to show in the trends.
        guard: Wraps the candidate in its guard for the trends; without it, they show the policy's
            own proposals.
        judge: Environment in which every policy is scored without guard; ``None`` for none.
        judge_seeds: Seeds of its episodes, two or more, the same for all policies.
        level: Confidence level of all intervals.
        episode_margin: Margin for single episodes that the rule would apply with a simulator.

    Returns:
        Tables with the log as the only row, the distance of each policy's actions from the log's,
        and the proposals of the candidate in the best, the median and the worst stretch of the log.

    Raises:
        ValueError: If the candidate is unknown or the log has fewer than two episodes.
    """
    spec = dataset.spec if spec is None else spec
    imitators = {**classical_imitators(training, spec), **(controllers or {})}
    pool = as_pool(policies)
    candidate = candidate or next(iter(pool.policies), "")
    check_names([*pool.policies], candidate=candidate, reserved=[LOG, *imitators])
    if dataset.n_episodes < 2:
        raise ValueError(
            f"intervals need at least two episodes, and the log has {dataset.n_episodes}"
        )
    plant = known_plant(None, dataset)
    log = PolicyResult(LOG, LOG, LOG, False, recorded_episodes(dataset, spec))
    rows = policy_rows(
        [log], spec, reference="", level=level, detailed={(LOG, False)}, terms=logged_terms(dataset)
    )
    scored = [] if judge is None else environment_results(judge, pool, imitators, judge_seeds, spec)
    tables = ResultTables(
        environment="",
        reason=no_simulator("NAME" if plant is None else plant.name) if judge is None else NO_RULE,
        spec=spec,
        reward_unit=return_unit(dataset),
        level=level,
        n_starts=len(judge_seeds) if scored else 0,
        candidate=candidate,
        reference="",
        rows=(*rows, *policy_rows(scored, spec, reference="", level=level)),
        pooled=(),
        episode_margin=episode_margin,
        judge="" if judge is None else judge.name,
        scores=environment_scores(scored, spec, level=level),
    )
    bands = declared_bands(dataset, spec)
    proposed: tuple[Stretch, ...] = ()
    if candidate:
        proposed = stretches(
            guard(pool[candidate].policy) if guard else pool[candidate].policy,
            dataset,
            name=candidate,
            channels=shown_channels(dataset, spec, loops, bands),
            held_out=held_out_episodes,
        )
    return Evaluation(
        tables=tables,
        results=(log, *scored),
        traces=(),
        bands=bands,
        imitation=action_fits(pool, held_out, level=level, controllers=imitators),
        score=score_of(dataset, rows[0]),
        source=source_of(dataset),
        stretches=proposed,
    )


def logged_terms(dataset: Dataset) -> tuple[Term, ...]:
    """The terms of a log's reward according to its ``plant.toml``; none if it lists none."""
    if dataset.term is None:
        return ()
    terms = dataset.attributes.get("terms", ())
    return tuple(
        Term(str(term["name"]), str(term["unit"]), float(term.get("worth", 0.0))) for term in terms
    )


def reward_unit(dataset: Dataset) -> str:
    """The unit of the reward of a row, if the log states one."""
    reward = dataset.attributes.get("reward")
    return str(reward.get("unit", "")) or "reward" if isinstance(reward, dict) else "reward"


def return_unit(dataset: Dataset) -> str:
    """The unit of a return, if the log states that of the reward.

    A reward in the unit of a channel that it reads, such as a distance from the setpoint in °C, is
    a level, and a return sums it over rows: its unit is then ``"°C · rows"``. What a row adds to an
    amount, such as money or the difference from the row before, keeps its unit.
    """
    reward, unit = dataset.attributes.get("reward"), reward_unit(dataset)
    expression = str(reward.get("expression", "")) if isinstance(reward, dict) else ""
    names = set(re.findall(r"\w+", expression))
    channels = (*dataset.spec.obs, *dataset.spec.action)
    is_level = any(one.name in names and one.unit == unit != "1" for one in channels)
    adds_up = any(f"before_{one.name}" in names and one.unit == unit for one in channels)
    return f"{unit} · rows" if is_level and not adds_up else unit
