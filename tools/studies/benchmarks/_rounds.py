"""What the benchmarks of training share: the small case, machine facts, raw rounds as JSON."""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
MAX_SPREAD = 1.3
LEAST_CPU_SECONDS = 0.5
ROWS = 200_000


def small_case(name: str) -> tuple[Any, Any]:
    """A learner of 64x64 networks and batches of 64, and 200,000 random rows (12 obs, 3 actions).

    Args:
        name: Name of the algorithm.

    Returns:
        The algorithm, and its training data with the reactor's specification.
    """
    import numpy as np

    from neorl_agents import ALGORITHMS
    from neorl_agents.learning import Networks, Steps
    from neorl_envs import make
    from neorl_envs.datasets import data_statistics, dataset_from_columns
    from neorl_train.data import TrainingData

    rng = np.random.default_rng(0)
    spec = make("ChemicalReactor-v0").spec
    low, high = (np.array([getattr(c, end) for c in spec.action]) for end in ("low", "high"))
    log = dataset_from_columns(
        spec,
        obs=rng.normal(size=(ROWS, spec.n_obs)),
        action=rng.uniform(low, high, size=(ROWS, spec.n_action)),
        reward=rng.normal(size=ROWS),
        cost=np.zeros((ROWS, spec.n_cost)),
        next_obs=rng.normal(size=(ROWS, spec.n_obs)),
        terminated=np.zeros(ROWS, bool),
        truncated=np.arange(1, ROWS + 1) % 100 == 0,
    )
    rows = log.transitions._replace(mask=None)
    networks, steps = Networks(hidden=(64, 64)), Steps(batch_size=64)
    algorithm = ALGORITHMS[name](networks=networks, steps=steps)
    return algorithm, TrainingData(rows, data_statistics(log), spec)


def bare_scan(algorithm: Any, data: Any, device: Any, seed: int, block: int) -> Callable[[], Any]:
    """The peer: a scan over the same update, rows drawn and gathered once a block; nothing else.

    What an update returns is computed: its state and its metrics. The metrics are thrown away.

    Args:
        algorithm: Learner with plain numbers.
        data: Data it is trained on.
        device: Device it is trained on.
        seed: Seed of state and rows.
        block: Number of critic gradient steps of one call.

    Returns:
        A function that queues one block and returns its state.
    """
    import jax

    from neorl_core import Transition, as_arrays

    wanted: Any = {name: getattr(data.rows, name) for name in algorithm.fields}
    rows = jax.device_put(Transition(*(wanted.get(n) for n in Transition._fields)), device)
    begin, *keys = jax.random.split(jax.random.key(seed), 10_001)
    held = [jax.device_put(algorithm.init(data.spec, data.statistics, begin), device)]
    hyper, order = jax.device_put(as_arrays(algorithm), device), iter(keys)
    cycles = block // algorithm.batches_per_update
    run = partial(_bare_block, shape=(cycles, algorithm.batches_per_update, algorithm.batch_size))
    compiled = jax.jit(run, donate_argnums=1)

    def work() -> Any:
        held[0], _ = compiled(hyper, held[0], rows, jax.device_put(next(order), device))
        return held[0]

    return work


def _bare_block(algorithm: Any, state: Any, rows: Any, key: Any, *, shape: tuple) -> Any:
    import jax

    index_key, update_key = jax.random.split(key)
    index = jax.random.randint(index_key, shape, 0, ROWS)
    batches = jax.tree.map(lambda column: column[index], rows)
    keys = jax.random.split(update_key, shape[0])
    return jax.lax.scan(lambda s, xs: algorithm.update(s, *xs), state, (batches, keys))


def on_one_core(core: int) -> None:
    """Pins the process to one core and one thread; before JAX is imported."""
    os.sched_setaffinity(0, {core})
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
    os.environ.update(dict.fromkeys(threads, "1"))
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"


