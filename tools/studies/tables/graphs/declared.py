"""Plants whose graph is declared beside their channels: graph networks beside a perceptron.

    python tools/studies/tables/graphs/declared.py

SupplyChain-v0 and PowerGrid-v0 each have one log of their ordinary and their reference controller.
IQL trains on it with every kind of network, the same widths, updates and seeds, and is judged over
the same fresh episodes beside both controllers, by return less the declared price of costs. Stored
in ``tools/studies/baselines/graph/declared.json``; what is there already is not trained again. ``--show``
prints the tables.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neorl_agents import IQL
from neorl_agents.learning import Networks, Steps
from neorl_core.infrastructure import write_json
from neorl_envs import collect_log, make
from neorl_envs.scoring import score_episodes, scores
from neorl_train import train
from neorl_train.data import training_data
from neorl_train.training import Plan

OUT = Path(__file__).parents[2] / "baselines" / "graph" / "declared.json"
PLANTS = {"SupplyChain-v0": (6_000, 100), "PowerGrid-v0": (6_000, 20)}
"""Rows of the log, and episodes of the judging."""
KINDS = ("mlp", "gcn", "gat")
UPDATES, HIDDEN, BATCH = 4_000, (32, 32), 128


def main() -> None:
    """Trains what is missing, or prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--plants", nargs="*", default=list(PLANTS), choices=list(PLANTS))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--show", action="store_true", help="print the tables, train nothing")
    arguments = parser.parse_args()
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name in arguments.plants:
        if not arguments.show:
            _measure(results.setdefault(name, {}), name, arguments.kinds, arguments.seeds, results)
        if name in results:
            print(f"\n{name}\n\n{table(results[name])}")


def _measure(mine: Any, name: str, kinds: list[str], seeds: list[int], results: Any) -> None:
    plant: Any = make(name)
    rows, episodes = PLANTS[name]
    keys = jax.random.split(jax.random.key(2026), episodes)
    log = collect_log(plant, dict(plant.tunings()), n_steps=rows, key=jax.random.key(1))
    prices = tuple(plant.penalty_weights().get(cost.name, 0.0) for cost in plant.spec.cost)
    data = training_data(log, penalty_weights=prices)
    mine |= {"rows": rows, "updates": UPDATES, "hidden": HIDDEN, "episodes": episodes}
    mine["controllers"] = {
        who: _judged(plant, policy, keys) for who, policy in plant.tunings().items()
    }
    for kind in kinds:
        learned = mine.setdefault("learners", {}).setdefault(kind, {})
        for seed in seeds:
            if str(seed) in learned:
                continue
            networks = Networks(hidden=HIDDEN, kind=kind, graph=plant.graph)
            started_at = time.process_time()
            trained = train(
                IQL(networks=networks, steps=Steps(batch_size=BATCH)), data, (seed,),
                Plan(UPDATES, UPDATES, UPDATES),
            )  # fmt: skip
            seconds = round(time.process_time() - started_at, 1)
            judged = _judged(plant, trained.policies[0], keys)
            learned[str(seed)] = {**judged, "processor_seconds": seconds}
            OUT.parent.mkdir(parents=True, exist_ok=True)
            write_json(OUT, results)
            print(name, kind, seed, learned[str(seed)], flush=True)


def _judged(plant: Any, policy: Any, keys: Any) -> dict[str, float]:
    each = np.asarray(scores(plant, score_episodes(plant, policy, keys)), float)
    return {
        "score": float(each.mean()),
        "standard_error": float(each.std(ddof=1) / len(each) ** 0.5),
    }


def table(mine: Any) -> str:
    """The scores of one plant as Markdown."""
    lines = ["| Who | score |", "|---|---|"]
    lines += [
        f"| {who} | {one['score']:.2f} ± {one['standard_error']:.2f} |"
        for who, one in mine["controllers"].items()
    ]
    for kind, seeds in mine.get("learners", {}).items():
        each = np.asarray([one["score"] for one in seeds.values()])
        lines.append(
            f"| IQL, {kind}, {len(each)} seeds | {each.mean():.2f} ({each.min():.2f} to "
            f"{each.max():.2f}) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
