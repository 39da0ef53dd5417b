"""Second start of ``neorl-train run``: seconds from the start of the process to its first chunk.

One algorithm, one seed, blocks of 100 updates; the log, the MLflow database, the cache of compiled
programs and Python's own byte code are there from a first start, which is not counted. Each start
is stopped after its first chunk; what it noted in ``run.json`` says where the time went. Run it
alone:

    python tools/benchmarks/second_start.py
    python tools/benchmarks/second_start.py --algorithm td3_bc --starts 9
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _rounds import RESULTS, machine, write

CEILING = 4.0
MOMENTS = ("states ready", "compiled", "end of the first chunk")


def main() -> int:
    """Starts it again and again; 0 if the median is below the ceiling."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", default="iql")
    parser.add_argument("--starts", type=int, default=5, help="starts that count (5)")
    parser.add_argument("--out", type=Path, default=RESULTS / "second_start.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _first(Path(folder), arguments.algorithm)
        starts = [_start(Path(folder), arguments.algorithm) for _ in range(arguments.starts)]
    rows = {name: [start[name] for start in starts] for name in starts[0]}
    table = {name: statistics.median(seconds) for name, seconds in rows.items()}
    result = {
        "benchmark": "second_start",
        "command": "python tools/benchmarks/second_start.py " + " ".join(sys.argv[1:]),
        "case": {"algorithm": arguments.algorithm, "seeds": 1, "block": 100},
        "unit": "seconds",
        "ceiling": CEILING,
        "rounds": rows,
        "medians": table,
        **machine(),
    }
    write(arguments.out, result)
    for name, seconds in table.items():
        print(f"{name:<36} {seconds:6.2f} s")
    total = table["total"]
    print(f"end of the first chunk after {total:.2f} s ({CEILING} wanted)")
    return 0 if total < CEILING else 1


def _command(folder: Path, algorithm: str, updates: int) -> subprocess.Popen:
    words = [
        "--training.algorithms", algorithm,
        "--evaluation.candidate", algorithm,
        "--training.seeds", "0",
        "--training.chunk", "100",
        "--training.updates", str(updates),
        "--checkpoints.interval", str(updates),
    ]  # fmt: skip
    unwanted = ("PYTHONDONTWRITEBYTECODE", "JAX_COMPILATION_CACHE_DIR")
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    return subprocess.Popen(
        [sys.executable, "-m", "neorl_train", "run", *words],
        cwd=folder,
        env={**environ, "XDG_CACHE_HOME": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _first(folder: Path, algorithm: str) -> None:
    """A whole small run: leaves log, database, compiled programs and byte code behind."""
    process = _command(folder, algorithm, 100)
    out, err = process.communicate(timeout=900)
    if process.returncode:
        raise RuntimeError(out + err)


def _start(folder: Path, algorithm: str) -> dict[str, float]:
    process = _command(folder, algorithm, 1_000_000)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("training "):
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    newest = max((folder / "runs").glob("[0-9]*"), key=lambda path: int(path.name))
    return _account(json.loads((newest / "run.json").read_text())["timings"])


def _account(timings: dict[str, Any]) -> dict[str, float]:
    """Seconds of every stage up to the end of the first chunk, in order, and the total."""
    before = {
        stage["name"]: stage["seconds"]
        for stage in timings["stages"]
        if not stage["name"].startswith("train ")
    }
    moments = [timings["moments"][name] for name in MOMENTS]
    ready, compiled, end = moments
    return {
        **before,
        "data to the devices, initial states": ready - sum(before.values()),
        "program (from the cache)": compiled - ready,
        "first block": end - compiled,
        "total": end,
    }


if __name__ == "__main__":
    sys.exit(main())
