"""Local updates of four sites: one program after another, or all as one vmapped program.

Small case: 12 observations, 3 actions, networks of 64x64, batches of 64, 200,000 random rows a
site. Processor time on one core, the two forms in turn. The engine of ``neorl-train federate``
takes the sites one after another (each on a device of its own where the process has several),
since that is no slower and gives each site the bits that it would come to in its own process.

    python tools/studies/tables/federation/form.py
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from _rounds import (  # pyright: ignore[reportMissingImports]
    interleaved,
    on_one_core,
    pair_arguments,
    pair_report,
    small_case,
)

SITES, BLOCK = 4, 200
ALGORITHMS = ("td3_bc", "iql")


def main() -> int:
    """Runs all rounds and writes them; 1 if rounds spread too far."""
    arguments = pair_arguments(__doc__, "federation_form")
    on_one_core(arguments.core)
    cases = {name: interleaved(forms(name), SITES * BLOCK, arguments.rounds) for name in ALGORITHMS}
    ratios = {name: [("vmapped", "in turn")] for name in ALGORITHMS}
    return pair_report("federation_form", cases, ratios, arguments)


def forms(name: str) -> dict[str, Any]:
    """Both forms of one block of all sites."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from neorl_agents.learning import Site, Training, log_tables, train_chunk
    from neorl_core import as_arrays

    algorithm, data = small_case(name)
    arrays = as_arrays(algorithm)
    updates = BLOCK // algorithm.batches_per_update
    tables = jax.device_put(log_tables(algorithm, data.spec, data.rows_for(algorithm)))
    key = jax.random.key(0)
    sources = [Site(jnp.asarray(i, jnp.int32)) for i in range(SITES)]
    initial_states = [
        Training(algorithm.init(data.spec, data.statistics, jax.random.key(i)), ())
        for i in range(SITES)
    ]
    states = [jax.tree.map(jnp.array, one) for one in initial_states]
    stacked = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *initial_states)]
    numbers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *sources)
    chunk = partial(train_chunk, n_updates=updates)
    together = jax.jit(jax.vmap(chunk, in_axes=(None, 0, 0, None, None, None)), donate_argnums=2)

    def in_turn() -> Any:
        for i in range(SITES):
            states[i], _ = chunk(arrays, sources[i], states[i], tables, np.int32(0), key)
        return states

    def vmapped() -> Any:
        stacked[0], _ = together(arrays, numbers, stacked[0], tables, np.int32(0), key)
        return stacked[0]

    return {"in turn": in_turn, "vmapped": vmapped}


if __name__ == "__main__":
    raise SystemExit(main())
