"""Training from a file larger than memory against training in memory: rate, memory, statistics.

TD3+BC with networks of 256x256, batches of 256, rows of 17 observations and 6 actions. Two
processes of their own take turns: one trains with all rows on the device, one streams them from
the file by blocks. A round is a number of chunks of 100 updates; imports, compilation and the
first chunk are not timed. Reported are the rates, CPU time an update (which other work on the
machine disturbs less), the largest memory of each process, and the variance of batch means against
that of uniform sampling, on slow autoregressive logs.

    python tools/benchmarks/streaming.py                       1 GB in memory and streamed
    python tools/benchmarks/streaming.py --gigabytes 10 --in-memory 1

With --in-memory the first contender has a file of that size, where the other would not fit.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _rounds import RESULTS, machine, write

OBS, ACT, CHUNK, FLOOR, BLOCK = 17, 6, 100, 0.95, 100_000
ROW_BYTES = 4 * (2 * OBS + 2 * ACT + 1) + 3


def main() -> int:
    """Runs all rounds and writes them; 0 if streaming keeps the floor."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of the streamed file (1)")
    parser.add_argument("--in-memory", type=float, default=0.0, help="of the other file (equal)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=4, help=f"of {CHUNK} updates a round (4)")
    parser.add_argument("--folder", type=Path, default=None, help="for the files")
    parser.add_argument("--out", type=Path, default=RESULTS / "streaming.json")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work[0], Path(options.work[1]), options.chunks)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files = {}
        sizes = {"memory": options.in_memory or options.gigabytes, "stream": options.gigabytes}
        for name, gigabytes in sizes.items():
            files[name] = Path(folder) / f"{gigabytes:g}.h5"
            if not files[name].exists():
                make_file(files[name], round(gigabytes * 1e9 / ROW_BYTES))
        result: dict[str, Any] = contest(files, options) | {
            "batch_means": batch_means(Path(folder))
        }
    result |= {
        "benchmark": "streaming",
        "command": "python tools/benchmarks/streaming.py " + " ".join(sys.argv[1:]),
        "case": {"obs": OBS, "act": ACT, "hidden": [256, 256], "batch": 256, "chunk": CHUNK},
        "gigabytes": sizes,
        "unit": "critic gradient steps per second",
        "floor": FLOOR,
        **machine(),
    }
    write(options.out, result)
    print(
        json.dumps(
            {k: result[k] for k in ("ratio", "cpu_ratio", "peak_gb", "batch_means")}, indent=1
        )
    )
    return int(result["ratio"] < FLOOR)


def make_file(path: Path, rows: int) -> None:
    """A dataset file of random rows, written column by column in blocks."""
    import h5py
    import numpy as np

    from neorl_envs.datasets._dataset import content_digest
    from neorl_envs.datasets._file import map_unchecked, write_dataset
    from neorl_envs.datasets._hdf5 import set_text

    # The header of a small file with the same channels; its columns are made larger.
    log = small_log(1000)
    write_dataset(path, log)
    random = np.random.default_rng(0)
    ends = np.append(np.arange(999, rows - 1, 1000), rows - 1)
    flags = np.zeros(rows, np.uint8)
    flags[ends] = 1
    with h5py.File(path, "r+") as opened:
        file: Any = opened
        for name in list(file):
            shape, dtype = (rows, *file[name].shape[1:]), file[name].dtype
            del file[name]
            if name == "episode_starts":
                file[name] = np.append(0, ends[:-1] + 1).astype(np.int64)
                continue
            column = file.create_dataset(name, shape, dtype)
            for start in range(0, rows, BLOCK):
                n = min(BLOCK, rows - start)
                if dtype == np.float32:
                    column[start : start + n] = random.random((n, *shape[1:]), np.float32)
                else:
                    fixed = {"mask": 1, "terminated": 0, "truncated": flags[start : start + n]}
                    column[start : start + n] = fixed[name]
        for start in range(0, rows, BLOCK):
            stop = min(start + BLOCK, rows)
            after = np.zeros((stop - start, ACT), np.float32)
            rest = file["action"][start + 1 : stop + 1]
            after[: len(rest)] = rest
            after[flags[start:stop] == 1] = 0
            file["next_action"][start:stop] = after
    digest = content_digest(map_unchecked(path))
    with h5py.File(path, "r+") as opened:
        set_text(opened, "content_hash", digest)


def small_log(rows: int) -> Any:
    """Zeros with the benchmark's channels."""
    import numpy as np

    from neorl_core import Channel, Spec
    from neorl_envs.datasets import dataset_from_columns

    spec = Spec(
        tuple(Channel(f"y{i}", "m", 0, 1) for i in range(OBS)),
        tuple(Channel(f"u{i}", "%", 0, 1) for i in range(ACT)),
        (),
        dt=1,
        horizon=rows,
    )
    return dataset_from_columns(
        spec,
        obs=np.zeros((rows, OBS)),
        action=np.zeros((rows, ACT)),
        reward=np.zeros(rows),
        next_obs=np.zeros((rows, OBS)),
        terminated=np.zeros(rows),
        truncated=np.zeros(rows),
    )


