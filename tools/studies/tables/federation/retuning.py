"""Retune controllers at six sites with one type of plant: together, alone, and on pooled logs.

Usage:
    python tools/studies/tables/federation/retuning.py [PLANT ...] [--seeds 0 1]   what is missing
    python tools/studies/tables/federation/retuning.py --page                      the table alone

Every site has constants of its own, the plant's ordinary controller with a tuning of its own, and a
short log of that controller and its operators. ``alone`` retunes on the site's log, ``pooled`` on
the logs of all sites at one place, ``together`` searches by ranks behind masked sums of three
groups, combined by their median, after which every site picks by its own log. In ``poisoned`` the
last site, which is not counted, sends ten times the reverse of its ranks, behind its mask. All have
two short searches: with two weights of the distance from today's gains, or, together, one from
today's gains and one from the common ones. The gain is that of the site's own plant, in paired
episodes. It is harmful if its interval lies below zero, or if more episodes break a limit than
before by three points.
Results: tools/studies/benchmarks/results/federated_retuning.json, a row for each plant, seed, way and
site.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    TODAY,
    LearnedPlants,
    PlantFacts,
    RetuneResult,
    RetuneSettings,
    SearchSettings,
    learned_plants,
    retune,
)
from neorl_core import Policy
from neorl_core.control import tunables, tuned
from neorl_core.infrastructure import keep_compiled_programs, write_text
from neorl_core.infrastructure.command_line import cache_directory
from neorl_envs import Dataset, collect_log
from neorl_envs.plants import Plant
from neorl_train.data import changed_plant
from neorl_train.federation import (
    Fault,
    Federation,
    FederationConfig,
    MessagesConfig,
    RetuningSite,
    federate_retuning,
)
from neorl_train.judging import episodes_of, join_episodes, rollouts_in_chunks

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "tools/studies/benchmarks/results/federated_retuning.json"
NAMES = ("north", "east", "south", "west", "middle", "last")
CONSTANTS: dict[str, tuple[dict[str, float], ...]] = {
    "CSTR-v0": (
        {}, {"transfer": 0.95}, {"rate_constant": 1.05}, {"flow": 1.03, "feed_temperature": 0.998},
        {"volume": 1.03}, {"transfer": 1.04, "flow": 0.98},
    ),
    "DMSD-v0": (
        {}, {"stiffness": 0.8}, {"mass": 1.2}, {"damping": 0.7},
        {"stiffness": 1.25, "mass": 0.85}, {"damping": 1.3},
    ),
}  # fmt: skip
"""Factors on the constants of every site's plant."""
TUNINGS = 0.7
"""Standard deviation of every site's own tuning around the ordinary one, in steps."""
STEPS, STARTS, AT_ONCE, KEY = 4_000, 256, 256, 777
Z, MORE_BROKEN = 1.96, 0.03
SETTINGS = RetuneSettings(
    model=HistoryModelSettings(updates=1_000),
    search=SearchSettings(population=12, generations=8, episodes=8),
    regularisations=(0.01,),
    fractions=(1.0, 0.5, 0.25),
)
BY_ONE = dataclasses.replace(SETTINGS, regularisations=(0.01, 0.1))
"""Settings without common changes, with as many searches as with them."""
FEDERATION = Federation(
    FederationConfig(method="retuning", rounds=8, rule="median", byzantine=1, weights="equal"),
    messages=MessagesConfig(secure_sum=True, groups=3),
)
LIAR = (Fault(NAMES[-1], "flipped", factor=10.0),)
WAYS = ("alone", "pooled", "together", "poisoned")


