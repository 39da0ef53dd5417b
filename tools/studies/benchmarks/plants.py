"""Steps per second of every plant, whole: noise, delays, random parameters, automatic resets.

Every plant runs under uniform random actions as one compiled scan over a batch of N, each with
eight starts and parameters drawn before (``autoreset(randomised(env), cached=8)``); the figure is
the median over rounds of steps per second of the wall clock, beside steps per second of processor
time, which other work on the machine moves less. Growth is the exponent of the time between the two
largest batches (1: linear). Compiling is timed once, uncached, for N = 1024. Peers step one
environment as their users do, in turn with ours in the same process; the ratio is ours at N = 1024
over theirs in the same round, and the plain ratio that of steps between resets with one set of
parameters, as most peers step. Peers that are not installed are named in the result. With ``--only``
the rows of other plants in the file stay. All of it takes about six minutes on two quiet cores:

    hatch run benchmark-plants:run
    hatch run benchmark-plants:run --only CSTR-v0 --rounds 3
    python tools/studies/benchmarks/plants.py --sizes 1024 65536    on a GPU, where JAX sees one
    hatch run benchmark-plants:run --tiny --out /tmp/plants.json    that it runs, no figures
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from _plant_peers import PEERS, Peer
from _rounds import RESULTS, machine, summary, write

VERSIONS = (
    *("jax", "jaxlib", "numpy", "scipy", "pcgym", "casadi", "or-gym"),
    *("industrial-benchmark-python", "mujoco", "neorl2", "sustaingym"),
)
SIZES = (1, 64, 1024, 4096)
REFERENCE = 1024
STEPS = {1: 2000, 64: 200, 1024: 50, 4096: 25}
"""Steps of one call at every size, so that a call is long beside its dispatch."""
STARTS = 8
"""Starts, each with its own parameters, that every environment draws before the clock runs."""
SLOW = {"PowerGrid-v0": 5, "RobotAssembly-v0": 5, "RobotAssembly-v0, fast": 5}
"""Plants whose calls have so many times fewer steps, lest they take most of the time."""
GOALS = {
    "ChemicalReactor-v0": 2e5,
    "HVACControl-v0": 1.5e6,
    "SteelAnnealing-v0": 8e4,
    "WaterTreatment-v0": 1e5,
    "RobotAssembly-v0, fast": 2e4,
    "PowerGrid-v0": 8e3,
}
"""Steps per second that are aimed at for N = 1024 on two cores."""


def main() -> int:
    """Runs all plants and writes what was found; 0 unless a plant cannot be run."""
    arguments = _arguments()
    os.environ.pop("NEORL_COMPILATION_CACHE", None)
    import jax

    rows = _kept(arguments)
    missing, failures = {}, []
    for name, env in _plants().items():
        if arguments.only and name not in arguments.only:
            continue
        try:
            row, ours, plain = _plant(name, env, arguments)
            row["load"] = os.getloadavg()[0]
            row["peers"] = [
                _against(peer, ours, plain, arguments, missing)
                for peer in PEERS
                if peer.plant == name
            ]
            row["peers"] = [peer for peer in row["peers"] if peer]
        except Exception as error:  # The others are still worth their time.
            failures.append(f"{name}: {type(error).__name__}: {error}")
            continue
        rows.append(row)
    result = {
        "benchmark": "plants",
        "command": "python tools/studies/benchmarks/plants.py " + " ".join(sys.argv[1:]),
        "unit": "environment steps a second",
        "device": jax.devices()[0].device_kind,
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


class Ours(NamedTuple):
    """A compiled scan over a batch, its environment steps a call, and what compiling it took."""

    work: Callable[[], Any]
    steps: int
    seconds: float


def _kept(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows that a file of other plants holds already, where only some are measured."""
    if not (arguments.only and arguments.out.is_file()):
        return []
    rows = json.loads(arguments.out.read_text())["plants"]
    return [row for row in rows if row["plant"] not in arguments.only]


def _plants() -> dict[str, Any]:
    from neorl_envs import environment_names, make
    from neorl_envs.plants import RobotAssembly

    plants: dict[str, Any] = {name: make(name) for name in environment_names()}
    plants["RobotAssembly-v0, fast"] = RobotAssembly(fidelity="fast")
    return plants


