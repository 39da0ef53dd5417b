"""Memory of a log that is collected file after file, against the log that is collected at once.

``neorl-envs collect`` in new processes, for two sizes of a log of the reactor: at once, and with
``--shard-rows``. Reported are the largest resident memory of each process and whether both logs
have one content hash. Memory at once grows with the log; memory by files must not.

    python tools/studies/benchmarks/logs/shards.py
    python tools/studies/benchmarks/logs/shards.py --rows 100000 --shard-rows 50000
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _rounds import RESULTS, machine, write

TIMES, GROWTH = 4, 1.1
"""The larger log over the smaller; most that memory by files may grow with it."""


def main() -> int:
    """Runs all of it; 0 if the logs are equal and memory by files hardly grows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plant", default="ChemicalReactor-v0")
    parser.add_argument("--rows", type=int, default=300_000, help="of the smaller log (300,000)")
    parser.add_argument("--shard-rows", type=int, default=150_000, help="of a file (150,000)")
    parser.add_argument("--out", type=Path, default=RESULTS / "shards.json")
    options = parser.parse_args()
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        _collected(options.plant, 1, Path(folder) / "warm.h5")  # compiled programs are kept
        for rows in (options.rows, TIMES * options.rows):
            files = ["--shard-rows", str(options.shard_rows)]
            out = Path(folder) / f"{rows}"
            once = _collected(options.plant, rows, out.with_suffix(".h5"))
            each = _collected(options.plant, rows, out.with_suffix(".shards.json"), *files)
            equal = once.pop("hash") == each.pop("hash")
            measured.append({"rows": rows, "at_once": once, "by_files": each, "equal": equal})
            print(measured[-1], flush=True)
    small, large = (one["by_files"]["peak_MB"] for one in measured)
    growth = large / small
    result = {
        "benchmark": "shards",
        "command": "python tools/studies/benchmarks/logs/shards.py " + " ".join(sys.argv[1:]),
        "case": {"plant": options.plant, "shard_rows": options.shard_rows},
        "unit": "MB resident at the peak of a process; processor seconds, from a busy machine",
        "logs": measured,
        "growth_by_files": growth,
        **machine(),
    }
    write(options.out, result)
    print(f"{TIMES} times the rows: {growth:.2f} times the memory by files")
    return 0 if growth <= GROWTH and all(one["equal"] for one in measured) else 1


def _collected(plant: str, rows: int, out: Path, *more: str) -> dict[str, Any]:
    """Peak memory and processor time of one process that collects a log, and the log's hash."""
    arguments = ["collect", plant, "--steps", str(rows), "--out", str(out), *more]
    started_at = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "neorl_envs", *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    digest = next(word for word in text.split() if word.startswith("sha256:"))
    for file in out.parent.glob(f"{out.name.partition('.')[0]}*"):
        file.unlink()
    return {
        "peak_MB": round(used.ru_maxrss / 1e3, 1),
        "processor_s": round(used.ru_utime + used.ru_stime, 1),
        "wall_s": round(time.perf_counter() - started_at, 1),
        "hash": digest,
    }


if __name__ == "__main__":
    sys.exit(main())
