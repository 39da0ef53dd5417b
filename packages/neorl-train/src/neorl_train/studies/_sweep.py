"""A sweep: one configuration for every combination of varied values, and the runs of them.

The runs are carried out on this machine or on a Ray cluster, and can be resumed.
"""

import contextlib
import dataclasses
import importlib
import itertools
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from neorl_core import InputError
from neorl_core.infrastructure import (
    check_head,
    head,
    install_line,
    is_full_disk,
    unknown_name,
    write_json,
)
from neorl_core.infrastructure.command_line import StoppedError, one_line
from neorl_train._job.job import resume_job, run_job
from neorl_train._process.control import prepare_process
from neorl_train._process.progress import IMPORTS, Reporter, Timings
from neorl_train.configuration._sections import (
    PAIRED_STARTS_SEED,
    Config,
    config_hash,
    config_to_dict,
    read_toml,
)
from neorl_train.configuration._validation import configure
from neorl_train.runs._directory import (
    FAILED,
    FINISHED,
    RunDirectory,
    file_lock,
    holder,
    numbered_runs,
)
from neorl_train.studies._joint_runs import JointRun, joint_key, train_runs_together

GRID, SEARCH, SPACE = "grid", "search", "space"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One configuration of a sweep.

    Attributes:
        values: Varied values, by dotted name.
        config: The configuration, checked as far as it can be without the data.
        name: Digest of everything that determines the result; equal cells have equal names in any
            file.
    """

    values: dict[str, Any]
    config: Config
    name: str

    def text(self) -> str:
        """The varied settings as text."""
        return ", ".join(f"{name} {_value_text(value)}" for name, value in self.values.items())


@dataclasses.dataclass(frozen=True)
class Search:
    """A search instead of a grid.

    Attributes:
        space: Settings to sample, by dotted name: a list of choices, or ``low`` and ``high``, with
            ``log = true`` for a logarithmic scale.
        trials: Number of configurations to try.
        seed: Seed of the sampling.
        batch: Number of configurations sampled at once; 1 samples as many as there are processes.
    """

    space: dict[str, Any]
    trials: int = 20
    seed: int = 0
    batch: int = 1


@dataclasses.dataclass(frozen=True)
class SweepFile:
    """Settings that a sweep varies.

    Attributes:
        base: Sections of the configuration that all cells share.
        grid: Values by dotted name; empty for a search.
        search: How values are sampled; ``None`` for a grid.
        directory: Folder for results.
    """

    base: dict[str, Any]
    grid: dict[str, list[Any]]
    search: Search | None
    directory: Path

    def cells(self) -> list[Cell]:
        """Every combination of the grid once; hyperparameters of untrained learners are left out.

        Raises:
            InputError: If a combination is not a valid configuration; the message names the value.
        """
        cells: dict[str, Cell] = {}
        for values in itertools.product(*self.grid.values()):
            cell = self.cell(dict(zip(self.grid, values, strict=True)))
            cells.setdefault(cell.name, cell)
        return list(cells.values())

    def cell(self, values: Mapping[str, Any]) -> Cell:
        """Makes one configuration.

        Raises:
            InputError: If it is not a valid configuration; the message names the values.
        """
        merged = _nest(self.base)
        for name, value in values.items():
            *sections, key = name.split(".")
            part = merged
            for section in sections:
                part = part.setdefault(section, {})
            part[key] = (
                [value] if name == "training.algorithms" and isinstance(value, str) else value
            )
        merged["evaluation"] = {"seed": PAIRED_STARTS_SEED, **merged.get("evaluation", {})}
        merged["output"] = {**merged.get("output", {}), "directory": str(self.directory.absolute())}
        text = ", ".join(f"{name} = {_value_text(value)}" for name, value in values.items())
        try:
            config = configure(**merged)
        except InputError as error:
            raise InputError(f"with {text}: {error}") from error
        trained = config.training.algorithms
        used_values = {
            name: value
            for name, value in values.items()
            if not name.startswith("algorithms.") or name.split(".")[1] in trained
        }
        return Cell(used_values, config, config_hash(config).partition(":")[2][:12])


def read_sweep(path: Path, directory: Path | None = None) -> SweepFile:
    """Reads a sweep: the sections of a run's configuration, and a grid or a search.

    Args:
        path: TOML file.
        directory: Folder for results; by default ``sweeps/NAME``, named after the file.

    Returns:
        The sweep.

    Raises:
        InputError: If the file is missing or not TOML, has neither or both of ``[grid]`` and
            ``[search]``, or a varied setting has neither a list of values nor a range; the message
            names the key.
    """
    content = read_toml(path)
    if (GRID in content) == (SEARCH in content):
        raise InputError(
            f"{path} needs either a section [grid], such as `training.algorithms = ['bc', 'iql']` "
            "below it, or a section [search]"
        )
    base = {name: value for name, value in content.items() if name not in (GRID, SEARCH)}
    directory = Path("sweeps") / path.stem if directory is None else directory
    grid: dict[str, list[Any]] = {}
    search = None
    if GRID in content:
        for name, value in _leaves(content[GRID], "", stop=lambda _: False):
            if not isinstance(value, list) or not value:
                raise InputError(f"{path}: grid.{name} must be a list of values, got {value!r}")
            grid[name] = value
        if not grid:
            raise InputError(
                f"{path}: [grid] contains no setting to vary; give at least one list of values"
            )
    else:
        search = _search(content[SEARCH], path)
    return SweepFile(base, grid, search, directory)


def _search(section: Any, path: Path) -> Search:
    known = [field.name for field in dataclasses.fields(Search)]
    for name in section:
        if name not in known:
            raise unknown_name(f"key in [search] of {path}", name, known)
    if not isinstance(section.get(SPACE), Mapping) or not section[SPACE]:
        raise InputError(
            f"{path}: [search.space] must name the settings to vary, each with its bounds"
        )
    space = dict(_leaves(section[SPACE], "", stop=_is_range))
    for name, value in space.items():
        _check_domain(f"{path}: search.space.{name}", value)
    counts = {name: section[name] for name in ("trials", "seed", "batch") if name in section}
    for name, value in counts.items():
        minimum = 0 if name == "seed" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise InputError(
                f"{path}: search.{name} must be an integer of at least {minimum}, got {value!r}"
            )
    return Search(space, **counts)


def _check_domain(name: str, value: Any) -> None:
    if isinstance(value, list) and value:
        return
    if not isinstance(value, Mapping) or not _is_range(value) or value["low"] >= value["high"]:
        raise InputError(
            f"{name} must be a list of choices or a table such as {{ low = 0.5, high = 0.9 }} "
            f"with low below high, got {value!r}"
        )
    if value.get("log") and value["low"] <= 0:
        raise InputError(f"{name} has log = true, so low must be above 0, got {value['low']!r}")


def _is_range(value: Any) -> bool:
    return isinstance(value, Mapping) and {"low", "high"} <= set(value) <= {"low", "high", "log"}


def _leaves(value: Mapping[str, Any], where: str, *, stop: Any) -> Iterator[tuple[str, Any]]:
    for name, entry in value.items():
        dotted = f"{where}.{name}" if where else name
        if isinstance(entry, Mapping) and not stop(entry):
            yield from _leaves(entry, dotted, stop=stop)
        else:
            yield dotted, entry


def _nest(value: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _nest(entry) if isinstance(entry, Mapping) else entry for k, entry in value.items()}


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


SWEEP = "sweep"
REFUSED = "refused.json"
"""File of the cells that failed, with reasons; cells that were refused have no run directory."""
VERSION = 1
SWEEP_LOCK = "sweep.lock"
MAX_TOGETHER = 64
"""Most trainings (settings times seeds) in one program, whose states share the memory."""
SECONDS_TO_CONNECT = 10.0


class Outcome(NamedTuple):
    """Outcome of one cell.

    Attributes:
        cell: Name of the cell.
        error: Reason why it failed, in one line; empty if it finished.
        lost: Whether its process or machine was lost, or the disk was full; repeating the command
            resumes it.
    """

    cell: str
    error: str
    lost: bool = False


@dataclasses.dataclass(frozen=True)
class SweepState:
    """Progress of a sweep.

    Attributes:
        runs: Run directory of each cell that has one, by name of the cell.
        failed: Reason for each failed cell, by its name.
        left: Cells that are still to be run or resumed, in order.
        others: Number of runs in the folder that belong to none of the cells.
    """

    runs: dict[str, RunDirectory]
    failed: dict[str, str]
    left: tuple[Cell, ...]
    others: int = 0

    @property
    def finished(self) -> list[Path]:
        """Run directories that can be compared."""
        done = [run for run in self.runs.values() if run.record()["status"] == FINISHED]
        return [run.path for run in done]


@contextlib.contextmanager
def one_command(directory: Path) -> Iterator[None]:
    """Excludes a second command from the folder of a sweep or a benchmark.

    Raises:
        InputError: If another process is running one there; the message gives its number.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with file_lock(directory / SWEEP_LOCK):
        yield


