"""``neorl-train benchmark``: compares learners with controllers on plants, logs and seeds."""

import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import Any

from neorl_core.infrastructure import setting
from neorl_train._command.shared import parse_named, print_json

USAGE = """neorl-train benchmark [FILE.toml | FOLDER] [--OPTION VALUE ...]

Trains every learner on a log of every quality of every plant, with every seed, and scores the
policies beside the plant's controllers: 0 as random actions, 100 as its reference controller. The
grid is declared by a file with a section [benchmark], or by options; other sections of the file are
those of a run and apply to all. A stopped or killed benchmark continues with the same command, or
when its FOLDER is named: finished runs are not trained again. A run that fails is counted and
shown, and the others continue.

The last score is that after the last update, on starts that were not used for any choice. The best
score is that of the best validation during training, whose choice would have needed online
episodes; their number is stated. Tables are written as .txt, .md, .tex, .csv and .json, pictures as
.html and .png.

a file:
  [benchmark]
  plants = ["CSTR-v0", "DMSD-v0"]
  qualities = ["medium", "mixed"]
  algorithms = ["bc", "td3_bc", "iql"]
  seeds = [0, 1, 2]
  [training]
  updates = 20000

examples:
  neorl-train benchmark benchmark.toml --dry-run
  neorl-train benchmark benchmark.toml
  neorl-train benchmark --plants CSTR-v0 --algorithms bc iql --seeds 0 1 --updates 5000
  neorl-train benchmark benchmarks/benchmark --processes 2      (continue where it stopped)
  neorl-train benchmark benchmark.toml --cluster auto           (a Ray cluster; `local` starts one)
"""


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions:
    """The grid, unless a file gives it, and how to run it.

    Attributes:
        plants: Simulated plants.
        qualities: Qualities of their logs: random, medium, mixed, expert; mixed by default.
        algorithms: Learners; bc, td3_bc and iql by default.
        seeds: Seeds of every learner; 0 1 2 3 by default.
        separate_seeds: Make every seed a separate run, so that a diverging seed does not stop the
            others; takes more time.
        updates: Number of updates of every seed; 0 uses that of the file, else 30000.
        steps: Least number of steps of every log; 0 uses that of the file, else 120000.
        starts: Number of episodes in each final score; 0 uses that of the file, else 128.
        output: Folder for runs and tables; empty uses benchmarks/NAME, named after the file.
        processes: Number of simultaneous runs on this machine; each run trains its seeds on all
            cores.
        cluster: Address of a Ray cluster on which to distribute runs; empty uses only this machine.
        retry: Try runs that failed again.
        dry_run: List the runs and stop.
        json: Print JSON instead of the tables.
    """

    plants: tuple[str, ...] = ()
    qualities: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    separate_seeds: bool = False
    updates: int = setting(0, low=0)
    steps: int = setting(0, low=0)
    starts: int = setting(0, low=0)
    output: str = ""
    processes: int = setting(1, low=1)
    cluster: str = ""
    retry: bool = False
    dry_run: bool = False
    json: bool = False

    def given(self) -> dict[str, Any]:
        """The options that were typed, in the layout of a file."""
        names = ("plants", "qualities", "algorithms", "seeds", "separate_seeds")
        values = {name: getattr(self, name) for name in names}
        values |= {
            "training.updates": self.updates,
            "data.steps": self.steps,
            "evaluation.starts": self.starts,
        }
        return {name: value for name, value in values.items() if value}


def command(arguments: list[str]) -> None:
    """``neorl-train benchmark [FILE.toml | FOLDER] [--OPTION VALUE ...]``."""
    name, options = parse_named(BenchmarkOptions, arguments, "neorl-train benchmark")
    from neorl_train.studies._benchmark_run import (
        benchmark_notes,
        benchmark_plan,
        carry_out_benchmark,
        state_text,
    )
    from neorl_train.studies._sweep import require_ended

    print_line = partial(print, flush=True, file=sys.stderr if options.json else sys.stdout)
    output = Path(options.output) if options.output else None
    plan = benchmark_plan(Path(name) if name else None, options.given(), output)
    cells = plan.cells()
    print_line(state_text(plan, cells, retry=options.retry))
    for note in benchmark_notes(cells):
        print_line(note)
    if options.dry_run:
        for cell in cells:
            print_line(f"  {cell.text()}")
        if options.json:
            runs = [cell.values for cell in cells]
            print_json("benchmark-plan", {"folder": str(plan.directory), "runs": runs})
        return
    benchmark, files = carry_out_benchmark(
        plan,
        cells,
        processes=options.processes,
        cluster=options.cluster,
        retry=options.retry,
        print_line=print_line,
    )
    from neorl_train.studies._tables import benchmark_text, benchmark_to_json

    if options.json:
        print_json("benchmark", benchmark_to_json(benchmark))
    else:
        print(benchmark_text(benchmark))
    print_line(f"files: {files[0].absolute()}, {', '.join(path.suffix for path in files[1:])}")
    require_ended(benchmark.runs["left"], benchmark.runs["finished"], len(cells))