def measured(name: str, seed: int, ways: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of these ways at all sites, with logs, models and searches of one seed."""
    started = time.monotonic()
    plants = [changed_plant(name, factors) for factors in CONSTANTS[name]]
    rng = np.random.default_rng([seed, 5])
    controllers = [own_tuning(plant, rng) for plant in plants]
    logs = [
        collect_log(plant, {TODAY: controller}, n_steps=STEPS, key=jax.random.key(100 * seed + i))
        for i, (plant, controller) in enumerate(zip(plants, controllers, strict=True))
    ]
    models = [
        learned_plants(log.transitions, plant.spec, seed, facts_of(plant), SETTINGS)
        for plant, log in zip(plants, logs, strict=True)
    ]
    print(f"{name} {seed}: models after {time.monotonic() - started:.0f} s", flush=True)
    common = {
        way: together(models, controllers, seed, faults)
        for way, faults in (("together", ()), ("poisoned", LIAR))
        if way in ways
    }
    for way, changes in common.items():
        print(f"{way}: common changes {np.round(changes, 3).tolist()}", flush=True)
    pooled_model = None
    if "pooled" in ways:
        pooled_model = learned_plants(
            pooled(logs), plants[0].spec, seed, facts_of(plants[0]), SETTINGS
        )
    rows = []
    for site, plant, model, controller in zip(NAMES, plants, models, controllers, strict=True):
        before = episodes(plant, controller)
        for way in ways:
            if way == "poisoned" and site == NAMES[-1]:
                continue
            learned = model if pooled_model is None or way != "pooled" else pooled_model
            settings = SETTINGS if way in common else BY_ONE
            found = retune(learned, controller, seed, settings, common=common.get(way))
            row = {"plant": name, "seed": seed, "site": site, "way": way}
            row |= outcome(plant, before, found)
            rows.append(row)
            print(f"{site}, {way}: {found.chosen}, {row['gain']}, {row['broken']}", flush=True)
    print(f"{name} {seed}: {time.monotonic() - started:.0f} s", flush=True)
    return rows


def own_tuning(plant: Plant, rng: np.random.Generator) -> Policy:
    """The ordinary controller of a plant with gains that somebody at the site chose."""
    ordinary = next(iter(plant.tunings().values()))
    declared = [one for one in tunables(ordinary, plant.spec) if one.kind == "factor"]
    changes = jnp.asarray(TUNINGS * rng.normal(size=len(declared)), jnp.float32)
    return tuned(ordinary, declared, changes)


def facts_of(plant: Plant) -> PlantFacts:
    """What a site declares: the rates of its actuators and its disturbances.

    Reward and costs are learned from the log, as where no expression declares them; so all sites
    also share their programs.
    """
    return PlantFacts(tuple(plant.action_rates()), tuple(plant.exogenous))


def pooled(logs: list[Dataset]) -> Any:
    """The rows of all logs at one place."""
    return jax.tree.map(
        lambda *columns: np.concatenate([np.asarray(c) for c in columns]),
        *(log.transitions for log in logs),
    )


def together(
    models: list[LearnedPlants],
    controllers: list[Policy],
    seed: int,
    faults: tuple[Fault, ...] = (),
) -> np.ndarray:
    """The common changes of a federation of all sites."""
    sites = [
        RetuningSite(name, model, controller, FEDERATION, SETTINGS.search, seed=seed, faults=faults)
        for name, model, controller in zip(NAMES, models, controllers, strict=True)
    ]
    return federate_retuning(sites, FEDERATION, SETTINGS.search, seed=seed, faults=faults).changes


def episodes(plant: Plant, policy: Policy) -> Any:
    """Episodes of the plant from starts that nothing else has seen."""
    policy = jax.tree.map(jnp.asarray, policy)
    chunks = rollouts_in_chunks(
        plant, policy, jax.random.key(KEY), np.arange(STARTS), at_once=AT_ONCE
    )
    return join_episodes([episodes_of(rows, plant.spec) for rows in chunks])


def outcome(plant: Plant, before: Any, found: RetuneResult) -> dict[str, Any]:
    """The true gain of a pick in return, with what was predicted and what it breaks."""
    predicted = {one.name: one for one in found.table}[found.chosen]
    row: dict[str, Any] = {
        "chosen": found.chosen,
        "predicted": [predicted.gain, predicted.low, predicted.high],
        "values": [change.after for change in found.changes],
        "returns_before": float(np.mean(before.returns)),
    }
    if found.chosen == TODAY:
        return row | {"gain": [0.0, 0.0, 0.0], "broken": [0.0, 0.0], "harm": False}
    after = episodes(plant, found.policy)
    difference = np.asarray(after.returns, np.float64) - np.asarray(before.returns, np.float64)
    half = Z * difference.std(ddof=1) / np.sqrt(len(difference))
    gain = [float(difference.mean() + part * half) for part in (0, -1, 1)]
    broken = [float(np.mean(np.any(one.violated, axis=1))) for one in (before, after)]
    harm = gain[2] < 0 or broken[1] > broken[0] + MORE_BROKEN
    return row | {"gain": gain, "broken": broken, "harm": bool(harm)}


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each plant and way: mean true gain, kept as they were, harm, and picks moved."""
    lines = [
        "| plant | way | mean gain ± se | kept | harm | gains changed by the false site |",
        "|---|---|---|---|---|---|",
    ]
    counted = [row for row in rows if row["site"] != NAMES[-1]]
    values = {(r["plant"], r["seed"], r["site"], r["way"]): r["values"] for r in counted}
    for plant in dict.fromkeys(row["plant"] for row in counted):
        for way in WAYS:
            of_way = [r for r in counted if (r["plant"], r["way"]) == (plant, way)]
            gains = np.asarray([row["gain"][0] for row in of_way])
            kept = sum(row["chosen"] == TODAY for row in of_way)
            harm = sum(row["harm"] for row in of_way)
            moved = "" if way != "poisoned" else str(sum(
                not np.allclose(r["values"], values[plant, r["seed"], r["site"], "together"])
                for r in of_way
            ))  # fmt: skip
            error = gains.std(ddof=1) / np.sqrt(len(gains))
            lines.append(
                f"| {plant} | {way} | {gains.mean():.3g} ± {error:.2g} | {kept} of {len(of_way)} | "
                f"{harm} | {moved} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plants", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    keep_compiled_programs(cache_directory())
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if not arguments.page:
        for seed in arguments.seeds:
            for name in arguments.plants or CONSTANTS:
                done = {row["way"] for row in rows if (row["plant"], row["seed"]) == (name, seed)}
                missing = [way for way in WAYS if way not in done]
                if not missing:
                    continue
                rows += measured(name, seed, missing)
                write_text(RESULTS, json.dumps(rows, indent=1) + "\n")
                jax.clear_caches()
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