def contest(files: dict[str, Path], options: argparse.Namespace) -> dict[str, Any]:
    """Rates of both contenders, in turn, and their largest memory."""
    script = [sys.executable, __file__, "--chunks", str(options.chunks)]
    workers: dict[str, Any] = {
        name: subprocess.Popen(
            [*script, "--work", name, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, path in files.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in workers}
    cpu: dict[str, list[float]] = {name: [] for name in workers}
    for worker in workers.values():
        worker.stdout.readline()  # ready
    for _ in range(options.rounds):
        for name, worker in workers.items():
            worker.stdin.write("go\n")
            worker.stdin.flush()
            rate, seconds = map(float, worker.stdout.readline().split())
            rates[name].append(rate)
            cpu[name].append(seconds)
            print(f"{name} {rate:.0f}/s, {1e3 * seconds:.2f} ms of CPU an update", flush=True)
    peaks = {}
    for name, worker in workers.items():
        worker.stdin.close()
        peaks[name] = float(worker.stdout.readline())
        worker.wait()
    medians = {name: statistics.median(r) for name, r in rates.items()}
    ratio = medians["stream"] / medians["memory"]
    spent = {name: statistics.median(seconds) for name, seconds in cpu.items()}
    return {
        "rounds": rates,
        "median": medians,
        "ratio": ratio,
        "cpu_seconds_an_update": cpu,
        "cpu_ratio": spent["memory"] / spent["stream"],
        "peak_gb": peaks,
    }


def work(kind: str, path: Path, chunks: int) -> int:
    """One contender: a line when ready, a rate for every line read, its memory at the end."""
    from neorl_agents import TD3BC

    algorithm = TD3BC(hidden=(256, 256), batch_size=256)
    advance = in_memory(algorithm, path) if kind == "memory" else streamed(algorithm, path)
    advance()
    print("ready", flush=True)
    for _ in sys.stdin:
        start, begun = time.perf_counter(), time.process_time()
        for _ in range(chunks):
            advance()
        updates = chunks * CHUNK
        rate = updates / (time.perf_counter() - start)
        print(rate, (time.process_time() - begun) / updates, flush=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, flush=True)
    return 0


def in_memory(algorithm: Any, path: Path) -> Any:
    """The library's own training with all rows on the device."""
    import jax

    from neorl_envs import read_dataset
    from neorl_train.experience import training_data
    from neorl_train.training import ParallelSeeds

    data = training_data(read_dataset(path))
    parallel = ParallelSeeds(algorithm, data, (0,), jax.local_devices())
    parallel.compile(CHUNK // algorithm.batches_per_update)
    return lambda: jax.block_until_ready(parallel.advance())


def streamed(algorithm: Any, path: Path) -> Any:
    """Training from the file, a chunk at a call."""
    import queue
    import threading

    from neorl_train.training import train_streamed

    asked: queue.Queue[Any] = queue.Queue()
    done: queue.Queue[Any] = queue.Queue()

    def told(streamed: Any) -> None:
        done.put(streamed.done)
        asked.get()

    def run() -> None:
        asked.get()
        train_streamed(algorithm, path, updates=CHUNK * 100_000, chunk=CHUNK, told=told)

    threading.Thread(target=run, daemon=True).start()

    def advance() -> None:
        asked.put(None)
        done.get()

    return advance


def batch_means(folder: Path) -> dict[str, float]:
    """Variance of the means of batches over that of uniform sampling, on slow logs."""
    import dataclasses
    import itertools

    import numpy as np

    from neorl_envs import write_dataset
    from neorl_envs.datasets import batch_stream

    rows, batch = 2_000_000, 256
    found = {}
    for persistence in (0.0, 0.99, 0.9999):
        random = np.random.default_rng(1)
        noise = random.normal(size=rows) * np.sqrt(1 - persistence**2)
        level = np.empty(rows)
        value = 0.0
        for i, kick in enumerate(noise):
            value = level[i] = persistence * value + kick
        log = small_log(rows)
        reward = level.astype(np.float32)
        slow = dataclasses.replace(log, transitions=log.transitions._replace(reward=reward))
        path = write_dataset(folder / "slow.h5", slow)
        source = batch_stream(path, ["reward"], batch_size=batch, seed=0).batches()
        means = [float(b.reward.mean()) for b in itertools.islice(source, 7000)]
        source.close()
        found[str(persistence)] = float(np.var(means) / (level.var() / batch))
    return found


if __name__ == "__main__":
    sys.exit(main())