def state_of(directory: Path, cells: Sequence[Cell], *, retry: bool = False) -> SweepState:
    """Reads the progress of a sweep from the run directories."""
    names = {cell.name for cell in cells}
    runs: dict[str, RunDirectory] = {}
    others = 0
    for path in numbered_runs(directory):
        run = RunDirectory(path.absolute())
        name = run.record().get(SWEEP, {}).get("cell", "")
        if name in names:
            runs[name] = run
        else:
            others += 1
    failed = {} if retry else {n: e for n, e in _read_refused(directory).items() if n in names}
    unfinished = []
    for cell in cells:
        record = runs[cell.name].record() if cell.name in runs else {"status": ""}
        process = holder(runs[cell.name]) if cell.name in runs else None
        if process is not None:
            raise InputError(
                f"process {process} works on {runs[cell.name].path}; only one command at a time "
                "may work on a sweep"
            )
        if record["status"] == FINISHED:
            failed.pop(cell.name, None)  # it was resumed manually
        elif record["status"] == FAILED and not retry:
            failed[cell.name] = record.get("error", "failed")
        elif cell.name not in failed:
            unfinished.append(cell)
    return SweepState(runs, failed, tuple(unfinished), others)


def print_flushed(line: str) -> None:
    """Prints a line immediately, even into a pipe or a file."""
    print(line, flush=True)


