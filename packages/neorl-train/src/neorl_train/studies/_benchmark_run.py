"""Carries out a benchmark and reads its results."""

from collections.abc import Callable, Sequence
from pathlib import Path

from neorl_train.judging._results import Evaluation
from neorl_train.studies._baselines import plant_baselines, scale_from
from neorl_train.studies._benchmark import Benchmark, Entry, Task, benchmark_of
from neorl_train.studies._benchmark_plan import BenchmarkPlan
from neorl_train.studies._benchmark_tables import write_benchmark
from neorl_train.studies._cells import Cell
from neorl_train.studies._pictures import write_benchmark_pictures
from neorl_train.studies._sweep import SweepState, carry_out, one_command, print_flushed, state_of


def state_words(plan: BenchmarkPlan, cells: Sequence[Cell], *, retry: bool = False) -> str:
    """Progress of a benchmark, in one line.

    Raises:
        InputError: If a run is damaged, or another process works on one.
    """
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
        files = write_benchmark(plan.directory, benchmark)
        return benchmark, files + write_benchmark_pictures(plan.directory, benchmark)


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
    controllers: dict[Task, Evaluation] = {}
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
        [_entry(cell, state) for cell in cells],
        controllers,
        scales,
        level=evaluation.level,
        curve_starts=evaluation.curve_starts,
    )


def _task(cell: Cell) -> Task:
    return cell.config.data.source, cell.config.data.quality


def _entry(cell: Cell, state: SweepState) -> Entry:
    (learner,) = cell.config.training.algorithms
    return Entry(
        _task(cell),
        learner,
        cell.config.training.seeds,
        state.runs.get(cell.name),
        state.failed.get(cell.name, ""),
    )
