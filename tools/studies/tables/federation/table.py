"""Train at four sites that share no data: against local training, faulty sites and small messages.

Usage:
    python tools/studies/tables/federation/table.py              parts without a result yet
    python tools/studies/tables/federation/table.py --again PART measure a part again
    python tools/studies/tables/federation/table.py --page       print the tables alone

Four CSTR-v0 plants with constants of their own, each with a short log of its own quality, train IQL
together. ``learning``: federated averaging, FedProx and gossip beside training on each log alone
and on all logs at one place (what sharing the data would give), five seeds, paired episodes on
every site's plant. ``options``, over shorter training: compressed updates, masked sums and noise,
with bytes and epsilon; and a fifth site that turns, scales or spoils its updates, under plain
averaging and robust rules. Stored in ``tools/studies/benchmarks/results/federation.json``.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neorl_agents import IQL
from neorl_agents.testing import sized
from neorl_core import Policy
from neorl_core.statistics import merge_statistics
from neorl_envs import Dataset, collect_log
from neorl_envs.plants import Plant
from neorl_train import evaluate, train
from neorl_train.candidates import Candidate, Pool
from neorl_train.data import TrainingData, changed_plant, training_data
from neorl_train.federation import (
    Fault,
    Federated,
    Federation,
    FederationConfig,
    GossipConfig,
    MessagesConfig,
    PrivacyConfig,
    federate,
)
from neorl_train.training import Plan

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "tools/studies/benchmarks/results/federation.json"
PLANT = "CSTR-v0"
SITES: dict[str, tuple[dict[str, float], tuple[str, ...]]] = {
    "north": ({}, ("PI",)),
    "east": ({"transfer": 0.95}, ("PI feed-forward",)),
    "south": ({"rate_constant": 1.05}, ("PI", "PI feed-forward")),
    "west": ({"flow": 1.03, "feed_temperature": 0.998}, ("PI",)),
}
"""Factors on the constants of every site's plant, and the controllers that filled its log."""
FIFTH = ({"volume": 1.03}, ("PI feed-forward",))
STEPS, ROUNDS, LOCAL, STARTS = 2_000, 40, 250, 64
SEEDS, FEW_SEEDS, SHORT = range(5), range(1), (20, 100)


def main() -> int:
    """Measures what is missing, then prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", choices=PARTS, action="append", default=[])
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, part in PARTS.items():
        if not arguments.page and (name in arguments.again or name not in results):
            started = time.monotonic()
            results[name] = part() | {"seconds": round(time.monotonic() - started)}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(tables(results))
    return 0


def learner(batch_size: int = 256) -> Any:
    """IQL of two small layers, otherwise with its defaults."""
    return sized(IQL(), hidden=(64, 64), batch_size=batch_size)


def plants(*, fifth: bool = False) -> dict[str, Plant]:
    """The plant of every site."""
    chosen = {**SITES, "fifth": FIFTH} if fifth else SITES
    return {name: changed_plant(PLANT, factors) for name, (factors, _) in chosen.items()}


def logs(at: Mapping[str, Plant]) -> dict[str, Dataset]:
    """The log of every site, by the controllers that it runs."""
    chosen = {**SITES, "fifth": FIFTH}
    return {
        name: collect_log(
            plant,
            {tuning: plant.tunings()[tuning] for tuning in chosen[name][1]},
            n_steps=STEPS,
            key=jax.random.key(100 + i),
        )
        for i, (name, plant) in enumerate(at.items())
    }


def prices(plant: Plant) -> tuple[float, ...]:
    """The plant's own price of every cost."""
    return tuple(plant.penalty_weights().get(cost.name, 0.0) for cost in plant.spec.cost)


def data_of(at: Mapping[str, Plant], recorded: Mapping[str, Dataset]) -> dict[str, TrainingData]:
    """What every site trains on."""
    return {
        name: training_data(recorded[name], penalty_weights=prices(plant))
        for name, plant in at.items()
    }


def together(sites: Mapping[str, TrainingData], seed: int, **settings: Any) -> Federated:
    """One federation with these settings."""
    faults = settings.pop("faults", ())
    short = settings.pop("short", False)
    rounds, local = SHORT if short else (ROUNDS, LOCAL)
    rule = settings.pop("rule", {})
    federation = FederationConfig(rounds=rounds, local_updates=local, **rule)
    return federate(
        learner(64 if short else 256), sites, Federation(federation, **settings), seed=seed,
        faults=faults,
        secret=np.arange(4, dtype=np.uint32) + seed,
    )  # fmt: skip


