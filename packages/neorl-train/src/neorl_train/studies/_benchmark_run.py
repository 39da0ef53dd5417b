"""Carries out a benchmark: its plan, the runs of learners, and the controllers of its plants."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from neorl_core import InputError, Policy, highs, lows
from neorl_core.control import UniformPolicy
from neorl_core.infrastructure import unknown_name, write_text
from neorl_envs import Dataset, environment_names, make, read_dataset
from neorl_envs.plants import PLANTS, Plant
from neorl_envs.recording import QUALITIES, behaviour_policies, quality
from neorl_train.candidates._family import Material
from neorl_train.candidates._table import with_controllers
from neorl_train.configuration._guard import limited_spec
from neorl_train.configuration._sections import (
    MIXED,
    PAIRED_STARTS_SEED,
    CandidateConfig,
    Config,
    dump_toml,
    hyperparameters,
    read_toml,
)
from neorl_train.configuration._validation import configure, size_notes
from neorl_train.data._experience import check_split, training_and_held_out
from neorl_train.data._source import plant_digest
from neorl_train.data._training_data import training_data
from neorl_train.judging._evaluate import evaluate, evaluate_offline
from neorl_train.judging._pool import Pool
from neorl_train.judging._results import Episodes, Evaluation, read_evaluation, write_evaluation
from neorl_train.judging._rollouts import starts_key
from neorl_train.judging._wording import confidence, decimals, percent, with_interval
from neorl_train.runs._directory import BASELINE_CACHE
from neorl_train.studies._benchmark import (
    Benchmark,
    BenchmarkRow,
    BenchmarkTask,
    PlannedRun,
    Scale,
    benchmark_of,
    controller_rows,
    scale_of,
)
from neorl_train.studies._files import write_benchmark
from neorl_train.studies._sweep import (
    Cell,
    SweepFile,
    SweepState,
    carry_out,
    one_command,
    print_flushed,
    state_of,
)
from neorl_train.studies._tables import Table, task_cells

SECTION = "benchmark"
FILE = "benchmark.toml"
"""File in the folder of a benchmark that describes it, so that the folder alone continues it."""
SET_BY_GRID = ("data.source", "data.quality", "training.algorithms", "training.seeds")
CHANGES_THE_PLANT = (
    *("data.constants", "limits.cost", "evaluation.environment", "finetune.environment"),
)
"""Settings that would change the plant, so that its anchors and controllers no longer apply."""

DEFAULTS: dict[str, Any] = {
    "plants": (),
    "qualities": ("mixed",),
    "algorithms": ("bc", "td3_bc", "iql"),
    "seeds": (0, 1, 2, 3),
    "separate_seeds": False,
}


@dataclasses.dataclass(frozen=True)
class BenchmarkPlan:
    """The grid of a benchmark.

    Attributes:
        plants: Names of simulated plants.
        qualities: Qualities of the logs that learners are trained on.
        algorithms: Names of the learners.
        seeds: Seeds of every learner on every log.
        separate_seeds: Whether every seed is a separate run, so that a diverging seed does not stop
            the others; otherwise the seeds of a learner on one log form one run.
        base: Sections of the configuration that all runs share.
        directory: Folder for runs and tables.
    """

    plants: tuple[str, ...]
    qualities: tuple[str, ...]
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    separate_seeds: bool
    base: dict[str, Any]
    directory: Path

    def cells(self) -> list[Cell]:
        """One configuration for each run, in the order of plants, qualities and learners.

        Raises:
            InputError: If one is not a valid configuration; the message names the value.
        """
        seeds = [[seed] for seed in self.seeds] if self.separate_seeds else [list(self.seeds)]
        grid = {
            "data.source": list(self.plants),
            "data.quality": list(self.qualities),
            "training.algorithms": list(self.algorithms),
            "training.seeds": seeds,
        }
        return SweepFile(self.base, grid, None, self.directory).cells()

    def write(self) -> None:
        """Writes the plan into its folder."""
        names = [field for field in DEFAULTS if field != "separate_seeds"]
        grid: dict[str, Any] = {name: list(getattr(self, name)) for name in names}
        grid["separate_seeds"] = self.separate_seeds
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(self.directory / FILE, dump_toml({SECTION: grid, **self.base}))


def benchmark_plan(
    path: Path | None, given: Mapping[str, Any], directory: Path | None = None
) -> BenchmarkPlan:
    """The plan from a file, from values, or from both: values override those of the file.

    Args:
        path: A TOML file with a section ``[benchmark]`` and, for settings that all runs share,
            sections of a run's configuration; or the folder of a benchmark to continue.
        given: Entries of ``[benchmark]``, and options of all runs by dotted name.
        directory: Folder for runs and tables; by default that folder, else ``benchmarks/NAME``,
            named after the file.

    Raises:
        InputError: If the file cannot be read, a name is unknown, or no plants are given.
    """
    where, base = "the command line", {}
    grid: dict[str, Any] = dict(DEFAULTS)
    if path is not None:
        if path.is_dir():
            path, directory = path / FILE, directory or path
        base, where = read_toml(path), str(path)
        declared = base.pop(SECTION, None)
        if not isinstance(declared, Mapping):
            raise InputError(
                f"{path} has no section [benchmark], such as `plants = ['CSTR-v0']` below it"
            )
        for name in declared:
            if name not in DEFAULTS:
                raise unknown_name(f"key in [benchmark] of {path}", name, DEFAULTS)
        grid |= declared
    grid |= {name: value for name, value in given.items() if name in DEFAULTS}
    for name, value in given.items():
        if name not in DEFAULTS:
            section, _, key = name.partition(".")
            base[section] = {**base.get(section, {}), key: value}
    _check(grid, base, where)
    if directory is None:
        directory = Path("benchmarks") / ("benchmark" if path is None else path.stem)
    return BenchmarkPlan(
        **{name: tuple(grid[name]) for name in DEFAULTS if name != "separate_seeds"},
        separate_seeds=bool(grid["separate_seeds"]),
        base=base,
        directory=directory,
    )


def benchmark_notes(cells: Sequence[Cell]) -> list[str]:
    """Notes about the settings of its learners, before they are trained."""
    learners = {
        name: hyperparameters(cell.config, name)
        for cell in cells
        for name in cell.config.training.algorithms
    }
    return size_notes(learners)


def _check(grid: Mapping[str, Any], base: Mapping[str, Any], where: str) -> None:
    for name in ("plants", "qualities", "algorithms", "seeds"):
        _check_list(f"{where}: benchmark.{name}", grid[name], int if name == "seeds" else str)
    if not isinstance(grid["separate_seeds"], bool):
        raise InputError(f"{where}: benchmark.separate_seeds must be true or false")
    if not grid["plants"]:
        raise InputError(
            "a benchmark needs plants: give a TOML file with `plants` in [benchmark], or "
            "`--plants CSTR-v0 DMSD-v0`"
        )
    for name in ("qualities", "algorithms", "seeds"):
        if not grid[name]:
            raise InputError(f"{where}: benchmark.{name} is empty; give at least one value")
    _check_names(grid["plants"], grid["qualities"])
    _check_sections(base, where)


def _check_names(plants: Sequence[str], qualities: Sequence[str]) -> None:
    for name in plants:
        if name not in environment_names():
            known = unknown_name("simulated plant", name, environment_names())
            raise InputError(
                f"{known}; a log without a simulator has no episodes to score, so use `neorl-train "
                "sweep` for it"
            )
    for name in qualities:
        if name not in QUALITIES:
            raise unknown_name("quality of a log", name, QUALITIES)


def _check_sections(base: Mapping[str, Any], where: str) -> None:
    for name in SET_BY_GRID:
        section, _, key = name.partition(".")
        if key in base.get(section, {}):
            raise InputError(f"{where}: {name} is set by [benchmark]; leave it out of [{section}]")
    for name in CHANGES_THE_PLANT:
        section, _, key = name.partition(".")
        if key in base.get(section, {}):
            raise InputError(
                f"{where}: {name} changes the plant, and a benchmark scores plants as they are; "
                "leave it out, or use `neorl-train sweep`"
            )


def _check_list(name: str, values: Any, kind: type) -> None:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise InputError(f"{name} must be a list, got {values!r}")
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"{name} must be a list of {_PLURALS[kind]}, got {value!r}")
    if len(set(values)) < len(values):
        raise InputError(f"{name} contains a value twice: {list(values)}; name each value once")


_PLURALS = {int: "integers", str: "names"}


def state_text(plan: BenchmarkPlan, cells: Sequence[Cell], *, retry: bool = False) -> str:
    """Progress of a benchmark, in one line."""
    state = state_of(plan.directory, cells, retry=retry)
    return (
        f"{len(cells)} runs in {plan.directory}: {len(state.finished)} finished, "
        f"{len(state.failed)} failed, {len(state.left)} to do"
    )


def carry_out_benchmark(
    plan: BenchmarkPlan,
    cells: Sequence[Cell],
    *,
    processes: int = 1,
    cluster: str = "",
    retry: bool = False,
    print_line: Callable[[str], None] = print_flushed,
) -> tuple[Benchmark, list[Path]]:
    """Runs the rest of a benchmark, and writes its tables and figures.

    Args:
        plan: The grid.
        cells: Its cells.
        processes: Number of simultaneous runs on this machine.
        cluster: Address of a Ray cluster; empty uses only this machine.
        retry: Whether to rerun failed runs.
        print_line: Called with a line for each run that ends.

    Returns:
        The results and the files.

    Raises:
        InputError: If another command carries it out, a run is damaged or Ray cannot be reached.
        StoppedError: After a signal; the same command continues.
    """
    with one_command(plan.directory):
        plan.write()
        state = state_of(plan.directory, cells, retry=retry)
        carry_out(
            state, plan.directory, processes=processes, cluster=cluster, print_line=print_line
        )
        benchmark = read_benchmark(plan, cells, print_line=print_line)
        return benchmark, write_benchmark(plan.directory, benchmark)


def read_benchmark(
    plan: BenchmarkPlan, cells: Sequence[Cell], *, print_line: Callable[[str], None] = print_flushed
) -> Benchmark:
    """Results so far of the runs of a benchmark, with the controllers of its plants.

    The controllers are run once for each plant and quality, on the starts of the runs, and stored.

    Args:
        plan: The grid.
        cells: Its cells.
        print_line: Called with a line for each plant whose controllers are run.

    Raises:
        InputError: If a file of a run is damaged.
    """
    state, evaluation = state_of(plan.directory, cells), cells[0].config.evaluation
    controllers: dict[BenchmarkTask, Evaluation] = {}
    for cell in cells:
        task = _task(cell)
        if task in controllers:
            continue
        controllers_of_plant, stored = plant_baselines(
            task[0],
            plan.directory,
            starts=evaluation.starts,
            seed=evaluation.seed,
            level=evaluation.level,
            logged=task[1],
        )
        controllers[task] = controllers_of_plant
        if not stored:
            print_line(
                f"controllers of {task[0]} and of its {task[1]} log: {evaluation.starts} episodes"
            )
    scales = {
        task[0]: scale_from(controllers_of_plant)
        for task, controllers_of_plant in controllers.items()
    }
    return benchmark_of(
        [_planned_run(cell, state) for cell in cells],
        controllers,
        scales,
        level=evaluation.level,
        curve_starts=evaluation.curve_starts,
    )


def _task(cell: Cell) -> BenchmarkTask:
    return cell.config.data.source, cell.config.data.quality


def _planned_run(cell: Cell, state: SweepState) -> PlannedRun:
    (learner,) = cell.config.training.algorithms
    return PlannedRun(
        _task(cell),
        learner,
        cell.config.training.seeds,
        state.runs.get(cell.name),
        state.failed.get(cell.name, ""),
    )


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
    spec = limited_spec(dataset.spec, config.limits.cost)
    material = Material(CandidateConfig.of(config), spec, environment, dataset)
    _, controllers, text = with_controllers(material)
    if environment is None:
        return _evaluate_in_shadow(config, dataset, controllers), text
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


def _evaluate_in_shadow(
    config: Config, dataset: Dataset, controllers: Mapping[str, Policy]
) -> Evaluation:
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
