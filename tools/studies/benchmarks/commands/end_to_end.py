"""Share of a long run's time that is spent in gradient steps, from the command to its report.

``neorl-train run`` learns from the reactor's log with networks of 64x64 and batches of 64, with
records, MLflow, checkpoints, evaluation and report as they are by default. It is started twice,
first with empty caches of logs and compiled programs and then with those that it left. The seconds
in gradient steps are, for every block of updates, the median time between the records of two blocks
with no validation between them: compiling, checkpoints and whatever else takes longer now and then
count as what goes beside. Run it alone:

    python tools/studies/benchmarks/commands/end_to_end.py
    python tools/studies/benchmarks/commands/end_to_end.py --seeds 1 --updates 100000 --starts second
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _rounds import RESULTS, machine, write

FLOOR = 0.9
BLOCK = 1000
STARTS = ("first", "second")


def main() -> int:
    """Runs the command; 0 if the run that finds its caches keeps the wanted share."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", default="td3_bc", help="learner (td3_bc)")
    parser.add_argument("--updates", type=int, default=1_000_000, help="of every seed (1000000)")
    parser.add_argument("--seeds", type=int, default=4, help="seeds trained side by side (4)")
    parser.add_argument("--interval", type=int, default=50_000, help="of checkpoints (50000)")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--out", type=Path, default=RESULTS / "end_to_end.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if "first" not in arguments.starts:
            _timed(Path(folder), arguments, BLOCK)  # leaves the caches
        cases = {start: _run(Path(folder), arguments) for start in arguments.starts}
    result = {
        "benchmark": "end_to_end",
        "command": "python tools/studies/benchmarks/commands/end_to_end.py "
        + " ".join(sys.argv[1:]),
        "case": {"algorithm": arguments.algorithm, "hidden": [64, 64], "batch": 64, "block": BLOCK},
        "seeds": arguments.seeds,
        "updates": arguments.updates,
        "interval": arguments.interval,
        "unit": "seconds of wall time; processor_seconds of all threads",
        "floor": FLOOR,
        "cases": cases,
        **machine(),
    }
    write(arguments.out, result)
    for start, case in cases.items():
        print(
            f"{start}: {case['seconds']:.1f} s, of these {case['gradient_seconds']:.1f} s in "
            f"gradient steps: {case['share']:.3f} ({FLOOR} wanted)"
        )
        for stage in case["stages"]:
            print(f"  {stage['name']:<48} {stage['seconds']:8.1f} s")
    return 0 if cases.get("second", {"share": 1.0})["share"] >= FLOOR else 1


def _run(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One command from its start to its end, and what of its time went into gradient steps."""
    run, times = _timed(folder, arguments, arguments.updates)
    gradient = _gradient_seconds(run / "metrics.jsonl", arguments.updates)
    return {
        **times,
        "gradient_seconds": gradient,
        "share": gradient / times["seconds"],
        "stages": json.loads((run / "run.json").read_text())["timings"]["stages"],
    }


def _timed(
    folder: Path, arguments: argparse.Namespace, updates: int
) -> tuple[Path, dict[str, float]]:
    """The directory of a run, and the seconds of its command by the clock and of the processor."""
    runs, learner = folder / "runs", arguments.algorithm
    section = f"--algorithms.{learner.replace('_', '-')}"
    words = [
        *("run", "--training.algorithms", learner),
        *("--training.seeds", *map(str, range(arguments.seeds))),
        *("--training.updates", str(updates), "--training.chunk", str(BLOCK)),
        *("--checkpoints.interval", str(min(arguments.interval, updates))),
        *(f"{section}.networks.hidden", "64", "64", f"{section}.steps.batch-size", "64"),
        *("--output.directory", str(runs), "--quiet"),
    ]
    caches = {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "NEORL_COMPILATION_CACHE": str(folder / "programs"),
    }
    before, started_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "neorl_train", *words],
        env={**os.environ, **caches},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    seconds = time.monotonic() - started_at
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    newest = max(path for path in runs.iterdir() if path.name.isdecimal())
    return newest, {"seconds": seconds, "processor_seconds": processor}


def _gradient_seconds(metrics: Path, updates: int) -> float:
    """Median seconds between two blocks with no validation between them, for every block."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    of_seed = [line for line in lines if line["seed"] == 0]
    spans = [
        after["time"] - before["time"]
        for before, after in itertools.pairwise(of_seed)
        if before["kind"] == after["kind"] == "chunk"
    ]
    if not spans:
        raise SystemExit("no two blocks follow upon each other; take more updates")
    return statistics.median(spans) * (updates / BLOCK)


if __name__ == "__main__":
    sys.exit(main())