def pooled(sites: Mapping[str, TrainingData]) -> TrainingData:
    """All logs at one place: what no site may see here, as the other end of the scale."""
    first, *_ = sites.values()
    rows = jax.tree.map(lambda *columns: np.concatenate(columns), *[s.rows for s in sites.values()])
    return TrainingData(
        rows,
        merge_statistics([one.statistics for one in sites.values()]),
        first.spec,
        first.penalty_weights,
        merge_statistics([one.statistics_for(learner()) for one in sites.values()]),
    )


def returns(at: Mapping[str, Plant], policies: Mapping[str, Pool | Mapping[str, Policy]]) -> Any:
    """Mean return of every policy on every site's plant, over the same starts.

    Args:
        at: Plant of every site that is judged.
        policies: By the site, then by name.
    """
    sites = {}
    for i, (name, plant) in enumerate(at.items()):
        evaluation = evaluate(
            plant, policies[name], key=jax.random.fold_in(jax.random.key(9), i), n_starts=STARTS
        )
        sites[name] = {
            row.name: row.returns.value for row in evaluation.tables.rows if not row.guarded
        }
    return sites


def by_group(sites: Mapping[str, Mapping[str, float]], group: str, seeds: range) -> np.ndarray:
    """Mean over the sites of a group's returns, for each seed."""
    return np.asarray(
        [np.mean([site[f"{group}-{seed}"] for site in sites.values()]) for seed in seeds]
    )


def learning() -> dict[str, Any]:
    """Federated training beside local training and pooled data."""
    at = plants()
    sites = data_of(at, logs(at))
    plan = Plan(ROUNDS * LOCAL, LOCAL, ROUNDS * LOCAL)
    policies = {name: Pool() for name in at}
    ways: dict[str, dict[str, Any]] = {
        "federated": {},
        "FedProx": {"rule": {"proximal": 10.0}},
        "gossip on a ring": {
            "rule": {"rule": "gossip"}, "gossip": GossipConfig(graph="ring"),
        },
    }  # fmt: skip
    for seed in SEEDS:
        for way, settings in ways.items():
            result = together(sites, seed, **settings)
            for name in at:
                policies[name] |= [Candidate(way, "learner", result.policies[name], (seed,))]
    everything = train(learner(), pooled(sites), tuple(SEEDS), plan)
    for name in at:
        alone = train(learner(), sites[name], tuple(SEEDS), plan)
        policies[name] |= alone.pool("local") | everything.pool("pooled")
    scored = returns(at, policies)
    groups = {way: by_group(scored, way, SEEDS) for way in (*ways, "local", "pooled")}
    return {
        "plant": PLANT,
        "rows": {name: data.n_rows for name, data in sites.items()},
        "rounds": ROUNDS,
        "local_updates": LOCAL,
        "starts": STARTS,
        "sites": {
            name: {
                group: float(np.mean([site[f"{group}-{seed}"] for seed in SEEDS]))
                for group in groups
            }
            | {tuning: site[tuning] for tuning in plants()[name].tunings()}
            for name, site in scored.items()
        },
        "mean_of_sites": {group: _summary(values) for group, values in groups.items()},
        "gain_over_local": {
            group: _summary(groups[group] - groups["local"]) for group in groups if group != "local"
        },
    }


def options() -> dict[str, Any]:
    """A faulty fifth site, smaller messages, masked sums and noise, over fewer updates."""
    at = plants(fifth=True)
    five = data_of(at, logs(at))
    four = {name: data for name, data in five.items() if name != "fifth"}
    judged = {name: plant for name, plant in at.items() if name != "fifth"}
    policies: dict[str, dict[str, Policy]] = {name: {} for name in judged}
    cells: list[dict[str, Any]] = []

    def measured(label: str, sites: Mapping[str, TrainingData], **settings: Any) -> None:
        for seed in FEW_SEEDS:
            result = together(sites, seed, short=True, **settings)
            for name in judged:
                policies[name][f"{label}-{seed}"] = result.policies[name]
        cells.append(
            {
                "label": label,
                "bytes": sum(one.bytes_up for one in result.records),
                "bytes_plain": sum(one.bytes_plain for one in result.records),
                "largest_error": max(one.error for one in result.records),
                "epsilon": result.epsilon if np.isfinite(result.epsilon) else None,
            }
        )

    for way, settings in WAYS.items():
        measured(way, four, **settings)
    for rule in RULES:
        for attack, fault in ATTACKS.items():
            faults = () if fault is None else (fault,)
            byzantine = int(rule != "mean")
            measured(
                f"{rule}, {attack}", five, faults=faults,
                rule={"rule": rule, "byzantine": byzantine},
            )  # fmt: skip
    scored = returns(judged, policies)
    for cell in cells:
        cell |= _summary(by_group(scored, cell["label"], FEW_SEEDS))
    return {
        "cells": cells,
        "rounds": SHORT[0],
        "local_updates": SHORT[1],
        "seeds": len(FEW_SEEDS),
    }


