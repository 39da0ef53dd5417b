"""Fills in every unset option from the data source before the run directory is created."""

import dataclasses
import math
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from neorl_agents import ALGORITHMS
from neorl_agents.learning import Networks
from neorl_agents.models import DynamicsModel
from neorl_agents.networks import NETWORKS
from neorl_core import Spec
from neorl_core.infrastructure import Registry
from neorl_envs import Dataset
from neorl_envs.ingest import READERS, reader_name
from neorl_envs.plants import PLANTS, Plant, is_plant, is_unit, plant_origin
from neorl_envs.scoring import GymnasiumJudge
from neorl_safety.constraints import (
    KINDS,
    Constraints,
    IdentifiedModel,
    describe_constraints,
    identified_model,
    spec_channels,
    with_models,
)
from neorl_train._job.artefacts import hard_constraints
from neorl_train._job.kinds import kind_of
from neorl_train._job.resolved_run import ResolvedRun, RunKind
from neorl_train.candidates._declared import check_controllers
from neorl_train.candidates._given import artefact_for
from neorl_train.candidates._table import (
    FAMILIES,
    with_candidate_and_incumbent,
    with_todays_controller,
)
from neorl_train.configuration._guard import (
    LimitsConfig,
    cost_sentences,
    declared_limits,
    fallback_sentence,
    limited_spec,
    resolved_fallback,
    resolved_limits,
)
from neorl_train.configuration._monitors import declared_watches
from neorl_train.configuration._sections import (
    CandidateConfig,
    Config,
    batch_sizes,
    config_hash,
    hyperparameters,
)
from neorl_train.configuration._validation import (
    require_candidate,
    size_notes,
    untrained_notes,
)
from neorl_train.data._experience import check_batches, check_split, training_rows
from neorl_train.data._source import (
    FileSource,
    RunSource,
    code_digest,
    declared_penalty,
    is_streamed,
    known_plant,
    read_log,
    require_same_channels,
    simulator,
    source_named,
)
from neorl_train.data._training_data import require_streamable

