"""Training from a file larger than memory against training in memory: rate, memory, statistics.

TD3+BC with networks of 256x256, batches of 256, rows of 17 observations and 6 actions. Two
processes of their own take turns: one trains with all rows of a smaller file on the device, one
streams the large file by blocks, under a limit of its heap (RLIMIT_DATA, all of the process: JAX,
its compiler, its threads, the rows). Pages of the file that the system keeps for its own reasons
are outside that limit and outside the process' memory; they are given back when others need them,
and on a machine with more memory than the file the disk is read once. A round is a number of
chunks of 100 updates; imports, compilation and the first chunk are not timed. Reported are the
rates, CPU time an update (which other work on the machine disturbs less), the largest memory of
each process, the variance of batch means against that of uniform sampling on slow autoregressive
logs, and the returns of policies on the reactor after uniform sampling and after two kinds of
blocks, seed by seed.

    python tools/studies/benchmarks/streaming.py                 10 GB under 2 GB, against 1 GB in memory
    python tools/studies/benchmarks/streaming.py --only rates    on files that are there already

Every part that is done is kept in the folder: after an interruption the same command goes on with
the next one. At the end the files are deleted, unless --keep is given.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _rounds import RESULTS, machine, write

OBS, ACT, CHUNK, FLOOR, BLOCK = 17, 6, 100, 0.95, 100_000
ROW_BYTES = 4 * (2 * OBS + 2 * ACT + 1) + 3
PARTS = ("files", "rates", "batch_means", "scores")


def main() -> int:
    """Runs what is not done yet and writes the results; 0 if streaming keeps the floor."""
    options = _options()
    if options.work:
        return work(options.work[0], Path(options.work[1]), options)
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes = {"memory": options.in_memory, "stream": options.gigabytes}
    files = {name: options.folder / f"{gigabytes:g}.h5" for name, gigabytes in sizes.items()}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "files": partial(make_files, files, sizes),
        "rates": partial(contest, files, options),
        "batch_means": partial(batch_means, options.folder),
        "scores": partial(scores, options),
    }
    done_file = options.folder / "done.json"
    done: dict[str, Any] = json.loads(done_file.read_text()) if done_file.exists() else {}
    for name in options.only or PARTS:
        if name not in done or options.only:
            print(name, flush=True)
            done[name] = parts[name]()
            done_file.write_text(json.dumps(done))
    if not all(name in done for name in PARTS):
        return 0
    result = {
        **done["rates"],
        "batch_means": done["batch_means"],
        "scores": done["scores"],
        "benchmark": "streaming",
        "command": "python tools/studies/benchmarks/streaming.py " + " ".join(sys.argv[1:]),
        "case": {"obs": OBS, "act": ACT, "hidden": [256, 256], "batch": 256, "chunk": CHUNK},
        "gigabytes": sizes,
        "limit_gb": options.limit,
        "unit": "critic gradient steps per second",
        "floor": FLOOR,
        **machine(),
    }
    write(options.out, result)
    shown = ("ratio", "cpu_ratio", "peak_gb", "batch_means", "scores")
    print(json.dumps({name: result[name] for name in shown}, indent=1))
    if not options.keep:
        shutil.rmtree(options.folder)
    return int(result["ratio"] < FLOOR)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=10.0, help="of the streamed file (10)")
    parser.add_argument("--in-memory", type=float, default=1.0, help="of the other file (1)")
    parser.add_argument("--limit", type=float, default=2.0, help="of the streaming heap, GB (2)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=4, help=f"of {CHUNK} updates a round (4)")
    parser.add_argument("--updates", type=int, default=10_000, help="of each score (10,000)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts, done or not")
    parser.add_argument("--keep", action="store_true", help="keep the files")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "neorl-streaming"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "streaming.json")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def make_files(files: dict[str, Path], sizes: dict[str, float]) -> dict[str, Any]:
    """Both files, each under its name when it is complete."""
    for name, path in files.items():
        if not path.exists():
            part = path.with_suffix(".part")
            make_file(part, round(sizes[name] * 1e9 / ROW_BYTES))
            part.rename(path)
    return {name: path.stat().st_size for name, path in files.items()}


def make_file(path: Path, rows: int) -> None:
    """A dataset file of random rows, written column by column in blocks."""
    import h5py
    import numpy as np

    from neorl_envs import write_dataset
    from neorl_envs.datasets._dataset import content_digest
    from neorl_envs.datasets._file import map_unchecked, set_text

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
    script += ["--limit", str(options.limit)]
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
    pairs = zip(rates["stream"], rates["memory"], strict=True)
    ratio = statistics.median(stream / memory for stream, memory in pairs)
    spent = {name: statistics.median(seconds) for name, seconds in cpu.items()}
    return {
        "rounds": rates,
        "median": medians,
        "ratio": ratio,
        "cpu_seconds_an_update": cpu,
        "cpu_ratio": spent["memory"] / spent["stream"],
        "peak_gb": peaks,
    }


def work(kind: str, path: Path, options: argparse.Namespace) -> int:
    """One contender: a line when ready, a rate for every line read, its memory at the end."""
    if kind == "stream":
        heap = round(options.limit * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (heap, heap))
    import jax

    from neorl_agents import TD3BC
    from neorl_envs import read_dataset
    from neorl_train.data import streamed_data, training_data
    from neorl_train.training import offline_seeds

    algorithm = TD3BC()  # networks of 256 and 256, batches of 256
    data = training_data(read_dataset(path)) if kind == "memory" else streamed_data(path)
    parallel = offline_seeds(algorithm, data, (0,), jax.local_devices())
    parallel.compile(CHUNK // algorithm.batches_per_update)
    jax.block_until_ready(parallel.advance())
    print("ready", flush=True)
    for _ in sys.stdin:
        start, started_at = time.perf_counter(), time.process_time()
        running = None
        for _ in range(options.chunks):
            # As the training loop does: the next chunk is queued while the last one is read.
            queued = parallel.advance()
            jax.block_until_ready(running)
            running = queued
        jax.block_until_ready(running)
        updates = options.chunks * CHUNK
        rate = updates / (time.perf_counter() - start)
        print(rate, (time.process_time() - started_at) / updates, flush=True)
    parallel.close()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, flush=True)
    return 0


def batch_means(folder: Path) -> dict[str, float]:
    """Variance of the means of batches over that of uniform sampling, on slow logs."""
    import dataclasses
    import itertools

    import numpy as np

    from neorl_envs import write_dataset
    from neorl_envs.datasets import batch_stream

    rows, batch = 2_000_000, 256
    variances = {}
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
        variances[str(persistence)] = float(np.var(means) / (level.var() / batch))
    return variances


KINDS = {"uniform": None, "256 blocks of 32 rows": (32, 256), "8 blocks of 1024 rows": (1024, 8)}


def scores(options: argparse.Namespace) -> dict[str, Any]:
    """Returns of IQL on the reactor by how batches are drawn; differences seed by seed.

    A twelfth of the log is shuffled together in both kinds of blocks: from as many places as the
    default takes, and from far fewer.
    """
    import dataclasses

    import jax
    import numpy as np

    from neorl_agents import IQL
    from neorl_agents.learning import Networks, Steps
    from neorl_envs import collect_log, make, write_dataset
    from neorl_train import train
    from neorl_train.data import streamed_data, training_data
    from neorl_train.judging import PolicyValidation
    from neorl_train.training import Plan

    seeds, env = (0, 1, 2, 3, 4), make("ChemicalReactor-v0")
    log = collect_log(env, n_steps=100_000, key=jax.random.key(0))
    path = write_dataset(options.folder / "reactor.h5", log)
    judge = PolicyValidation(log, env, key=jax.random.key(1), starts=64)
    metrics: dict[str, Any] = {}
    for name, blocks in KINDS.items():
        data: Any = training_data(log) if blocks is None else streamed_data(path)
        if blocks is not None:
            stream = dataclasses.replace(data.stream, block_rows=blocks[0], buffer_blocks=blocks[1])
            data = dataclasses.replace(data, stream=stream)
        plan = Plan(options.updates, 500, options.updates)
        learner = IQL(networks=Networks(hidden=(64, 64)), steps=Steps(batch_size=64))
        trained = train(learner, data, seeds, plan)
        judged = [jax.device_get(judge(policy)) for policy in trained.policies]
        metrics[name] = {metric: [float(one[metric]) for one in judged] for metric in judged[0]}
        print(name, metrics[name]["plant_return"], flush=True)
    uniform = np.array(metrics["uniform"]["plant_return"])
    for name in list(KINDS)[1:]:
        differences = np.array(metrics[name]["plant_return"]) - uniform
        half = 2.776 * differences.std(ddof=1) / np.sqrt(len(seeds))  # Student, 4 degrees
        metrics[name]["less_uniform"] = float(differences.mean())
        metrics[name]["half_width_95"] = float(half)
    return metrics


if __name__ == "__main__":
    sys.exit(main())
