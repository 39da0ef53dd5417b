"""One action of a graph policy on a network of 1,000 nodes, one call at a time.

    python tools/studies/tables/graphs/action_time.py

LoadBalance with ``--nodes`` nodes, about three links a node, and untrained GCN and GAT policies of
two layers of 32: the time does not depend on the weights. Observation in, action out, both NumPy
arrays. By the clock on the wall and in processor time of all threads; on one core.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from _rounds import (  # pyright: ignore[reportMissingImports]
    RESULTS,
    machine,
    on_one_core,
    write,
)

GOAL_MS = 10.0
"""P99 that one action must stay below."""


def main() -> int:
    """Measures and writes; 0 if every policy's 99th percentile stays below the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of the network (1000)")
    parser.add_argument("--calls", type=int, default=3000, help="actions of each policy (3000)")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument("--out", type=Path, default=RESULTS / "graph_action.json")
    arguments = parser.parse_args()
    on_one_core(arguments.core)
    import jax

    from neorl_envs.graph_plants import load_balance

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    plant = load_balance(arguments.nodes, edge_prob=4 / arguments.nodes, seed=7)
    _, obs = plant.reset(plant.default_params(), jax.random.key(0))
    timings = {kind: _timed(kind, plant, obs, arguments.calls) for kind in ("gcn", "gat")}
    for kind, row in timings.items():
        print(f"{kind}: {json.dumps(row)}")
    case = {"nodes": arguments.nodes, "directed_links": len(plant.senders), "hidden": [32, 32]}
    facts = {**machine(("jax", "jaxlib", "numpy")), "load_at_end": os.getloadavg()[0]}
    write(
        arguments.out,
        {"benchmark": "graph_action", "case": case, "unit": "milliseconds", **timings, **facts},
    )
    return 0 if all(row["wall"]["p99"] < GOAL_MS for row in timings.values()) else 1


def _timed(kind: str, plant: Any, obs: Any, calls: int) -> dict[str, Any]:
    import jax
    import numpy as np

    from neorl_agents import PPO
    from neorl_agents.learning import Networks, for_run
    from neorl_core.statistics import range_statistics

    networks = Networks(hidden=(32, 32), kind=kind)
    learner = for_run(PPO(actions="choice", networks=networks), 1)
    state = learner.init(plant.spec, range_statistics(plant.spec), jax.random.key(1))
    policy: Any = learner.policy(state)
    act = jax.jit(lambda seen: policy(policy.initial_carry(), seen, None)[1])
    seen = np.asarray(obs)
    for _ in range(20):
        np.asarray(act(seen))
    wall, processor = [], []
    for _ in range(calls):
        clock, spent = time.perf_counter(), time.process_time()
        np.asarray(act(seen))
        wall.append(time.perf_counter() - clock)
        processor.append(time.process_time() - spent)
    return {"calls": calls, "wall": _summary(wall), "processor": _summary(processor)}


def _summary(seconds: list[float]) -> dict[str, float]:
    import numpy as np

    ends = np.percentile(np.asarray(seconds) * 1e3, [50, 99, 99.9])
    return dict(zip(("p50", "p99", "p999"), (round(float(e), 4) for e in ends), strict=True))


if __name__ == "__main__":
    sys.exit(main())
