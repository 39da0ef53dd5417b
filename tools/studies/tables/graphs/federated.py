"""One graph policy for four networks that share no data, beside training on each alone.

    python tools/studies/tables/graphs/federated.py

Four LoadBalance plants of ten declared nodes with topologies of their own (a chain, a ring with
chords, a star on a chain, a dense one with eight nodes there) each have a short log of random and
greedy moves. Behaviour cloning with a graph convolution trains on them by federated averaging, and
on each log alone for as many updates; both are judged on every site's own network over the same
fresh episodes. The likeliest move of a clone is the greedy one, since random moves spread over all
links. Stored in ``tools/studies/baselines/graph/federated.json``; ``--show`` prints the table.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from neorl_agents import BC
from neorl_agents.learning import Networks, Steps
from neorl_core.infrastructure import write_json
from neorl_envs import collect_log
from neorl_envs.graph_plants import LoadBalance, load_balance
from neorl_envs.scoring import score_episodes, scores
from neorl_envs.wrappers import Wrapper
from neorl_train import train
from neorl_train.data import training_data
from neorl_train.federation import Federation, FederationConfig, federate
from neorl_train.training import Plan

OUT = Path(__file__).parents[2] / "baselines" / "graph" / "federated.json"
SHARED = load_balance(10, edge_prob=0.3, change=0.0, fewest=2)
"""What all sites have in common: the channels of ten nodes and every link between them."""
CHAIN = tuple((i, i + 1) for i in range(9))
SITES: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "chain": (10, CHAIN),
    "ring": (10, (*CHAIN, (0, 9), (2, 7), (4, 9))),
    "star": (10, (*CHAIN, *((0, i) for i in range(2, 10)))),
    "dense": (8, tuple((i, j) for i in range(8) for j in range(i + 1, 8))),
}
ROWS, ROUNDS, LOCAL, EPISODES = 400, 20, 50, 200


class Site(Wrapper):
    """The shared plant with the topology of one site.

    Attributes:
        count: Nodes that are there; static.
        links: Pairs that are linked; static.
    """

    count: int = eqx.field(static=True)
    links: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def default_params(self, preset: str = "plant") -> Any:
        """The topology of the site."""
        plant: LoadBalance = self.env
        return plant.topology(self.links, n_nodes=self.count)

    def sample_params(self, key: Any, *, preset: str = "plant", spread: float = 0.15) -> Any:
        """The same in every episode."""
        return self.default_params(preset)


def plants() -> dict[str, Any]:
    """The plant of every site."""
    return {name: Site(SHARED, *given) for name, given in SITES.items()}


def measured(seeds: list[int], kind: str) -> dict[str, Any]:
    """Mean return of every way at every site, by seed."""
    at = plants()
    logs = {
        name: training_data(
            collect_log(plant, dict(plant.tunings()), n_steps=ROWS, key=jax.random.key(50 + i))
        )
        for i, (name, plant) in enumerate(at.items())
    }
    keys = jax.random.split(jax.random.key(2026), EPISODES)
    learner = BC(networks=Networks(hidden=(32, 32), kind=kind), steps=Steps(batch_size=64))
    sites: dict[str, Any] = {name: {"rows": logs[name].n_rows} for name in at}
    for name, plant in at.items():
        for move, policy in plant.tunings().items():
            sites[name][move] = _mean(plant, policy, keys)
    settings = Federation(FederationConfig(rounds=ROUNDS, local_updates=LOCAL))
    total = ROUNDS * LOCAL
    for seed in seeds:
        together = federate(learner, logs, settings, seed=seed)
        for name, plant in at.items():
            alone = train(learner, logs[name], (seed,), Plan(total, total, total)).policies[0]
            ways = {"federated": together.policies[name], "local": alone}
            for way, policy in ways.items():
                sites[name].setdefault(way, []).append(_mean(plant, policy, keys))
        print(seed, sites, flush=True)
    return {"kind": kind, "rounds": ROUNDS, "local_updates": LOCAL, "seeds": seeds, "sites": sites}


def _mean(plant: Any, policy: Any, keys: Any) -> float:
    return float(np.mean(scores(plant, score_episodes(plant, policy, keys))))


def table(results: dict[str, Any]) -> str:
    """The returns as Markdown, the mean of the sites last, and the gain over local training."""
    who, sites = ("random", "greedy", "local", "federated"), results["sites"]
    lines = ["| return on | " + " | ".join(who) + " |", "|---|" + "---|" * len(who)]
    rows = {name: [float(np.mean(site[one])) for one in who] for name, site in sites.items()}
    rows["**mean of the sites**"] = np.mean(list(rows.values()), axis=0).tolist()
    lines += [
        f"| {name} | " + " | ".join(f"{x:.1f}" for x in row) + " |" for name, row in rows.items()
    ]
    gains = np.mean([np.subtract(s["federated"], s["local"]) for s in sites.values()], axis=0)
    error = gains.std(ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
    return "\n".join([*lines, "", f"Gain over local: {gains.mean():+.1f} ± {error:.1f}"])


def main() -> None:
    """Trains, or prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--kind", default="gcn", help="kind of network (gcn)")
    parser.add_argument("--show", action="store_true", help="print the table, train nothing")
    arguments = parser.parse_args()
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    if not arguments.show:
        results[arguments.kind] = measured(arguments.seeds, arguments.kind)
        OUT.parent.mkdir(parents=True, exist_ok=True)
        write_json(OUT, results)
    for kind, one in results.items():
        print(f"\n{kind}\n\n{table(one)}")


if __name__ == "__main__":
    main()
