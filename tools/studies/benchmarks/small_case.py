"""Rate of the learners' updates in the small case, as a fraction of the machine's limit.

Small case: 12 observations, 3 actions, networks of 64x64, batches of 64, 200,000 random rows,
float32. Everything is pinned to one core and one thread. The limit of a learner is the rate of a
256x256x256 matrix product, measured in the same run in alternation, over the arithmetic of one
update (matrix products only): 7.2 MFLOP for TD3+BC and 9.3 MFLOP for IQL. One update is one
critic gradient step. Sampling of rows is inside the timing; imports, compilation and the first
chunk are not. Run it alone:

    python tools/studies/benchmarks/small_case.py
    python tools/studies/benchmarks/small_case.py --rounds 9 --core 1 --out /tmp/small_case.json
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FLOP_PER_UPDATE = {"td3_bc": 7.2e6, "iql": 9.3e6}
FLOORS = {"td3_bc": 0.50, "iql": 0.47}
GEMM_FLOP = 2 * 256**3
MAX_SPREAD = 1.3
ROWS, CHUNK, LEAST_SECONDS = 200_000, 1000, 0.7


def main() -> int:
    """Runs every variant in turn and writes the raw rounds; 0 if all floors are reached."""
    arguments = _arguments()
    if arguments.variant:
        return _serve(arguments.variant)
    names = ["gemm", *FLOP_PER_UPDATE]
    variants = {name: _start(name, arguments.core) for name in names}
    rounds: dict[str, list[float]] = {name: [] for name in names}
    try:
        for number in range(arguments.rounds):
            for name in names:
                rounds[name].append(_round(variants[name]))
            shown = ", ".join(f"{name} {rounds[name][-1]:.0f}/s" for name in names)
            print(f"round {number + 1} of {arguments.rounds}: {shown}", flush=True)
    finally:
        for process in variants.values():
            process.kill()
    result = _summary(rounds, arguments.core)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    return _report(result, arguments.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds of every variant (7)")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument(
        "--out",
        type=Path,
        default=HERE / "results" / "small_case.json",
        help="where the raw rounds go (tools/studies/benchmarks/results/small_case.json)",
    )
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {arguments.rounds}")
    if arguments.core not in os.sched_getaffinity(0):
        parser.error(f"--core must be one of {sorted(os.sched_getaffinity(0))}")
    return arguments


def _start(name: str, core: int) -> subprocess.Popen:
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
    environment = os.environ | dict.fromkeys(threads, "1")
    environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    environment["JAX_PLATFORMS"] = "cpu"
    command = [sys.executable, str(Path(__file__).resolve()), "--variant", name]
    process = subprocess.Popen(
        [*command, "--core", str(core)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    if _answer(process) != "ready":
        raise RuntimeError(f"variant {name} did not start")
    return process


def _round(process: subprocess.Popen) -> float:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(_answer(process))


def _answer(process: subprocess.Popen) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"a variant ended with status {process.wait()}; see its error above")
    return line


def _serve(name: str) -> int:
    """The life of one variant: warm up, then one timed round for every line of input."""
    work, count = _gemm() if name == "gemm" else _learner(name)
    work()
    work()
    print("ready", flush=True)
    for _ in sys.stdin:
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < LEAST_SECONDS:
            work()
            calls += 1
        print(calls * count / (time.perf_counter() - start), flush=True)
    return 0


def _gemm() -> tuple[Callable[[], None], int]:
    import jax
    import jax.numpy as jnp

    length = 1000
    rotation, _ = jnp.linalg.qr(jax.random.normal(jax.random.key(0), (256, 256)))

    def product(matrix: Any, _: None) -> tuple[Any, None]:
        return matrix @ rotation, None

    @jax.jit
    def chain(matrix: Any) -> Any:
        return jax.lax.scan(product, matrix, None, length=length)[0]

    def work() -> None:
        jax.block_until_ready(chain(rotation))

    return work, length


def _learner(name: str) -> tuple[Callable[[], None], int]:
    import jax

    from neorl_agents import ALGORITHMS
    from neorl_agents.learning import Networks, Steps
    from neorl_core import as_arrays

    log, spec, statistics = _random_log()
    networks, steps = Networks(hidden=(64, 64)), Steps(batch_size=64)
    plain = ALGORITHMS[name](networks=networks, steps=steps)
    algorithm, updates = as_arrays(plain), CHUNK // plain.batches_per_update
    shape = (updates, plain.batches_per_update, plain.batch_size)

    def chunk(algorithm: Any, state: Any, log: Any, key: Any) -> tuple[Any, Any]:
        index_key, update_key = jax.random.split(key)
        index = jax.random.randint(index_key, shape, 0, ROWS)
        batches = jax.tree.map(lambda column: column[index], log)
        keys = jax.random.split(update_key, updates)
        return jax.lax.scan(lambda state, xs: algorithm.update(state, *xs), state, (batches, keys))

    compiled = jax.jit(chunk, donate_argnums=1)
    states = [plain.init(spec, statistics, jax.random.key(0))]
    keys = iter(jax.random.split(jax.random.key(1), 100_000))

    def work() -> None:
        state, _ = compiled(algorithm, states.pop(), log, next(keys))
        states.append(jax.block_until_ready(state))

    return work, updates * plain.batches_per_update


def _random_log() -> tuple[Any, Any, Any]:
    import jax.numpy as jnp
    import numpy as np

    from neorl_core import Channel, DataStatistics, FieldStatistics, Spec, Transition

    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    log = Transition(
        obs=normal(ROWS, 12),
        action=jnp.clip(normal(ROWS, 3) / 2, -1, 1),
        reward=normal(ROWS),
        next_obs=normal(ROWS, 12),
        terminated=jnp.asarray(rng.uniform(size=ROWS) < 0.01),
        truncated=jnp.zeros(ROWS, bool),
    )
    channels = tuple(Channel(f"x{i}", "1", -1.0, 1.0) for i in range(12))
    spec = Spec(obs=channels, action=channels[:3], cost=(), dt=1.0, horizon=100)

    def standard(*shape: int) -> FieldStatistics:
        zero, one = jnp.zeros(shape), jnp.ones(shape)
        return FieldStatistics(jnp.asarray(float(ROWS)), zero, one, -one, one)

    statistics = DataStatistics(
        standard(12), standard(3), standard(), standard(0), standard(), standard()
    )
    return log, spec, statistics


def _summary(rounds: dict[str, list[float]], core: int) -> dict[str, Any]:
    gemm = statistics.median(rounds["gemm"]) * GEMM_FLOP
    variants = {}
    for name, rates in rounds.items():
        middle = statistics.median(rates)
        variants[name] = {
            "rounds_per_s": rates,
            "median_per_s": middle,
            "min_per_s": min(rates),
            "max_per_s": max(rates),
            "spread": max(rates) / min(rates),
        }
        if name in FLOP_PER_UPDATE:
            variants[name]["fraction_of_limit"] = middle * FLOP_PER_UPDATE[name] / gemm
            variants[name]["floor"] = FLOORS[name]
    return {
        "benchmark": "small_case",
        "command": f"python tools/studies/benchmarks/small_case.py --core {core}",
        "case": {"obs": 12, "act": 3, "hidden": [64, 64], "batch": 64, "rows": ROWS},
        "unit": "critic gradient steps per second; products per second for gemm",
        "gemm_gflop_per_s": gemm / 1e9,
        "cores": os.cpu_count(),
        "load_at_end": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {p: importlib.metadata.version(p) for p in ("jax", "jaxlib", "numpy")},
        "variants": variants,
    }


def _report(result: dict[str, Any], path: Path) -> int:
    print(f"one-thread 256^3 product: {result['gemm_gflop_per_s']:.1f} GFLOP/s")
    failures = []
    for name, variant in result["variants"].items():
        rates = "{min_per_s:.0f} - {median_per_s:.0f} - {max_per_s:.0f}".format(**variant)
        fraction = variant.get("fraction_of_limit")
        goal = "" if fraction is None else f", {fraction:.3f} of the limit ({FLOORS[name]} wanted)"
        print(f"{name}: min - median - max {rates} per s{goal}")
        if variant["spread"] > MAX_SPREAD:
            failures.append(f"{name}: max/min is {variant['spread']:.2f}, over {MAX_SPREAD}")
        if fraction is not None and fraction < FLOORS[name]:
            failures.append(f"{name}: {fraction:.3f} of the limit is below {FLOORS[name]}")
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"raw rounds: {path}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