def carry_out(
    state: SweepState,
    directory: Path,
    *,
    processes: int = 1,
    cluster: str = "",
    together: bool = False,
    print_line: Callable[[str], None] = print_flushed,
) -> dict[str, str]:
    """Runs every remaining cell, and resumes those that were interrupted.

    Args:
        state: Result of :func:`state_of`.
        directory: Folder of the sweep, on a disk that every machine of a cluster can access.
        processes: Number of simultaneous cells on this machine; each trains its seeds on all cores.
        cluster: Address of a Ray cluster on which to distribute cells; ``"local"`` starts one on
            this machine, empty uses none.
        together: Whether cells whose learners differ only in numbers are first trained in one
            program, if they share this process.
        print_line: Called with a line for each cell that ends.

    Returns:
        Reason for every failed cell, by its name, including earlier failures.

    Raises:
        InputError: If Ray is requested but not installed, or the cluster cannot be reached.
        StoppedError: After a signal; the same command continues.
    """
    directory.mkdir(parents=True, exist_ok=True)
    failed, texts = dict(state.failed), {cell.name: cell.text() for cell in state.left}
    finished_together: list[Outcome] = []
    if together and processes == 1 and not cluster:
        finished_together, state = _train_together(state, directory, print_line)
    jobs = [
        (cell.name, config_to_dict(cell.config), cell.values, str(state.runs[cell.name].path))
        if cell.name in state.runs
        else (cell.name, config_to_dict(cell.config), cell.values, "")
        for cell in state.left
    ]
    if cluster:
        outcomes = _cluster_outcomes(jobs, cluster)
    elif processes > 1:
        outcomes = _process_outcomes(jobs, processes)
    else:
        outcomes = (run_cell(*job) for job in jobs)
    total = len(finished_together) + len(jobs)
    outcomes = itertools.chain(finished_together, outcomes)
    for count, outcome in enumerate(outcomes, start=1):
        result = f"failed: {outcome.error}" if outcome.error else "finished"
        if outcome.lost:
            result = f"stopped; the same command resumes it: {outcome.error}"
        print_line(f"[{count}/{total}] {texts[outcome.cell]}: {result}")
        if outcome.error and not outcome.lost:
            failed[outcome.cell] = outcome.error
        elif not outcome.lost:
            failed.pop(outcome.cell, None)
        _save_refused(directory, failed)
    return failed


def require_ended(left: int, finished: int, total: int) -> None:
    """Refuses success of a command that leaves runs, or of which no run has finished.

    Raises:
        InputError: If runs are left, whose processes were lost or disk was full, or if all failed.
    """
    if left:
        raise InputError(
            f"{left} of {total} runs were stopped before they ended; give the same command again, "
            "which resumes them"
        )
    if not finished:
        raise InputError(f"none of {total} runs has finished; their reasons are listed above")


