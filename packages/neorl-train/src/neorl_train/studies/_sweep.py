"""Carries out a sweep: one run per cell, on this machine or on a Ray cluster, resumable."""

import contextlib
import dataclasses
import importlib
import itertools
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from neorl_core import InputError
from neorl_core.infrastructure import check_head, head, write_json
from neorl_core.infrastructure.command_line import StoppedError, one_line
from neorl_train._job.job import resume_job, run_job
from neorl_train._process.progress import Reporter
from neorl_train._process.switches import prepare_process
from neorl_train._process.timings import IMPORTS, Timings
from neorl_train.configuration._validation import configure
from neorl_train.runs._directory import RunDirectory, numbered_runs
from neorl_train.runs._lock import file_lock, holder
from neorl_train.runs._names import FAILED, FINISHED
from neorl_train.studies._cells import Cell, plain
from neorl_train.studies._joint_runs import JointRun, joint_key, train_runs_together

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
        lost: Whether its process or machine was lost; repeating the command resumes it.
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
        (cell.name, plain(cell), cell.values, str(state.runs[cell.name].path))
        if cell.name in state.runs
        else (cell.name, plain(cell), cell.values, "")
        for cell in state.left
    ]
    if cluster:
        outcomes = _on_cluster(jobs, cluster)
    elif processes > 1:
        outcomes = _in_processes(jobs, processes)
    else:
        outcomes = (run_cell(*job) for job in jobs)
    total = len(finished_together) + len(jobs)
    outcomes = itertools.chain(finished_together, outcomes)
    for count, outcome in enumerate(outcomes, start=1):
        result = f"failed: {outcome.error}" if outcome.error else "finished"
        if outcome.lost:
            result = f"its process was lost; the same command resumes it: {outcome.error}"
        print_line(f"[{count}/{total}] {texts[outcome.cell]}: {result}")
        if outcome.error and not outcome.lost:
            failed[outcome.cell] = outcome.error
        elif not outcome.lost:
            failed.pop(outcome.cell, None)
        _save_refused(directory, failed)
    return failed


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
        return Outcome(name, one_line(error))
    return Outcome(name, "")


def _in_processes(jobs: Sequence[Any], processes: int) -> Iterator[Outcome]:
    """Runs each cell in its own process, so that its compiled programs are freed when it ends."""
    pool = ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=prepare_process, max_tasks_per_child=1
    )
    with pool:
        waiting = {pool.submit(run_cell, *job): job[0] for job in jobs}
        for future in as_completed(waiting):
            error = future.exception()
            if isinstance(error, KeyboardInterrupt | StoppedError):
                pool.shutdown(cancel_futures=True)
                raise error
            lost = error is not None
            yield Outcome(waiting[future], one_line(error), True) if lost else future.result()


def _on_cluster(jobs: Sequence[Any], address: str) -> Iterator[Outcome]:
    """Runs each cell as a Ray task, on any machine with a free core."""
    try:
        ray: Any = importlib.import_module("ray")
        faults: Any = importlib.import_module("ray.exceptions")
    except ImportError:
        raise InputError(
            "a sweep on a cluster needs Ray: python -m pip install 'neorl-train[cluster]'"
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
    task = ray.remote(max_retries=0)(_prepared_cell)
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


def _prepared_cell(*job: Any) -> tuple[str, str]:
    prepare_process()
    cell, error, _ = run_cell(*job)
    return cell, error


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