ROWS_AT_ONCE = 65_536
MAX_MODEL_ROWS = 1_000_000
"""Rows of a log from which a model is identified; more would hardly change it."""


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A configuration with every option set.

    Attributes:
        run: Settings and sources that its stages read.
        notes: Warnings about what the user did not declare, or declared without effect.
        facts: Entries of the record of the run: its limits, those of the source that it replaces
            and its fallback, as text; the distribution of everything supplied by third parties; the
            digest of every file of ``evaluation.policies``, and of the incumbent's; and whether the
            summary names limits, fallback and supervision.
    """

    run: ResolvedRun
    notes: list[str]
    facts: dict[str, Any]


def resolve(config: Config) -> Resolved:
    """Takes penalties, limits and fallback from the source if the configuration has none."""
    config = dataclasses.replace(config, data=config.data.recorded(config.training.on))
    source, kind, environment = (
        source_named(config.data.source, config.data.constants),
        kind_of(config),
        simulator(config.data, config.evaluation, config.finetune),
    )
    dataset = _log(config, source)
    candidates, loop_notes = with_todays_controller(
        CandidateConfig.of(config), environment, dataset
    )
    config = candidates.within(config)
    require_candidate(config)
    kind.check(config, source, environment, dataset)
    if environment is not None and dataset is not None:
        require_same_channels(environment.spec, dataset.spec, environment.name)
    own = environment if dataset is None else dataset
    assert own is not None  # a source is an environment or a file
    spec, rates, reference = own.spec, None, ""
    if environment is not None:
        rates, reference = environment.action_rates(), environment.reference
    penalty = declared_penalty(
        config.penalty, environment, tuple(channel.name for channel in spec.cost)
    )
    known = known_plant(environment, dataset)
    config = _with_exogenous(_with_graphs(config, spec, known), spec, known)
    declared, limits = _limits(config, spec, rates, dataset)
    mean = None if dataset is None else _mean_action(dataset)
    fallback = resolved_fallback(
        config.fallback,
        limits,
        spec,
        reference=reference,
        mean=mean,
        controllers=config.classical.names,
    )
    if dataset is not None:
        check_split(config.data, dataset)
        check_batches(batch_sizes(config), training_rows(config.data, dataset))
    declared_watches(config.monitors, spec)  # refused by name before anything is written
    files = filter(None, (*config.evaluation.policies, config.evaluation.incumbent_file))
    given_policies = {file: artefact_for(Path(file), spec).digest for file in files}
    check_controllers(config.classical, spec, logged=dataset is not None or config.data.steps != 0)
    constraints = hard_constraints(limits, spec)
    limit_sentences = _sentences(limits, spec)
    text = fallback_sentence(
        fallback,
        spec,
        reference=reference,
        given=config.fallback.kind != "default",
        declared=config.classical.declared,
    )
    candidates, incumbent_notes = with_candidate_and_incumbent(
        CandidateConfig.of(config), environment, dataset
    )
    config = candidates.within(config)
    complete = dataclasses.replace(config, penalty=penalty, limits=limits, fallback=fallback)
    complete = _with_points(_with_starts(complete))
    run = _run(complete, source, kind, environment, dataset)
    quiet = _wants_no_guard(config, run, dataset)
    return Resolved(
        run=run,
        notes=loop_notes
        + incumbent_notes
        + untrained_notes(config, kind.usual_hyperparameters(config))
        + size_notes({name: hyperparameters(config, name) for name in config.training.algorithms})
        + ([] if environment or quiet else _guard_warnings(config, limits, text, spec))
        + ([] if run.judge is None else [*run.judge.notes])
        + _limits_of_the_log(config, environment, dataset),
        facts={
            "limits": limit_sentences,
            "replaced_limits": [
                one for one in _sentences(declared, spec) if one not in limit_sentences
            ],
            "fallback": text,
            "origins": origins(config, constraints, run.judge),
            "given_policies": given_policies,
            "speaks_of_guard": not quiet,
        },
    )


def reopen(config: Config) -> ResolvedRun:
    """A run that was resolved when it began."""
    source = source_named(config.data.source, config.data.constants)
    environment = simulator(config.data, config.evaluation, config.finetune)
    return _run(config, source, kind_of(config), environment, _log(config, source))


def _log(config: Config, source: RunSource) -> Dataset | None:
    """The log in a file; that of a plant is collected when the run is carried out."""
    if not isinstance(source, FileSource):
        return None
    dataset = read_log(config.data, source.path)
    if is_streamed(config.data, source.path):
        for name in config.training.algorithms:
            require_streamable(name, hyperparameters(config, name), config.data.readers)
    return dataset


def _run(
    config: Config,
    source: RunSource,
    kind: RunKind,
    environment: Plant | None,
    dataset: Dataset | None,
) -> ResolvedRun:
    own = environment if dataset is None else dataset
    assert own is not None  # a source is a plant or a file
    spec = limited_spec(own.spec, config.limits.cost)
    named = config.evaluation
    judge = GymnasiumJudge(named.environment, own.spec) if named.is_gymnasium else None
    return ResolvedRun(config, source, kind, environment, dataset, spec, judge=judge)


def _with_exogenous(config: Config, spec: Spec, plant: Plant | None) -> Config:
    """Sets the observations that a learner's model takes from the log, if none are given.

    They are those of the plant and of ``retuning.exogenous``, which declares them for a log.
    """
    declared = (*(plant.exogenous if plant is not None else ()), *config.retuning.exogenous)
    known = {channel.name for channel in spec.obs}
    names = tuple(dict.fromkeys(name for name in declared if name in known))
    changed = {}
    for learner in config.training.algorithms:
        given = hyperparameters(config, learner)
        model = getattr(given, "model", None)
        if names and isinstance(model, DynamicsModel) and not model.exogenous:
            model = dataclasses.replace(model, exogenous=names)
            changed[learner] = dataclasses.replace(given, model=model)
    algorithms = dataclasses.replace(config.algorithms, **changed)
    return dataclasses.replace(config, algorithms=algorithms)


def _with_graphs(config: Config, spec: Spec, plant: Plant | None) -> Config:
    """Assigns channels to nodes and edges as the plant declares, if networks read graphs.

    A log of a known plant uses that plant's graph; for other logs ``networks.graph`` declares it.

    Raises:
        InputError: If the channels contain no graph, or the declared one does not fit them.
    """
    declared = () if plant is None else plant.graph
    changed = {}
    for learner in config.training.algorithms:
        settings = hyperparameters(config, learner)
        networks = getattr(settings, "networks", None)
        if not isinstance(networks, Networks):
            continue
        kind = NETWORKS.find(networks.kind)
        if kind.reads_channels and declared and not networks.graph:
            networks = dataclasses.replace(networks, graph=declared)
            changed[learner] = dataclasses.replace(settings, networks=networks)
        if networks.encoder == "none":
            kind.options_of(spec, networks.graph)  # refused before anything is written
    algorithms = dataclasses.replace(config.algorithms, **changed)
    return dataclasses.replace(config, algorithms=algorithms)


def _with_starts(config: Config) -> Config:
    """Sets starts that no run with other settings uses, if no seed is given for them.

    Trying many settings on the same starts would select for these starts.
    """
    if config.evaluation.seed >= 0:
        return config
    digest = config_hash(config).partition(":")[2]
    evaluation = dataclasses.replace(config.evaluation, seed=int(digest[:8], 16) % 2**31)
    return dataclasses.replace(config, evaluation=evaluation)


POINTS = 10
"""Fewest points of a learning curve in a Gymnasium environment, as papers print it."""


def _with_points(config: Config) -> Config:
    """Validates often enough for a learning curve, if a Gymnasium environment gives its returns."""
    if not config.evaluation.is_gymnasium:
        return config
    training, checkpoints = config.training, config.checkpoints
    tenth = max(training.updates // (POINTS * training.chunk), 1) * training.chunk
    checkpoints = dataclasses.replace(checkpoints, interval=min(checkpoints.interval, tenth))
    return dataclasses.replace(config, checkpoints=checkpoints)


def _wants_no_guard(config: Config, run: ResolvedRun, dataset: Dataset | None) -> bool:
    """Whether nobody asked for a guard: a published log, or scores, and nothing is declared."""
    if dataset is None or run.environment is not None:
        return False
    published = all(channel.unit == "?" for channel in (*dataset.spec.obs, *dataset.spec.action))
    default = Config()
    declared = dataset.attributes.get("constraints") or any(
        getattr(config, section) != getattr(default, section)
        for section in ("limits", "fallback", "monitors", "supervisor")
    )
    return (published or run.judge is not None) and not declared


def _limits(
    config: Config, spec: Spec, rates: Sequence[float] | None, dataset: Dataset | None
) -> tuple[LimitsConfig, LimitsConfig]:
    """The channel limits that the source declares, and all limits in force."""
    own = () if dataset is None else dataset.attributes.get("constraints", ())
    declared = declared_limits(spec, rates, own)
    limits = resolved_limits(config.limits, declared, spec)
    given = (*declared.further, *limits.further)
    models = any(record.get("kind") == "keep_below" for record in given)
    model = _model(dataset) if models and dataset is not None else None
    sources, run = (
        [dict(record) for record in with_models(spec_channels(spec), records, model)]
        for records in (declared.further, limits.further)
    )
    # A run that is resolved again already contains the constraints of its source.
    further = (*(record for record in sources if record not in run), *run)
    return (
        dataclasses.replace(declared, further=()),
        dataclasses.replace(limits, further=further),
    )


def _model(dataset: Dataset) -> IdentifiedModel:
    rows, used = dataset.transitions, slice(0, MAX_MODEL_ROWS)
    starts = np.asarray(dataset.episode_starts)
    return identified_model(
        np.asarray(rows.obs[used]),
        np.asarray(rows.action[used]),
        starts[starts < min(len(rows.obs), MAX_MODEL_ROWS)],
        mask=None if rows.mask is None else np.asarray(rows.mask[used]),
    )


def _sentences(limits: LimitsConfig, spec: Spec) -> list[str]:
    demands = describe_constraints(hard_constraints(limits, spec))
    return [*cost_sentences(limits, spec), *demands]


def _mean_action(dataset: Dataset) -> list[float]:
    action, mask = dataset.transitions.action, np.asarray(dataset.transitions.mask)
    total = np.zeros(dataset.spec.n_action)
    for start in range(0, len(mask), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        total += np.asarray(action[block])[mask[block]].sum(axis=0, dtype=np.float64)
    return [float(value) for value in total / max(int(mask.sum()), 1)]


def _limits_of_the_log(
    config: Config, environment: Plant | None, dataset: Dataset | None
) -> list[str]:
    """Says which cost limits of a log apply in place of those of its simulator."""
    if environment is None or dataset is None:
        return []
    pairs = zip(dataset.spec.cost, environment.spec.cost, strict=True)
    return [
        f"cost {logged.name} is judged by the limit of the log, {logged.limit:g} {logged.unit} per "
        f"{logged.per}; that of {environment.name} is {plant.limit:g} {plant.unit} (declare "
        f"another with `--limits.cost {logged.name} NUMBER`)"
        for logged, plant in pairs
        if logged.limit != plant.limit and logged.name not in config.limits.cost
    ]


def _guard_warnings(config: Config, limits: LimitsConfig, fallback: str, spec: Spec) -> list[str]:
    """Warns about what the guard lacks because a log contains neither controller nor actuators."""
    names = [channel.name for channel in spec.action]
    given = {**config.limits.rate_up, **config.limits.rate_down}  # `inf` is a deliberate choice
    unlimited = [
        name
        for name in names
        if name not in given and math.isinf(min(limits.rate_up[name], limits.rate_down[name]))
    ]
    notes = []
    if unlimited:
        notes.append(
            f"no rate of change is declared for {', '.join(unlimited)}: the guard limits only the "
            f"range (declare one with `--limits.rate-up {unlimited[0]} NUMBER`, per second)"
        )
    if config.fallback.kind == "default":
        notes.append(
            f"no fallback is declared: the guard {fallback.partition(' (')[0]}, the mean logged "
            "action (declare another with `--fallback.kind constant --fallback.values "
            f"{names[0]} NUMBER`)"
        )
    return notes


def origins(
    config: Config, constraints: Constraints, judge: GymnasiumJudge | None = None
) -> dict[str, dict[str, str]]:
    """Distribution, version and code of every third-party learner, plant, reader and constraint.

    Returns:
        By kind (``"algorithm"``, ``"environment"``, ``"reader"``, ``"constraint"``,
        ``"candidate"``) and by name;
        ``"registered"`` if a script supplied it. Empty if everything is our own.
    """
    source = config.data.source
    reader = "" if is_plant(source) else reader_name(source)
    plants = dict.fromkeys((source, config.evaluation.environment))
    used = {
        "algorithm": (ALGORITHMS, config.training.algorithms),
        "environment": (PLANTS, [name for name in plants if name in PLANTS]),
        "reader": (READERS, [reader] if reader else []),
        "constraint": (KINDS, list(constraints.further)),
        "candidate": (FAMILIES, config.evaluation.families),
    }
    by_kind = {
        kind: {name: origin for name in names if (origin := origin_of(table, name))}
        for kind, (table, names) in used.items()
    }
    by_kind["environment"] |= {name: plant_origin(name) for name in plants if is_unit(name)}
    if judge is not None:
        by_kind["environment"][judge.name] = judge_origin(judge)
    return {kind: names for kind, names in by_kind.items() if names}


def judge_origin(judge: GymnasiumJudge) -> str:
    """As :func:`origin_of`, for a Gymnasium environment, which may be a file of the user's."""
    return _with_code(judge.origin, judge.package)


def origin_of(table: Registry[Any], name: str) -> str:
    """Distribution and version behind a name, and a digest of its code, which a version may hide.

    A distribution that is installed from its folder keeps its version while its files change.
    """
    if name not in table:
        return "given by a script"
    origin, entry = table.origin(name), table[name]
    points = metadata.entry_points(group=table.group, name=name)
    module = next((p.module for p in points), "")
    if isinstance(entry, type):  # an object may be of a class of ours
        module = entry.__module__
    return _with_code(origin, module.partition(".")[0])


def _with_code(origin: str, package: str) -> str:
    code = code_digest([package]) if origin and package else ""
    return f"{origin}, code sha256:{code[:16]}" if code else origin