def _plant(name: str, env: Any, arguments: argparse.Namespace) -> tuple[dict[str, Any], Ours, Ours]:
    """What was found of a plant, and its batches that are compared with peers."""
    sizes = SIZES[:2] if arguments.tiny else arguments.sizes
    reference = REFERENCE if REFERENCE in sizes else sizes[-1]
    rates, batches, lengths = {}, {}, {}
    for size in sizes:
        length = 3 if arguments.tiny else max(STEPS.get(size, STEPS[4096]) // SLOW.get(name, 1), 2)
        lengths[size] = length
        ours = batches[size] = _batch(env, size, length)
        times = [_timed(ours.work) for _ in range(1 if arguments.tiny else arguments.rounds)]
        rates[size] = {
            "per_second": summary([ours.steps / wall for wall, _ in times]),
            "per_processor_second": summary([ours.steps / max(cpu, 1e-9) for _, cpu in times]),
        }
        middle = rates[size]["per_second"]["median"]
        print(f"{name}, N = {size}: {middle:,.0f} steps a second", flush=True)
    compiling = batches[reference].seconds
    goal, reached = GOALS.get(name), rates[reference]["per_second"]["median"]
    print(f"{name}: compiled in {compiling:.2f} processor seconds", flush=True)
    return (
        {
            "plant": name,
            "sizes": rates,
            "compile_processor_seconds": compiling,
            "growth": _growth(rates),
            "goal": goal,
            "missed": bool(goal and not arguments.tiny and reached < goal),
        },
        batches[reference],
        _batch(env, reference, lengths[reference], plain=True),
    )


def _batch(env: Any, size: int, length: int, *, plain: bool = False) -> Ours:
    """``length`` steps of ``size`` plants in one program; plain ones do not reset."""
    import jax
    import jax.numpy as jnp

    from neorl_core import highs, lows
    from neorl_envs.wrappers import autoreset, randomised

    params = env.default_params() if plain else None
    env = env if plain else autoreset(randomised(env), cached=STARTS)
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))

    def one(state: Any, key: Any) -> Any:
        for_action, for_step = jax.random.split(key)
        action = jax.random.uniform(for_action, low.shape, low.dtype, low, high)
        state, step = env.step(params, state, action, for_step)
        return state, (step.reward, step.cost.sum(), step.obs.sum())

    scan, states = batch_scan(one, lambda key: env.reset(params, key)[0], size, length)
    held = [states, jax.random.key(1)]
    lowered = jax.jit(scan).lower(*held)
    start = time.process_time()
    program = lowered.compile()
    seconds = time.process_time() - start

    def work() -> Any:
        (held[0], held[1]), seen = program(*held)
        return jax.block_until_ready(seen)

    work()
    return Ours(work, size * length, seconds)


def batch_scan(
    one: Callable[[Any, Any], Any], start: Callable[[Any], Any], size: int, length: int
) -> tuple[Callable[[Any, Any], Any], Any]:
    """``length`` steps of a batch and the means of what is seen, to be compiled; and its starts.

    Args:
        one: A step, from a state and a key to a state and a tree of scalars.
        start: A state from a key.
        size: Number of states of the batch.
        length: Number of steps.
    """
    import jax
    import jax.numpy as jnp

    def row(carry: Any, _: None) -> Any:
        states, key = carry
        key, now = jax.random.split(key)
        states, seen = jax.vmap(one)(states, jax.random.split(now, size))
        return (states, key), jax.tree.map(jnp.mean, seen)

    def scan(states: Any, key: Any) -> Any:
        return jax.lax.scan(row, (states, key), None, length)

    return scan, jax.jit(jax.vmap(start))(jax.random.split(jax.random.key(0), size))


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _against(
    peer: Peer, ours: Ours, plain: Ours, arguments: argparse.Namespace, missing: dict[str, str]
) -> dict[str, Any] | None:
    """Ours at the reference size beside the peer, round by round."""
    try:
        theirs, steps = peer.build(tiny=arguments.tiny)
    except Exception as error:  # Whatever an import of others may raise.
        missing[peer.name] = f"{type(error).__name__}: {error}"
        return None
    columns: dict[str, list[float]] = {}
    for _ in range(1 if arguments.tiny else arguments.rounds):
        times = {"whole": _timed(ours.work), "plain": _timed(plain.work), "peer": _timed(theirs)}
        counts = {"whole": ours.steps, "plain": plain.steps, "peer": steps}
        wall, processor = (
            {name: counts[name] / max(pair[i], 1e-9) for name, pair in times.items()}
            for i in (0, 1)
        )
        round_ = {
            "ratio": wall["whole"] / wall["peer"],
            "ratio_of_processor_time": processor["whole"] / processor["peer"],
            "plain_ratio": wall["plain"] / wall["peer"],
            "plain_ratio_of_processor_time": processor["plain"] / processor["peer"],
            # How much longer a step takes with resets and parameters of its own.
            "whole_over_plain_time": processor["plain"] / processor["whole"],
            "peer_per_second": wall["peer"],
        }
        for name, value in round_.items():
            columns.setdefault(name, []).append(value)
    middle = statistics.median(columns["ratio"])
    print(f"{peer.plant}: {middle:,.0f} times {peer.name} (goal {peer.goal:g})", flush=True)
    return {
        "peer": peer.name,
        "what": peer.what,
        **{name: summary(column) for name, column in columns.items()},
        "goal": peer.goal,
        "missed": not arguments.tiny and middle < peer.goal,
    }


def _growth(rates: dict[int, Any]) -> float | None:
    """The exponent of the time of a step between the two largest batches."""
    if len(rates) < 2:
        return None
    small, large = sorted(rates)[-2:]
    speeds = [rates[size]["per_processor_second"]["median"] for size in (small, large)]
    return math.log(large / speeds[1] * speeds[0] / small) / math.log(large / small)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every size (5)")
    parser.add_argument("--only", nargs="+", help="some plants")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="batches N")
    parser.add_argument("--tiny", action="store_true", help="one round of small batches")
    parser.add_argument("--out", type=Path, default=RESULTS / "plants.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
