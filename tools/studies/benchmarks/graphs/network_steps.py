"""One step of each large network, 1,000 nodes: one step a call, and in a scan (row P05).

    python tools/studies/benchmarks/graphs/network_steps.py

TrafficNetwork with 25 x 40 junctions, RobotSwarm with 25 x 40 robots and SwingNetwork with 1,000
buses, actions from the middle of their ranges. Beside each stands the same plant with 100 nodes, so
that the ratio says how a step grows with the network. Processor time of a step in a compiled scan,
in turn, and the 99th percentile of single calls by the clock on the wall; on one core.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _rounds import (  # pyright: ignore[reportMissingImports]
    RESULTS,
    interleaved,
    machine,
    on_one_core,
    summary,
    write,
)

STEPS = 50


def main() -> int:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each variant (5)")
    parser.add_argument("--calls", type=int, default=300, help="single steps (300)")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument("--out", type=Path, default=RESULTS / "graph_networks.json")
    arguments = parser.parse_args()
    on_one_core(arguments.core)
    import jax

    from neorl_envs.graph_plants import robot_swarm, swing_network, traffic_network

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    plants: dict[str, Any] = {
        "traffic": (traffic_network(25, 40), traffic_network(10, 10)),
        "swarm": (robot_swarm(25, 40), robot_swarm(10, 10)),
        "power": (swing_network(1000), swing_network(100)),
    }
    timings = {}
    for name, (large, small) in plants.items():
        variants = {size: _scan(plant) for size, plant in (("large", large), ("small", small))}
        rounds = interleaved(variants, rounds=arguments.rounds, steps=STEPS)
        timings[name] = {
            "nodes": [plant.n_nodes for plant in (large, small)],
            "channels": [plant.spec.n_obs for plant in (large, small)],
            "step_us": {size: [round(x, 2) for x in each] for size, each in rounds.items()},
            "single_call_ms": _single(large, arguments.calls),
        }
        middle = {size: summary(each)["median"] for size, each in rounds.items()}
        print(
            f"{name}: {middle} us a step; one call {timings[name]['single_call_ms']} ms", flush=True
        )
    facts = machine(("jax", "jaxlib", "numpy"))
    write(arguments.out, {"benchmark": "graph_networks", "networks": timings, **facts})
    return 0


def _begin(plant: Any) -> tuple[Any, Any, Any]:
    import jax
    import jax.numpy as jnp

    params = plant.sample_params(jax.random.key(0))
    ends = [(channel.low + channel.high) / 2 for channel in plant.spec.action]
    return params, plant.reset(params, jax.random.key(1))[0], jnp.asarray(ends, jnp.float32)


def _scan(plant: Any) -> Any:
    import jax
    import jax.numpy as jnp

    params, state, action = _begin(plant)

    @jax.jit
    def run(state: Any) -> Any:
        def one(state: Any, key: Any) -> Any:
            state, step = plant.step(params, state, action, key)
            return state, step.reward + jnp.sum(step.obs)  # so that nothing is left out

        return jax.lax.scan(one, state, jax.random.split(jax.random.key(2), STEPS))[1]

    run(state).block_until_ready()
    return lambda: run(state).block_until_ready()


def _single(plant: Any, calls: int) -> dict[str, float]:
    import jax
    import numpy as np

    params, state, action = _begin(plant)
    step = jax.jit(plant.step)
    key, wall = jax.random.key(3), []
    for i in range(calls + 20):
        clock = time.perf_counter()
        _, answer = step(params, state, action, key)
        np.asarray(answer.obs)
        if i >= 20:
            wall.append(1e3 * (time.perf_counter() - clock))
    return {f"p{p}": round(float(np.percentile(wall, p)), 4) for p in (50, 99)}


if __name__ == "__main__":
    sys.exit(main())