def interleaved(
    variants: Mapping[str, Callable[[], Any]],
    steps: int,
    rounds: int,
    least: float = LEAST_CPU_SECONDS,
) -> dict[str, list[float]]:
    """CPU time of one step of each variant, in turn, so that the machine's moods meet all.

    Args:
        variants: Function by name; each call queues ``steps`` steps and returns an array or a
            tree of them.
        steps: Number of steps of one call.
        rounds: Number of rounds of each variant.
        least: Seconds of CPU time that a round lasts at least.

    Returns:
        Microseconds a step, one per round.
    """
    import jax

    times: dict[str, list[float]] = {name: [] for name in variants}
    for work in variants.values():
        jax.block_until_ready(work())
        jax.block_until_ready(work())
    for _ in range(rounds):
        for name, work in variants.items():
            calls, start = 0, time.process_time()
            while not calls or time.process_time() - start < least:
                jax.block_until_ready(work())
                calls += 1
            times[name].append(1e6 * (time.process_time() - start) / (calls * steps))
    return times


def pair_arguments(description: str | None, name: str) -> argparse.Namespace:
    """The options of a benchmark that compares variants on one core."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="rounds of every variant (15)")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
    return parser.parse_args()


def pair_report(
    name: str,
    cases: Mapping[str, Mapping[str, Sequence[float]]],
    ratios: Mapping[str, Sequence[tuple[str, str]]],
    arguments: argparse.Namespace,
) -> int:
    """Writes the rounds and prints them; 1 if a variant's rounds spread too far.

    A ratio is the median over rounds of one variant's time over another's in the same round.
    """
    shown = {}
    failures = []
    for case, times in cases.items():
        shown[case] = {"variants": {variant: summary(rounds) for variant, rounds in times.items()}}
        shown[case]["ratios"] = {}
        for over, under in ratios[case]:
            each = [a / b for a, b in zip(times[over], times[under], strict=True)]
            shown[case]["ratios"][f"{over} / {under}"] = summary(each)
            middle, low, high = statistics.median(each), min(each), max(each)
            print(f"{case}: {over} / {under} = {middle:.3f} ({low:.3f} to {high:.3f})")
        for variant, rounds in times.items():
            print(f"{case}: {variant} {statistics.median(rounds):.1f} us a step")
            if max(rounds) > MAX_SPREAD * min(rounds):
                failures.append(f"{case}, {variant}: max/min is {max(rounds) / min(rounds):.2f}")
    result = {
        "benchmark": name,
        "command": f"python tools/studies/benchmarks/{name}.py " + " ".join(sys.argv[1:]),
        "case": {"obs": 12, "act": 3, "hidden": [64, 64], "batch": 64, "rows": ROWS},
        "unit": "microseconds of CPU time a step",
        "cases": shown,
        **machine(),
    }
    write(arguments.out, result)
    for failure in failures:
        print(f"FAILED {failure}, over {MAX_SPREAD}")
    return 1 if failures else 0


def summary(rounds: Sequence[float]) -> dict[str, Any]:
    """Median, range and spread of one variant."""
    return {
        "rounds": list(rounds),
        "median": statistics.median(rounds),
        "min": min(rounds),
        "max": max(rounds),
        "spread": max(rounds) / min(rounds),
    }


def median_interval(values: Sequence[float]) -> list[float]:
    """Ends of the 95 % percentile bootstrap interval of a median over rounds."""
    import numpy as np
    from scipy.stats import bootstrap

    options: dict[str, Any] = {"method": "percentile", "n_resamples": 4000, "rng": 0}
    interval = bootstrap((np.asarray(values),), np.median, **options).confidence_interval
    return [float(interval.low), float(interval.high)]


TRAINING = ("jax", "jaxlib", "numpy", "optax", "orbax-checkpoint", "mlflow-skinny")


def machine(packages: Sequence[str] = TRAINING) -> dict[str, Any]:
    """What the figures depend on; packages that are not installed are left out."""
    versions = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_at_end": os.getloadavg()[0],
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": versions,
    }


def _commit() -> str | None:
    """The version of the code that is measured; ``-dirty`` behind it where files were changed."""
    command = ["git", "-C", str(RESULTS), "describe", "--always", "--dirty"]
    completed = subprocess.run(command, capture_output=True, text=True)
    return completed.stdout.strip() or None


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Writes the raw rounds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"raw rounds: {path}")
