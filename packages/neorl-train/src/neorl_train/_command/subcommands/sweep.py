"""``neorl-train sweep SWEEP.toml``: runs every combination of settings, or a search."""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neorl_core import InputError
from neorl_core.infrastructure import setting
from neorl_train._command.shared import parse_named, print_json

if TYPE_CHECKING:
    from neorl_train.studies._sweep import Cell, SweepFile, SweepState

USAGE = """neorl-train sweep SWEEP.toml [--OPTION VALUE ...]

Starts a run for every combination of the values in [grid] of a file that is otherwise the
configuration of a run: plants or logs, learners, seeds, any setting. With [search] instead of
[grid], Optuna draws the settings; it maximises the gain over today's controller that a plant model
of the log predicts; the plant or Gymnasium environment of the evaluation has no say in it.
A stopped sweep continues with the same command; a cell that fails is counted, and the others
continue. On one machine without --processes, settings that differ only in numbers, such as
learning rates and weights, are trained by one program and then evaluated one by one; their folders
and tables are those of separate runs. Tables of all runs are written as table.md, table.csv and
table.json.

a grid:                                       a search:
  [grid]                                        [search]
  data.source = ["CSTR-v0", "DMSD-v0"]          trials = 20
  training.algorithms = ["td3_bc", "iql"]       batch = 4   # drawn at once, trained by one program
  algorithms.iql.expectile = [0.7, 0.9]         [search.space]
  [training]                                    algorithms.iql.expectile = {low = 0.5, high = 0.95}
  updates = 20000                               [training]
                                                algorithms = ["iql"]

examples:
  neorl-train sweep sweep.toml --dry-run
  neorl-train sweep sweep.toml
  neorl-train sweep sweep.toml --no-together          (each setting in a run of its own)
  neorl-train sweep sweep.toml --processes 2 --output results
  neorl-train sweep sweep.toml --cluster auto         (a Ray cluster; `local` starts one here)
"""


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """How to run a sweep.

    Attributes:
        output: Folder for its runs and tables; empty uses sweeps/NAME, named after the file.
        processes: Number of simultaneous runs on this machine; each run trains its seeds on all
            cores.
        cluster: Address of a Ray cluster on which to distribute runs; empty uses only this machine.
        together: Train settings of a grid, or of a batch of a search, in one program if they differ
            only in numbers, such as learning rates; the results are those of separate runs.
        retry: Rerun the cells of a grid that failed.
        dry_run: List the runs and stop.
        json: Print JSON instead of text.
    """

    output: str = ""
    processes: int = setting(1, low=1)
    cluster: str = ""
    together: bool = True
    retry: bool = False
    dry_run: bool = False
    json: bool = False


def command(arguments: list[str]) -> None:
    """``neorl-train sweep SWEEP.toml [--OPTION VALUE ...]``."""
    name, options = parse_named(SweepOptions, arguments, "neorl-train sweep SWEEP.toml")
    if not name:
        raise InputError("sweep takes a TOML file; for example `neorl-train sweep sweep.toml`")
    from neorl_train.studies._sweep import (
        carry_out,
        one_command,
        read_sweep,
        require_ended,
        state_of,
    )

    sweep = read_sweep(Path(name), Path(options.output) if options.output else None)
    if sweep.search is not None:
        if options.retry:
            raise InputError(
                "--retry applies only to a grid; after a failed trial a search draws other "
                "settings, so raise search.trials instead"
            )
        _search(sweep, options)
        return
    cells = sweep.cells()
    state = state_of(sweep.directory, cells, retry=options.retry)
    print_line = _printer(options)
    print_line(
        f"{len(cells)} runs in {sweep.directory}: {len(state.finished)} finished, "
        f"{len(state.failed)} failed, {len(state.left)} to do"
    )
    if options.dry_run:
        for cell in cells:
            print_line(f"  {cell.text()}")
        if options.json:
            counts = {"finished": len(state.finished), "failed": len(state.failed)}
            runs = [cell.values for cell in cells]
            print_json("sweep-plan", {"folder": str(sweep.directory), **counts, "runs": runs})
        return
    with one_command(sweep.directory):
        state = state_of(sweep.directory, cells, retry=options.retry)
        failed = carry_out(
            state,
            sweep.directory,
            processes=options.processes,
            cluster=options.cluster,
            together=options.together,
            print_line=print_line,
        )
        state = state_of(sweep.directory, cells)
        _tables(sweep.directory, state, cells, failed, options)
    require_ended(len(state.left), len(state.finished), len(cells))