WAYS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "8 bits": {"messages": MessagesConfig(bits=8)},
    "8 bits, largest tenth": {"messages": MessagesConfig(bits=8, fraction=0.1)},
    "masked sums": {"messages": MessagesConfig(secure_sum=True)},
    "noise 1, clipped at 1": {"privacy": PrivacyConfig(1.0, 1.0)},
}
"""How four honest sites send their updates."""
RULES = ("mean", "median", "trimmed-mean", "multi-krum", "geometric-median")
ATTACKS = {
    "honest": None,
    "flipped ten times": Fault("fifth", "flipped", factor=10.0),
    "scaled a hundred times": Fault("fifth", "scaled", factor=100.0),
    "NaN": Fault("fifth", "nan"),
}
"""What a fifth site does."""
PARTS = {"learning": learning, "options": options}


def _summary(values: np.ndarray) -> dict[str, Any]:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return {
        "mean": float(values.mean()),
        "standard_error": error,
        "values": [round(float(value), 3) for value in values],
    }


def tables(results: Mapping[str, Any]) -> str:
    """The tables of all parts, as Markdown."""
    learned = results["learning"]
    groups = list(learned["mean_of_sites"])
    lines = [
        f"| mean return on | {' | '.join(groups)} | PI | PI feed-forward |",
        "|---|" + "---|" * (len(groups) + 2),
    ]
    for name, site in learned["sites"].items():
        cells = [f"{site[group]:.1f}" for group in (*groups, "PI", "PI feed-forward")]
        lines.append(f"| {name}, {learned['rows'][name]} rows | {' | '.join(cells)} |")
    means = [learned["mean_of_sites"][group] for group in groups]
    own = [
        f"{np.mean([site[tuning] for site in learned['sites'].values()]):.1f}"
        for tuning in ("PI", "PI feed-forward")
    ]
    texts = [f"{one['mean']:.1f} ± {one['standard_error']:.1f}" for one in means]
    lines.append(f"| **mean of the sites** | {' | '.join([*texts, *own])} |")
    gains = learned["gain_over_local"]
    texts = "; ".join(
        f"{way} {gain['mean']:+.1f} ± {gain['standard_error']:.1f}" for way, gain in gains.items()
    )
    lines += ["", f"Gain over local training in the mean of the sites, paired by seed: {texts}."]
    return "\n".join(
        [*lines, *_short_tables(results["options"])] if "options" in results else lines
    )


def _short_tables(others: Mapping[str, Any]) -> list[str]:
    by_label = {cell["label"]: cell for cell in others["cells"]}
    plain = by_label["as they are"]
    short = f"{others['rounds']} rounds of {others['local_updates']} updates"
    lines = [
        "",
        f"A fifth site that is faulty, over {short}; mean return of the other four. Without it, "
        f"averaging gives {plain['mean']:.1f}:",
        "",
        f"| rule | {' | '.join(ATTACKS)} |",
        "|---|" + "---|" * len(ATTACKS),
    ]
    for rule in RULES:
        cells = [f"{by_label[f'{rule}, {attack}']['mean']:.1f}" for attack in ATTACKS]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Messages of the four sites, over {short}; epsilon is for delta 1e-5:",
        "",
        "| updates | MB sent | part of plain | largest part left out | epsilon | return |",
        "|---|---|---|---|---|---|",
    ]
    for way in WAYS:
        cell = by_label[way]
        lost = "" if cell["epsilon"] is None else f"{cell['epsilon']:.3g}"
        lines.append(
            f"| {way} | {cell['bytes'] / 1e6:.3g} | "
            f"{cell['bytes'] / cell['bytes_plain']:.1%} | {cell['largest_error']:.3g} | {lost} | "
            f"{cell['mean']:.1f} |"
        )
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
