"""From nothing to a compiled epoch of the treasure hunt, with an empty and with a filled cache.

    taskset -c 0 python tools/studies/benchmarks/treasure_hunt/starts.py

Each start is a process of its own, at the source's defaults: release 1.4.0 with two agents, commit
2a24efc with five. Seconds of processor time of tracing and compiling the program of a whole epoch,
acting and learning, in a first process and in a second one that finds it in JAX's persistent
cache; imports are left out. Written to `tools/studies/benchmarks/results/treasure_hunt_starts.json`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from _rounds import RESULTS, machine, write  # noqa: E402

LEARNERS: dict[str, dict[str, Any]] = {
    "head": {},
    "2a24efc": {
        "batch_size": 256,
        "acting_quantiles": 256,
        "epsilon": 1.0,
        "epsilon_decay": 0.001,
    },
}
"""Settings of each version's learner that differ from the defaults of ``IQN``."""


def compiled(version: str) -> float:
    """Processor time until the program is there."""
    import jax
    import jax.numpy as jnp

    from neorl_agents.populations import IQN, init_population
    from neorl_core import as_arrays
    from neorl_core.infrastructure import keep_compiled_programs
    from neorl_envs.worlds import treasure_hunt
    from neorl_train.populations import run_epochs

    keep_compiled_programs()
    world, key = treasure_hunt(version), jax.random.key(0)  # pyright: ignore[reportArgumentType]
    learner = IQN(**LEARNERS[version])
    sizes = (world.n_agents, world.n_obs, world.n_actions, world.horizon)
    population = init_population(learner, *sizes, key)
    start = time.process_time()
    run_epochs.lower(
        as_arrays(world), as_arrays(learner), population, jnp.asarray(0), key, n_epochs=20
    ).compile()
    return time.process_time() - start


def started(version: str, cache: str) -> float:
    """The same in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", version]
    kept = {**os.environ, "NEORL_COMPILATION_CACHE": cache}
    completed = subprocess.run(command, env=kept, capture_output=True, text=True, check=True)
    return json.loads(completed.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS / "treasure_hunt_starts.json")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(compiled(arguments.child)))
        return
    seconds = {}
    for version in LEARNERS:
        with tempfile.TemporaryDirectory() as cache:
            seconds[version] = {which: started(version, cache) for which in ("first", "second")}
        print(version, seconds[version], flush=True)
    result = {"benchmark": "treasure_hunt_starts", "processor_seconds": seconds}
    write(arguments.out, result | machine(("jax", "jaxlib", "optax")))


if __name__ == "__main__":
    main()
