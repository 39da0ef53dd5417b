"""Steps per second of every plant, whole: noise, delays, random parameters, automatic resets.

Every plant runs under uniform random actions as one compiled scan over a batch of N; the figure is
the median over rounds of steps per second of the wall clock, beside steps per second of processor
time, which other work on the machine moves less. Growth is the exponent of the time between the two
largest batches (1: linear). Compiling is timed once, uncached, for N = 1024. Peers step one
environment as their users do, in turn with ours in the same process; the ratio is ours at N = 1024
over theirs in the same round. Those that are not installed are named in the result:

    hatch run benchmark-plants:run
    hatch run benchmark-plants:run --only CSTR-v0 --rounds 3
    hatch run benchmark-plants:run --tiny --out /tmp/plants.json    that it runs, no figures
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _plant_peers import PEERS, Peer
from _rounds import RESULTS, machine, summary, write

VERSIONS = ("jax", "jaxlib", "numpy", "scipy", "pcgym", "casadi", "industrial-benchmark-python")
SIZES = (1, 64, 1024, 4096)
REFERENCE = 1024
STEPS = {1: 2000, 64: 200, 1024: 50, 4096: 25}
"""Steps of one call at every size, so that a call is long beside its dispatch."""
GOALS = {
    "ChemicalReactor-v0": 2e5,
    "HVACControl-v0": 1.5e6,
    "SteelAnnealing-v0": 8e4,
    "WaterTreatment-v0": 1e5,
    "RobotAssembly-v0": 2e4,
    "PowerGrid-v0": 8e3,
}
"""Steps per second that are aimed at for N = 1024 on two cores."""


def main() -> int:
    """Runs all plants and writes what was found; 0 unless a plant cannot be run."""
    arguments = _arguments()
    os.environ.pop("NEORL_COMPILATION_CACHE", None)
    from neorl_envs import environment_names

    rows, missing, failures = [], {}, []
    for name in environment_names():
        if arguments.only and arguments.only != name:
            continue
        try:
            row = _plant(name, arguments)
            row["peers"] = [
                _against(peer, name, arguments, missing) for peer in PEERS if peer.plant == name
            ]
            row["peers"] = [peer for peer in row["peers"] if peer]
        except Exception as error:  # The others are still worth their time.
            failures.append(f"{name}: {type(error).__name__}: {error}")
            continue
        rows.append(row)
    result = {
        "benchmark": "plants",
        "command": "python tools/benchmarks/plants.py " + " ".join(sys.argv[1:]),
        "unit": "environment steps a second",
        "not_installed": missing,
        "missed": [row["plant"] for row in rows if row["missed"]],
        "plants": rows,
        **machine(VERSIONS),
    }
    write(arguments.out, result)
    for peer, reason in missing.items():
        print(f"not compared with {peer}: {reason}")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


def _plant(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    sizes = SIZES[:2] if arguments.tiny else SIZES
    found = {}
    for size in sizes:
        steps = 3 if arguments.tiny else STEPS[size]
        work, _ = _batch(name, size, steps)
        times = [_timed(work) for _ in range(1 if arguments.tiny else arguments.rounds)]
        found[size] = {
            "per_second": summary([size * steps / wall for wall, _ in times]),
            "per_processor_second": summary([size * steps / max(cpu, 1e-9) for _, cpu in times]),
        }
        middle = found[size]["per_second"]["median"]
        print(f"{name}, N = {size}: {middle:,.0f} steps a second", flush=True)
    compiling = _batch(name, sizes[-1] if arguments.tiny else REFERENCE, 1)[1]
    goal, reached = GOALS.get(name), found.get(REFERENCE, {}).get("per_second", {}).get("median")
    print(f"{name}: compiled in {compiling:.2f} processor seconds", flush=True)
    return {
        "plant": name,
        "sizes": found,
        "compile_processor_seconds": compiling,
        "growth": _growth(found),
        "goal": goal,
        "missed": bool(goal and reached and reached < goal),
    }


def _batch(name: str, size: int, steps: int) -> tuple[Callable[[], Any], float]:
    """A function that runs ``steps`` steps of ``size`` plants, and what compiling it took."""
    import jax
    import jax.numpy as jnp

    from neorl_core import highs, lows
    from neorl_envs import make
    from neorl_envs.wrappers import autoreset, randomised

    env = autoreset(randomised(make(name)))
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))

    def one(state: Any, key: Any) -> Any:
        for_action, for_step = jax.random.split(key)
        action = jax.random.uniform(for_action, low.shape, low.dtype, low, high)
        state, step = env.step(None, state, action, for_step)
        return state, (step.reward, step.cost.sum(), step.obs.sum())

    def row(carry: Any, _: None) -> Any:
        states, key = carry
        key, now = jax.random.split(key)
        states, seen = jax.vmap(one)(states, jax.random.split(now, size))
        return (states, key), jax.tree.map(jnp.mean, seen)

    def run(states: Any, key: Any) -> Any:
        return jax.lax.scan(row, (states, key), None, steps)

    keys = jax.random.split(jax.random.key(0), size)
    held = [jax.jit(jax.vmap(lambda key: env.reset(None, key)[0]))(keys), jax.random.key(1)]
    lowered = jax.jit(run).lower(*held)
    start = time.process_time()
    program = lowered.compile()
    seconds = time.process_time() - start

    def work() -> Any:
        (held[0], held[1]), seen = program(*held)
        return jax.block_until_ready(seen)

    work()
    return work, seconds


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _against(
    peer: Peer, name: str, arguments: argparse.Namespace, missing: dict[str, str]
) -> dict[str, Any] | None:
    """Ours at the reference size beside the peer, round by round."""
    try:
        theirs, steps = peer.build(tiny=arguments.tiny)
    except Exception as error:  # Whatever an import of others may raise.
        missing[peer.name] = f"{type(error).__name__}: {error}"
        return None
    size = 8 if arguments.tiny else REFERENCE
    ours, _ = _batch(name, size, STEPS[REFERENCE])
    ratios, speeds = [], []
    for _ in range(1 if arguments.tiny else arguments.rounds):
        mine, other = _timed(ours)[0], _timed(theirs)[0]
        speeds.append(steps / other)
        ratios.append(size * STEPS[REFERENCE] / mine / speeds[-1])
    middle = statistics.median(ratios)
    print(f"{name}: {middle:,.0f} times {peer.name} (goal {peer.goal:g})", flush=True)
    return {
        "peer": peer.name,
        "what": peer.what,
        "ratio": summary(ratios),
        "peer_per_second": summary(speeds),
        "goal": peer.goal,
        "missed": middle < peer.goal,
    }


def _growth(found: dict[int, Any]) -> float | None:
    """The exponent of the time of a step between the two largest batches."""
    if len(found) < 2:
        return None
    small, large = sorted(found)[-2:]
    speeds = [found[size]["per_processor_second"]["median"] for size in (small, large)]
    return math.log(large / speeds[1] * speeds[0] / small) / math.log(large / small)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every size (5)")
    parser.add_argument("--only", help="one plant")
    parser.add_argument("--tiny", action="store_true", help="one round of small batches")
    parser.add_argument("--out", type=Path, default=RESULTS / "plants.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
