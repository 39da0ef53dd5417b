"""What the benchmarks of training share: the small case, machine facts, raw rounds as JSON."""

import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
MAX_SPREAD = 1.3
ROWS = 200_000


def small_case(name: str) -> tuple[Any, Any]:
    """A learner of 64x64 networks and batches of 64, and 200,000 random rows (12 obs, 3 actions).

    Args:
        name: Of the algorithm.

    Returns:
        The algorithm, and its training data with the reactor's specification.
    """
    import numpy as np

    from neorl_agents import ALGORITHMS
    from neorl_envs import make
    from neorl_envs.datasets import data_statistics, dataset_from_columns
    from neorl_train.experience import TrainingData

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
    algorithm = ALGORITHMS[name](hidden=(64, 64), batch_size=64)
    return algorithm, TrainingData(rows, data_statistics(log), spec)


def bare_scan(algorithm: Any, data: Any, device: Any, seed: int, block: int) -> Callable[[], Any]:
    """The peer: a scan over the same update, rows drawn and gathered once a block; nothing else.

    What an update returns is computed: its state and its metrics. The metrics are thrown away.

    Args:
        algorithm: With plain numbers.
        data: What it is trained on.
        device: Where.
        seed: Of state and rows.
        block: Critic gradient steps of one call.

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


def summary(rounds: Sequence[float]) -> dict[str, Any]:
    """Median, range and spread of one contender."""
    return {
        "rounds": list(rounds),
        "median": statistics.median(rounds),
        "min": min(rounds),
        "max": max(rounds),
        "spread": max(rounds) / min(rounds),
    }


def machine() -> dict[str, Any]:
    """What the figures hang on."""
    packages = ("jax", "jaxlib", "numpy", "orbax-checkpoint", "mlflow-skinny")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_at_end": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Writes the raw rounds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"raw rounds: {path}")
