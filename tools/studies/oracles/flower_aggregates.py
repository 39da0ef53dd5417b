"""Aggregates of Flower 1.41.0, stored for the tests of neorl-core.

In an environment of its own, since its pins conflict with the workspace's:

    uv venv --python 3.11 build/venv-flower
    uv pip install --python build/venv-flower/bin/python "flwr==1.41.0"
    FLWR_TELEMETRY_ENABLED=0 build/venv-flower/bin/python tools/studies/oracles/flower_aggregates.py
"""

import argparse
import importlib.metadata
import json
from pathlib import Path

import numpy as np
from flwr.server.strategy import aggregate as rules

FIXTURES = Path(__file__).parents[3] / "packages/neorl-core/tests/fixtures"
CLIENTS, FAULTY, SELECTED = 11, 2, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FIXTURES / "flower.json")
    out = parser.parse_args().out
    rng = np.random.default_rng(22)
    weight, bias = rng.normal(size=(CLIENTS, 3, 2)), rng.normal(size=(CLIENTS, 2))
    weight[:FAULTY] *= -10
    bias[:FAULTY] *= -10
    rows = rng.integers(1, 50, size=CLIENTS)
    results = [([weight[i], bias[i]], int(rows[i])) for i in range(CLIENTS)]
    equal = [(arrays, 1) for arrays, _ in results]
    aggregates = {
        "weighted_mean": rules.aggregate(results),
        "coordinate_median": rules.aggregate_median(results),
        "trimmed_mean": rules.aggregate_trimmed_avg(results, FAULTY / CLIENTS),
        "krum": rules.aggregate_krum(equal, FAULTY, 0),
        "multi_krum": rules.aggregate_krum(equal, FAULTY, SELECTED),
        "bulyan": rules.aggregate_bulyan(equal, FAULTY, rules.aggregate_krum, to_keep=0),
    }
    record = {
        "made_with": {"flwr": importlib.metadata.version("flwr")},
        "num_byzantine": FAULTY,
        "selected": SELECTED,
        "weight": weight.tolist(),
        "bias": bias.tolist(),
        "rows": rows.tolist(),
        "results": {
            name: {"weight": arrays[0].tolist(), "bias": arrays[1].tolist()}
            for name, arrays in aggregates.items()
        },
    }
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