def _printer(options: SweepOptions) -> Callable[[str], None]:
    """Prints lines immediately; on standard error if the results are JSON."""
    return partial(print, flush=True, file=sys.stderr if options.json else sys.stdout)


def _search(sweep: "SweepFile", options: SweepOptions) -> None:
    from neorl_train.studies._search import PredictedGain, best_trial, search
    from neorl_train.studies._sweep import one_command, require_ended, state_of

    assert sweep.search is not None
    print_line = _printer(options)
    print_line(
        f"{sweep.search.trials} trials in {sweep.directory}, over {', '.join(sweep.search.space)}"
    )
    if options.dry_run:
        if options.json:
            plan = {"trials": sweep.search.trials, "space": sweep.search.space}
            print_json("sweep-plan", {"folder": str(sweep.directory), **plan})
        return
    with one_command(sweep.directory):
        cells = search(
            sweep,
            sweep.search,
            PredictedGain(),
            processes=options.processes,
            cluster=options.cluster,
            together=options.together,
            print_line=print_line,
        )
        distinct = list({cell.name: cell for cell in cells}.values())
        state = state_of(sweep.directory, distinct)
        best = best_trial(sweep.directory, sweep.search)
        chosen = best and {"settings": best[0], "predicted_gain": best[1]}
        _tables(sweep.directory, state, distinct, state.failed, options, best=chosen)
    if best is not None:
        settings = " ".join(f"--{name} {value}" for name, value in best[0].items())
        print_line(f"best by the plant model, {best[1]:.4g}: {settings}")
    require_ended(len(state.left), len(state.finished), len(distinct))


def _tables(
    directory: Path,
    state: "SweepState",
    cells: Sequence["Cell"],
    failed: Mapping[str, str],
    options: SweepOptions,
    **further: Any,
) -> None:
    """Prints the table of all finished runs and writes it in three formats.

    Additional content is included in the JSON.
    """
    from neorl_train.studies import (
        aggregate,
        compare_runs,
        comparison_text,
        comparison_to_json,
        write_comparison,
    )

    print_line, runs = _printer(options), state.finished
    reasons = [f"{cell.text()}: {failed[cell.name]}" for cell in cells if cell.name in failed]
    for reason in reasons:
        print_line(f"failed: {reason}")
    if state.others:
        print_line(
            f"{state.others} further {'runs' if state.others > 1 else 'run'} in {directory} "
            f"{'have' if state.others > 1 else 'has'} other settings and "
            f"{'are' if state.others > 1 else 'is'} not in these tables; `neorl-train compare` "
            "compares any runs"
        )
    if not runs:
        if options.json:
            print_json("comparison", {"rows": [], "failed": reasons, **further})
        return
    comparison = compare_runs(sorted(runs))
    aggregates = aggregate(comparison)
    if options.json:
        document = comparison_to_json(comparison, aggregates)
        print_json("comparison", {**document, "failed": reasons, **further})
    else:
        print(comparison_text(comparison, aggregates))
    for suffix in (".md", ".csv", ".json"):
        write_comparison(directory / f"table{suffix}", comparison, aggregates)
    print_line(
        f"tables: {directory.absolute() / 'table.md'}, .csv, .json; failed runs: {len(reasons)}"
    )
