"""Results of a plant's classical controllers, stored so that they are computed once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from neorl_core import InputError, Policy, highs, lows
from neorl_core.control import UniformPolicy
from neorl_core.infrastructure import unknown_name
from neorl_envs import Dataset, make, read_dataset
from neorl_envs.plants import PLANTS, Plant
from neorl_envs.recording import behaviour_policies, quality
from neorl_train.candidates._controllers import with_controllers
from neorl_train.candidates._family import Material
from neorl_train.configuration._sections import MIXED, PAIRED_STARTS_SEED, Config
from neorl_train.configuration._validation import configure
from neorl_train.data._log_cache import plant_digest
from neorl_train.data._split import check_split, training_and_held_out
from neorl_train.data._training_data import training_data
from neorl_train.judging._evaluate import evaluate, evaluate_offline
from neorl_train.judging._pool import Pool
from neorl_train.judging._results import Episodes, Evaluation, read_evaluation, write_evaluation
from neorl_train.judging._rollouts import starts_key
from neorl_train.judging._wording import confidence, decimals, percent, with_interval
from neorl_train.runs._names import BASELINE_CACHE
from neorl_train.studies._benchmark import BenchmarkRow, Scale, controller_rows, scale_of
from neorl_train.studies._tables import Table, task_cells

RANDOM = "random actions"


def plant_baselines(
    plant: str,
    folder: Path,
    *,
    starts: int,
    seed: int,
    level: float,
    logged: str = MIXED,
) -> tuple[Evaluation, bool]:
    """The tunings of a plant, uniform random actions and the logged behaviour, on common starts.

    Args:
        plant: Name of the plant.
        folder: Folder whose ``.baselines`` stores the results.
        starts: Number of paired episodes.
        seed: Seed of the starts; an evaluation of a run with the same seed uses the same starts.
        level: Confidence level of all intervals.
        logged: Quality of the log whose behaviour is included.

    Returns:
        The results, and whether they were already stored.

    Raises:
        InputError: If the plant is unknown, or a stored file is damaged.
    """
    environment = _plant(plant)
    inputs = {"starts": starts, "seed": seed, "level": level, "quality": logged, "version": 1}
    cached_folder = folder / BASELINE_CACHE / f"{plant}-{plant_digest(plant, inputs)}"
    if cached_folder.is_dir():
        return read_evaluation(cached_folder), True
    controllers, plan = quality(environment, logged)
    low, high = (jnp.asarray(ends(environment.spec.action)) for ends in (lows, highs))
    outcome = evaluate(
        environment,
        _first_tuning(environment),
        controllers={RANDOM: UniformPolicy(low, high)},
        behaviour=tuple(behaviour_policies(environment, controllers, plan).values()),
        key=starts_key(seed),
        n_starts=starts,
        level=level,
    )
    _store(outcome, cached_folder)
    return outcome, False


def log_baselines(path: Path, settings: Mapping[str, object]) -> tuple[Evaluation, list[str]]:
    """The log's own episodes, and controllers that are fitted to it.

    A log of a built-in plant is scored on that plant, with its fitted controllers and the tunings.
    For other logs no controller can be run: the actions of each are compared with the logged ones
    on held-out episodes.

    Args:
        path: Dataset file.
        settings: Sections of a run's configuration: ``classical`` selects the controllers to fit,
            ``evaluation`` the number of starts; the default seed of the starts is that of sweeps
            and benchmarks.

    Returns:
        The results, and a description of the identified models.

    Raises:
        InputError: If the file cannot be read, or a fit refuses the log or the loops.
    """
    if not path.exists():
        if path.suffix:
            raise InputError(f"{path}: there is no such file")
        raise unknown_name("plant or log", str(path), PLANTS)
    dataset = read_dataset(path)
    sections: dict[str, Any] = {**settings, "data": {"source": str(path)}}
    sections["evaluation"] = {"seed": PAIRED_STARTS_SEED, **sections.get("evaluation", {})}
    config = configure(**sections)
    name = dataset.attributes.get("provenance", {}).get("environment", "")
    environment = make(name) if name in PLANTS else None
    if environment is not None and environment.spec != dataset.spec:
        environment = None
    material = Material(config, dataset.spec, environment, dataset)
    _, controllers, text = with_controllers(material)
    if environment is None:
        return _in_shadow(config, dataset, controllers), text
    outcome = evaluate(
        environment,
        _first_tuning(environment),
        dataset,
        controllers=controllers,
        key=starts_key(config.evaluation.seed),
        n_starts=config.evaluation.starts,
        level=config.evaluation.level,
    )
    return outcome, text


def scale_from(evaluation: Evaluation) -> Scale:
    """The scale of a plant: its stored anchors, or those of random actions and reference here."""
    plant = evaluation.tables.environment
    try:
        return scale_of(plant)
    except InputError:
        environment = _plant(plant)
    costs = [channel.name for channel in environment.spec.cost]
    episodes = {result.name: result.episodes for result in evaluation.results if not result.guarded}
    best = environment.reference
    unscaled = Scale(plant, dict(environment.penalty_weights()), 0.0, 1.0, best)

    def mean(of: Episodes) -> float:
        return float(np.mean(unscaled.of(of, costs))) / 100

    return Scale(plant, unscaled.penalty, mean(episodes[RANDOM]), mean(episodes[best]), best)


def _first_tuning(environment: Plant) -> Pool:
    """No candidates, and as incumbent the tuning that a plant names first."""
    return Pool(incumbent=next(iter(environment.tunings())))


def _plant(name: str) -> Plant:
    if name not in PLANTS:
        raise unknown_name("simulated plant", name, PLANTS)
    return make(name)


def _store(outcome: Evaluation, cached_folder: Path) -> None:
    """Stores a file; two simultaneous commands write the same content, and the second finds it."""
    partial = cached_folder.with_name(f"{cached_folder.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    write_evaluation(partial, outcome)
    if not cached_folder.exists():
        partial.rename(cached_folder)


def _in_shadow(config: Config, dataset: Dataset, controllers: Mapping[str, Policy]) -> Evaluation:
    """Compares the actions of controllers with those of held-out episodes."""
    check_split(config.data, dataset)
    trained_on, rest = training_and_held_out(config.data, dataset)
    return evaluate_offline(
        {},
        dataset=dataset,
        held_out=dataset.select_episodes(rest),
        training=training_data(dataset.select_episodes(trained_on)),
        controllers=controllers,
        level=config.evaluation.level,
    )


def baseline_table(
    outcome: Evaluation, quality_or_log: str
) -> tuple[Table, tuple[BenchmarkRow, ...]]:
    """The controllers of a plant as a table of a benchmark, with its rows."""
    tables = outcome.tables
    rows = controller_rows(
        (tables.environment, quality_or_log), outcome, scale_from(outcome), tables.level
    )
    title = (
        f"{tables.environment}, {quality_or_log}: controllers as they are on {tables.n_starts} "
        f"common starts; mean with its {confidence(tables.level)} interval. Score: return less the "
        "declared penalties, 0 as random actions, 100 as the plant's reference controller."
    )
    return Table(title, task_cells(rows)), rows


def shadow_table(outcome: Evaluation, log: str) -> Table:
    """The table for a log without a simulator: its episodes, and controllers' distances to it."""
    tables = outcome.tables
    (row,) = tables.rows
    episodes = with_interval(row.returns, decimals([row.returns]))
    costs = "".join(
        f"; {cell.name} over its limit in {percent(cell.violating.value)} of the episodes"
        for cell in row.costs
    )
    title = (
        f"{log}: {row.n_episodes} episodes with a return of {episodes} "
        f"{tables.reward_unit}{costs}. There is no simulator, so no controller was run: mean "
        "absolute difference of its action to the logged one on held-out episodes with its "
        f"{confidence(tables.level)} interval, and the fraction of the variance of the logged "
        "action that it explains (R2)."
    )
    heads = ["controller", "action", "difference", "R2"]
    cells = [
        [
            fit.policy,
            fit.channel,
            f"{with_interval(fit.difference, decimals([fit.difference]))} {fit.unit}",
            f"{fit.explained:.2f}",
        ]
        for fit in outcome.imitation
    ]
    return Table(title, [heads, *cells])