def _train_together(
    state: SweepState, directory: Path, print_line: Callable[[str], None]
) -> tuple[list[Outcome], SweepState]:
    """Trains groups of the remaining cells; returns the failures and the cells that then remain."""
    groups: dict[Any, list[Cell]] = {}
    for cell in state.left:
        key = joint_key(cell.config)
        groups.setdefault(cell.name if key is None else key, []).append(cell)
    failed: dict[str, str] = {}
    for group in groups.values():
        largest_group = max(MAX_TOGETHER // len(group[0].config.training.seeds), 1)
        for first in range(0, len(group), largest_group):
            cells = group[first : first + largest_group]
            if len(cells) == 1:
                continue
            jobs = [
                JointRun(
                    cell.name,
                    cell.config,
                    _cell_entry(cell.name, cell.values),
                    state.runs.get(cell.name),
                )
                for cell in cells
            ]
            learners = ", ".join(cells[0].config.training.algorithms)
            print_line(f"training {len(cells)} settings of {learners} with one program")
            try:
                failed |= train_runs_together(jobs, Reporter())
            except InputError as error:
                print_line(f"the settings are trained separately instead: {one_line(error)}")
    now = state_of(directory, state.left)
    left = tuple(cell for cell in now.left if cell.name not in failed)
    outcomes = [Outcome(name, error) for name, error in failed.items()]
    return outcomes, dataclasses.replace(state, runs={**state.runs, **now.runs}, left=left)


def _cell_entry(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {SWEEP: {"cell": name, "values": dict(values)}}


def run_cell(
    name: str, sections: Mapping[str, Any], values: Mapping[str, Any], run: str
) -> Outcome:
    """Runs one cell, or resumes its run, and returns the outcome; failures are not raised.

    Raises:
        StoppedError: After a signal.
    """
    reporter, timings = Reporter(quiet=True), Timings.since_start(IMPORTS)
    try:
        if run:
            directory = RunDirectory(Path(run))
            resume_job(directory, configure(directory.config), reporter, timings)
        else:
            run_job(configure(**sections), reporter, timings, _cell_entry(name, values))
    except StoppedError:
        raise
    except Exception as error:  # a failing cell is recorded, and the others continue
        return Outcome(name, one_line(error), is_full_disk(error))
    return Outcome(name, "")


def _process_outcomes(jobs: Sequence[Any], processes: int) -> Iterator[Outcome]:
    """Runs each cell in its own process, whose end frees its programs and ends no other cell."""
    with ThreadPoolExecutor(processes) as pool:
        waiting = {pool.submit(_in_process, job): job[0] for job in jobs}
        try:
            for future in as_completed(waiting):
                error = future.exception()
                if isinstance(error, KeyboardInterrupt | StoppedError):
                    raise error
                lost = error is not None
                yield Outcome(waiting[future], one_line(error), True) if lost else future.result()
        finally:  # after a signal no further cell begins
            pool.shutdown(wait=False, cancel_futures=True)


def _in_process(job: Any) -> Outcome:
    """Runs one cell in a pool of its own, because a pool breaks as a whole with one process."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=prepare_process) as pool:
        return pool.submit(run_cell, *job).result()


def _cluster_outcomes(jobs: Sequence[Any], address: str) -> Iterator[Outcome]:
    """Runs each cell as a Ray task, on any machine with a free core."""
    try:
        ray: Any = importlib.import_module("ray")
        faults: Any = importlib.import_module("ray.exceptions")
    except ImportError:
        raise InputError(
            f"a sweep on a cluster needs Ray: {install_line('neorl-train[cluster]')}"
        ) from None
    _require_listener(address)
    try:
        ray.init(
            **({} if address == "local" else {"address": address}),
            ignore_reinit_error=True,
            log_to_driver=False,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(
            f"the Ray cluster at {address} cannot be reached: {one_line(error)}"
        ) from None
    task = ray.remote(max_retries=0)(_prepare_cell)
    waiting = {task.remote(*job): job[0] for job in jobs}
    try:
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            name = waiting.pop(done)
            try:
                yield Outcome(*ray.get(done))
            except faults.RayTaskError as error:
                yield Outcome(name, one_line(error))
            except faults.RayError as error:  # its machine was lost
                yield Outcome(name, one_line(error), True)
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Refuses an address at which nothing listens, because Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise InputError(
            f"the Ray cluster at {address} cannot be reached: {error.strerror or error}; start one "
            "with `ray start --head`, or give `--cluster auto` on one of its machines"
        ) from None


def _prepare_cell(*job: Any) -> tuple[str, str, bool]:
    prepare_process()
    cell, error, lost = run_cell(*job)
    return cell, error, lost


def _read_refused(directory: Path) -> dict[str, str]:
    path = directory / REFUSED
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({error}); delete it to run the cells that failed again"
        ) from None
    return dict(check_head(content, "refused cells", VERSION, str(path))["cells"])


def _save_refused(directory: Path, failed: Mapping[str, str]) -> None:
    write_json(directory / REFUSED, {**head("refused cells", VERSION), "cells": dict(failed)})
