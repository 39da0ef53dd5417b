"""Aggregates, intervals and profiles of rliable 1.2.0, stored for the tests of neorl-core.

In an environment of its own, since rliable does not import with pandas 3:

    uv venv --python 3.11 build/venv-rliable
    uv pip install --python build/venv-rliable/bin/python "rliable==1.2.0" "pandas<3"
    build/venv-rliable/bin/python tools/studies/oracles/rliable_scores.py
"""

import argparse
import importlib.metadata
import json
from pathlib import Path

import numpy as np
from rliable import library, metrics

FIXTURES = Path(__file__).parents[3] / "packages/neorl-core/tests/fixtures"
RESAMPLES = 20_000


def aggregates(scores: np.ndarray) -> np.ndarray:
    return np.array(
        [
            metrics.aggregate_iqm(scores),
            metrics.aggregate_median(scores),
            metrics.aggregate_mean(scores),
            metrics.aggregate_optimality_gap(scores),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FIXTURES / "rliable.json")
    out = parser.parse_args().out
    rng = np.random.default_rng(20)
    # Ten runs on seven tasks of unequal difficulty; whole hundredths, so that scores tie.
    first = np.round(rng.beta(2, 1 + np.arange(7) / 3, size=(10, 7)), 2)
    second = np.round(rng.beta(2, 1.5 + np.arange(7) / 3, size=(8, 7)), 2)
    thresholds = np.linspace(0, 1, 11)
    points, intervals = library.get_interval_estimates(
        {"first": first}, aggregates, reps=RESAMPLES, random_state=np.random.RandomState(1)
    )
    profile, _ = library.create_performance_profile({"first": first}, thresholds, reps=10)
    record = {
        "made_with": {
            name: importlib.metadata.version(name) for name in ("rliable", "arch", "pandas")
        },
        "resamples": RESAMPLES,
        "first": first.tolist(),
        "second": second.tolist(),
        "thresholds": thresholds.tolist(),
        "aggregates": ["interquartile mean", "median", "mean", "optimality gap"],
        "points": points["first"].tolist(),
        "intervals": intervals["first"].tolist(),
        "profile": profile["first"].tolist(),
        "probability_of_improvement": float(metrics.probability_of_improvement(first, second)),
    }
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
