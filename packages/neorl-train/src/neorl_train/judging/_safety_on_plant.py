"""A policy with and without its filter: on a plant from the same starts, and beside a log."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_agents import ArtefactError, load_policy
from neorl_core import InputError, Policy, Spec, as_arrays
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_safety.constraints import (
    AnyConstraints,
    Constraints,
    Requirement,
    constraints_from_dict,
    describe_constraints,
    excess,
)
from neorl_safety.filters import Flag
from neorl_safety.guards import (
    GuardSettings,
    default_settings,
    describe_settings,
    guard_with,
    settings_from_dict,
)
from neorl_safety.monitoring import (
    CheckedConstraint,
    checked_constraints,
    constraint_excess,
    seconds_held,
)
from neorl_train.configuration._sections import PAIRED_STARTS_SEED, EvaluationConfig
from neorl_train.judging._results import Trace
from neorl_train.judging._rollouts import (
    Rollout,
    episodes_of,
    rollouts_in_chunks,
    starts_key,
    trace_of,
)
from neorl_train.judging._safety_findings import LOGGED, WITH, WITHOUT, Assessment, Case, Metrics
from neorl_train.judging._safety_statistics import (
    CheckedRows,
    acting_of,
    alarms_of,
    constraints_of,
    cost_checks,
    cost_excess,
    interventions_of,
    metrics_of,
    reasons_of,
    worst_starts,
)
from neorl_train.judging._shadow import shadow
from neorl_train.judging._simulated import STARTS_AT_ONCE, bands_of, guard_parts
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import CONSTRAINTS, FALLBACK, GUARD, VERDICT, policy_file

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class PolicyUnderTest:
    """A policy and all parts of its guard.

    Attributes:
        name: For example ``"iql-0"``.
        policy: The policy without its guard.
        spec: Its channels, with the cost limits of the run.
        constraints: Limits that its guard enforces.
        fallbacks: Fallbacks by name.
        settings: Monitors and supervisor.
        source: Name of the plant, or file of the log, on which it was trained.
        constants: Factors on the constants of that plant.
        run: Directory of the run.
    """

    name: str
    policy: Policy
    spec: Spec
    constraints: Constraints
    fallbacks: dict[str, Policy]
    settings: GuardSettings
    source: str
    constants: dict[str, float]
    run: Path


def read_policy_under_test(path: Path, policy: str = "") -> PolicyUnderTest:
    """Finds the policy that a path refers to.

    Args:
        path: A run directory (its candidate), an artefact in a run, or a bundle in a run (the
            exported policy).
        policy: Name of another policy of the run.

    Returns:
        The policy with its guard.

    Raises:
        InputError: If the path is none of these, a part is missing or damaged, or the bundle was
            not exported from the artefacts beside it.
    """
    run, name = _locate(path)
    name = policy or name
    try:
        artefact = load_policy(run / policy_file(name))
        guard = _json(run / GUARD)
        records = guard.get("monitors", {}).get("monitors", [])
        needed = {
            str(policy_name) for record in records for policy_name in record.get("policies", ())
        }
        policies = {
            policy_name: load_policy(run / policy_file(policy_name)).policy
            for policy_name in sorted(needed)
        }
        settings = settings_from_dict(guard, artefact.spec, policies, str(run / GUARD))
        fallbacks = {
            policy_name: load_policy(run / policy_file(policy_name)).policy
            for policy_name in settings.fallbacks
        }
    except ArtefactError as error:
        raise InputError(f"cannot use a policy of {run}: {error}") from error
    return PolicyUnderTest(
        name=name,
        policy=artefact.policy,
        spec=artefact.spec,
        constraints=constraints_from_dict(_json(run / CONSTRAINTS), str(run / CONSTRAINTS)),
        fallbacks=fallbacks,
        settings=settings,
        source=str(artefact.metadata.get("source", "")),
        constants=dict(artefact.metadata.get("constants", {})),
        run=run,
    )


def _locate(path: Path) -> tuple[Path, str]:
    """The run that contains a path, and the policy that it names."""
    absolute = path.absolute()
    if (absolute / MANIFEST).is_file():
        return _of_bundle(absolute)
    if absolute.suffix == ".safetensors" and absolute.is_file():
        run = absolute.parent.parent
        RunDirectory(run).record()
        return run, absolute.stem
    if absolute.is_dir():
        RunDirectory(absolute).record()
        return absolute, str(_json(absolute / VERDICT).get("candidate", FALLBACK))
    raise InputError(
        f"{path} is not a run, a policy artefact or a bundle; give one of these, for example "
        "runs/0001"
    )


def _of_bundle(bundle: Path) -> tuple[Path, str]:
    """The run that contains a bundle; the bundle itself contains only the guarded program."""
    run = bundle.parent
    manifest = _json(bundle / MANIFEST)
    try:
        provenance = manifest["provenance"]["policy"]
        name, digest = Path(str(provenance["file"])).stem, provenance["digest"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{bundle} has a damaged manifest; export it again") from error
    file = run / policy_file(name)
    if not file.is_file():
        raise InputError(
            f"{bundle} contains only the guarded program, and a comparison without the filter "
            f"needs the run that it was exported from, but {file} does not exist; restore that run"
        )
    if load_policy(file).digest != digest:
        raise InputError(
            f"{bundle} was not exported from {file}; give the run that it was exported from"
        )
    if _json(run / CONSTRAINTS) != manifest["constraints"]:
        raise InputError(
            f"{bundle} and {run / CONSTRAINTS} have different constraints; export the bundle again"
        )
    return run, name


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no such file; give a finished run, which {path.parent} may not be"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); restore it") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is damaged: it does not contain a JSON object; restore it")
    return content


def assess_on_plant(
    environment: Plant,
    policy: Policy,
    *,
    name: str = "policy",
    constraints: AnyConstraints | None = None,
    judged_by: AnyConstraints | None = None,
    requirements: Sequence[Requirement] = (),
    fallbacks: Mapping[str, Policy] | None = None,
    settings: GuardSettings | None = None,
    spec: Spec | None = None,
    key: PRNGKeyArray | None = None,
    n_starts: int = EvaluationConfig.starts,
    level: float = EvaluationConfig.level,
    at_once: int = STARTS_AT_ONCE,
) -> Assessment:
    """Runs a policy with and without its filter from the same starts, and checks all constraints.

    Constraints of the action and cost limits per step are hard; limits per episode are soft;
    requirements declare their own tier. Each is checked on the actions sent, using only the
    definition of its kind and nothing from the filter. Every number refers to these starts of this
    simulator.

    Args:
        environment: A plant.
        policy: Policy without its guard, in physical units.
        name: Its name.
        constraints: Limits that the guard enforces; by default the ranges and rates of the plant.
        judged_by: Constraints to check; by default those of the guard.
        requirements: Additional functions of observation and action to check.
        fallbacks: Fallbacks by name; by default the plant's reference controller.
        settings: Monitors and supervisor; by default those of a guard with default settings.
        spec: Channels with the cost limits of the run; by default those of the plant.
        key: Key of the starts.
        n_starts: Number of starts; at least two.
        level: Confidence level of every interval.
        at_once: Number of starts that run in parallel; it affects no count, and other numbers only
            by rounding.

    Returns:
        The results.

    Raises:
        ValueError: If there are fewer than two starts, or the constraints are of another plant.
    """
    if n_starts < 2:
        raise ValueError(f"a safety report needs at least two starts, got {n_starts}")
    spec = environment.spec if spec is None else spec
    parts_of_guard = guard_parts(environment, spec, constraints, fallbacks, settings)
    guarded = parts_of_guard.guarded(as_arrays(policy), spec)
    constraints_to_count = parts_of_guard.constraints if judged_by is None else judged_by
    key = starts_key(PAIRED_STARTS_SEED) if key is None else key
    checked_rows = {}
    for label, actor in ((WITHOUT, as_arrays(policy)), (WITH, as_arrays(guarded))):
        parts = rollouts_in_chunks(environment, actor, key, np.arange(n_starts), at_once=at_once)
        rows = jax.tree.map(lambda *columns: np.concatenate(columns), *parts)
        checked_rows[label] = check_rows(rows, constraints_to_count, requirements, spec)
    checks = all_checks(constraints_to_count, requirements, spec)
    return assemble(
        checks,
        checked_rows,
        parts_of_guard.settings,
        {
            label: metrics_of(label, checks, part, spec, level)
            for label, part in checked_rows.items()
        },
        policy=name,
        where=str(getattr(environment, "name", type(environment).__name__)),
        simulated=True,
        spec=spec,
        level=level,
        unit=str(getattr(environment, "reward_unit", "reward")),
        demands=tuple(describe_constraints(parts_of_guard.constraints)),
        cases=_cases(checks, checked_rows, name),
        bands=bands_of(environment),
    )


def assemble(
    checks: Sequence[CheckedConstraint],
    checked_rows: Mapping[str, CheckedRows],
    settings: GuardSettings,
    metrics: dict[str, Metrics],
    **facts: Any,
) -> Assessment:
    """The results for judged rows, with the given facts about their source."""
    spec, level = facts["spec"], facts["level"]
    constraints, quiet = constraints_of(checks, checked_rows, spec, level)
    changed, fallback = acting_of(checked_rows[WITH].episodes)
    return Assessment(
        metrics=metrics,
        constraints=constraints,
        quiet=quiet,
        interventions=interventions_of(checked_rows[WITH].rows, spec),
        reasons=reasons_of(checked_rows[WITH].rows),
        changed=changed,
        fallback=fallback,
        monitors=alarms_of(settings, checks, checked_rows[WITH], spec, level),
        supervision=tuple(describe_settings(settings, spec)),
        **facts,
    )


def all_checks(
    constraints: AnyConstraints, requirements: Sequence[Requirement], spec: Spec
) -> list[CheckedConstraint]:
    """Everything that is checked: the action, the requirements and the costs."""
    requirement_checks = [
        CheckedConstraint(r.name, r.unit, r.tier, "at most zero", 1.0) for r in requirements
    ]
    return [*checked_constraints(constraints), *requirement_checks, *cost_checks(spec)]


def check_rows(
    rows: Rollout, constraints: AnyConstraints, requirements: Sequence[Requirement], spec: Spec
) -> CheckedRows:
    """Rows with the excess over every checked constraint, in the order of :func:`all_checks`."""
    before = np.concatenate([rows.first_obs[:, None], rows.obs[:, :-1]], axis=1)
    unknown = np.full_like(rows.applied[:, :1], np.nan)
    previous = np.concatenate([unknown, rows.applied[:, :-1]], axis=1)
    policy_acts_mask = (np.asarray(rows.flags) & np.uint32(Flag.FALLBACK_USED)) == 0
    held = jax.vmap(seconds_held, (0, None))(jnp.asarray(rows.applied), spec.dt)
    excess = _excess(
        constraints,
        tuple(requirements),
        before,
        previous,
        rows.action,
        held,
        policy_acts_mask,
        spec.dt,
    )
    costs = cost_excess(np.asarray(rows.cost), np.asarray(rows.mask), spec)
    both = np.concatenate([np.asarray(excess, np.float64), costs], axis=2)
    return CheckedRows(rows, episodes_of(rows, spec), np.where(rows.mask[..., None], both, -np.inf))


@jax.jit
def _excess(
    constraints: Any,
    requirements: Any,
    obs: Any,
    previous: Any,
    action: Any,
    held: Any,
    policy_acts_mask: Any,
    dt: Any,
) -> Any:
    def one(x: Any, v: Any, u: Any, since: Any, policy_acts: Any) -> Any:
        requirement_values = excess(requirements, x, u)
        constraint_values = constraint_excess(constraints, x, v, u, dt, since, policy_acts)
        return jnp.concatenate([constraint_values, requirement_values])

    return jax.vmap(jax.vmap(one))(obs, previous, action, held, policy_acts_mask)


def _cases(
    checks: Sequence[CheckedConstraint], checked_rows: Mapping[str, CheckedRows], name: str
) -> tuple[Case, ...]:
    starts = worst_starts(checks, checked_rows, (WITHOUT, WITH))
    return tuple(
        Case(
            f"{why} (start {start})",
            case_trace(checked_rows[WITH].rows, start, name, guarded=True),
            case_trace(checked_rows[WITHOUT].rows, start, f"{name} {WITHOUT}", guarded=False),
        )
        for start, why in starts.items()
    )


def case_trace(rows: Rollout, start: int, policy: str, *, guarded: bool) -> Trace:
    """One of many episodes, row by row."""
    return trace_of(rows, start, label="case", policy=policy, guarded=guarded, start=start)


MAX_EPISODES = 512


def assess_on_log(
    dataset: Dataset,
    policy: Policy,
    *,
    constraints: AnyConstraints,
    fallbacks: Mapping[str, Policy],
    name: str = "policy",
    judged_by: AnyConstraints | None = None,
    requirements: Sequence[Requirement] = (),
    settings: GuardSettings | None = None,
    spec: Spec | None = None,
    level: float = EvaluationConfig.level,
) -> Assessment:
    """Runs a policy in shadow on a log, with and without its filter, and checks all constraints.

    In each step policy and guard answer the logged observation, and the logged action is reported
    to them as the one that the plant received. Results on constraints of the action therefore hold
    in the logged situations, whatever the plant is. For costs, and for everything that follows from
    an action, only the logged values are available, because there is no plant.

    Args:
        dataset: The log; only its first 512 episodes are used.
        policy: Policy without its guard.
        constraints: Limits that the guard enforces.
        fallbacks: Fallbacks by name.
        name: Name of the policy.
        judged_by: Constraints to check; by default those of the guard.
        requirements: Additional functions of observation and action to check.
        settings: Monitors and supervisor; by default those of a guard with default settings.
        spec: Channels with the cost limits of the run; by default those of the log.
        level: Confidence level of every interval.

    Returns:
        The results; costs only as logged.

    Raises:
        ValueError: If the log has fewer than two episodes, or the constraints are of another plant.
    """
    if dataset.n_episodes < 2:
        raise ValueError(f"a safety report needs two episodes or more, got {dataset.n_episodes}")
    spec = dataset.spec if spec is None else spec
    guard = default_settings(spec) if settings is None else settings
    guarded = guard_with(guard, as_arrays(policy), constraints, fallbacks, spec)
    constraints_to_count = constraints if judged_by is None else judged_by
    logged = _log_rollout(dataset)
    checked_rows = {LOGGED: check_rows(logged, constraints_to_count, requirements, spec)}
    # A log does not record how an episode ended.
    unknown = dataclasses.replace(checked_rows[LOGGED].episodes, success=None, trip=None)
    checked_rows[LOGGED] = checked_rows[LOGGED]._replace(episodes=unknown)
    for label, actor in ((WITHOUT, as_arrays(policy)), (WITH, as_arrays(guarded))):
        rows = _in_shadow(actor, logged)
        part = check_rows(rows, constraints_to_count, requirements, spec)
        costs = part.excess.shape[2] - spec.n_cost
        part.excess[..., costs:] = -np.inf  # what would have followed is unknown
        checked_rows[label] = part
    checks = all_checks(constraints_to_count, requirements, spec)
    return assemble(
        checks,
        checked_rows,
        guard,
        {LOGGED: metrics_of(LOGGED, checks, checked_rows[LOGGED], spec, level)},
        policy=name,
        where=str(dataset.attributes.get("name", "log")),
        simulated=False,
        spec=spec,
        level=level,
        unit="reward",
        demands=tuple(describe_constraints(constraints)),
        cases=_logged_cases(checks, checked_rows, name),
        bands=(),
    )


def _log_rollout(dataset: Dataset) -> Rollout:
    """The episodes of a log as rollouts, one per row."""
    rows, mask = dataset.padded_rows(slice(MAX_EPISODES))
    c: Any = dataset.transitions
    action: Any = np.asarray(c.action)[rows]
    flags: Any = np.zeros(rows.shape, np.uint32)
    columns: dict[str, Any] = dict(
        first_obs=np.asarray(c.obs)[rows[:, 0]],
        obs=np.asarray(c.next_obs)[rows],
        action=action,
        applied=action,
        reward=np.asarray(c.reward)[rows],
        cost=np.asarray(c.cost)[rows],
        terminated=np.asarray(c.terminated)[rows],
        success=np.zeros(rows.shape, bool),
        mask=mask,
        flags=flags,
        intervention=np.zeros_like(action),
        limits=np.zeros(action.shape, np.uint32),
        alarms=flags,
        terms=np.zeros((*rows.shape, 0)),
    )
    return Rollout(**columns)


def _in_shadow(policy: Policy, logged: Rollout) -> Rollout:
    """A policy's answers, with the logged action reported as received in each step."""
    obs = np.concatenate([logged.first_obs[:, None], logged.obs[:, :-1]], axis=1)
    action, report = jax.device_get(shadow(policy, obs, logged.applied))
    return logged._replace(
        action=action,
        flags=report.flags,
        intervention=report.intervention,
        limits=report.limits,
        alarms=report.alarms,
    )


def _logged_cases(
    checks: Sequence[Any], checked_rows: Mapping[str, CheckedRows], name: str
) -> tuple[Case, ...]:
    starts = worst_starts(checks, checked_rows, (WITHOUT, WITH))
    cases = []
    for start, why in starts.items():
        rows = checked_rows[WITH].rows
        shown = rows._replace(applied=rows.action)
        in_shadow = case_trace(shown, start, f"{name} in shadow", guarded=True)
        logged = case_trace(checked_rows[LOGGED].rows, start, "the log", guarded=False)
        cases.append(Case(f"{why} (episode {start})", in_shadow, logged))
    return tuple(cases)
