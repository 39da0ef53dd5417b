"""Pools of candidates of every family, ordered without the plant and judged on it.

Usage:
    python tools/studies/tables/choice/family_pools.py [NAME ...]     plants that have no result yet
    python tools/studies/tables/choice/family_pools.py --page         print the tables alone

A pool holds the ordinary controller of a plant and candidates of every family: the plant's other
controllers, which filled the log too; the ordinary one retuned in the plant model, and with a
network on top; controllers fitted on the log; and learned policies, several settings of a learner
with two seeds each. All of them come from one log of 60,000 steps of mixed quality, the settings
are the same for all plants, and nothing is run on the plant before the choice. Then every candidate
runs in 200 episodes of the plant without a guard, paired with the ordinary controller. The choice
is also made among the learned policies alone: that is the choice of a learner and its settings
without the plant. Result: tools/studies/baselines/choice/family_pools.json.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from candidate_pools import episodes, on_plant, predicted_facts

from neorl_agents import ALGORITHMS
from neorl_agents.classical import CLASSICAL, Task
from neorl_agents.retuning import (
    TODAY,
    OtherController,
    PlantFacts,
    Prediction,
    choose,
    learned_plants,
    refine,
    retune,
    select,
)
from neorl_agents.testing import sized
from neorl_core import InputError, Policy
from neorl_core.infrastructure import keep_compiled_programs, write_text
from neorl_core.infrastructure.command_line import cache_directory
from neorl_core.statistics import rank_correlation
from neorl_envs import Dataset, collect_log, environment_names, make
from neorl_envs.recording import quality
from neorl_train import train
from neorl_train.data import own_episodes, training_data
from neorl_train.training import Plan

sys.path.append(str(Path(__file__).resolve().parents[1]))

from classical_table import TASKS  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/family_pools.json"
STEPS, SEEDS, UPDATES = 60_000, (0, 1), 5_000
SIZES = {"hidden": (64, 64), "batch_size": 128}
SLOWER = {"actor_learning_rate": 3e-4, "temperature_learning_rate": 1e-3}
FITTED = ("pid", "pid_imitation", "smith", "lqg", "mpc")
LEARNED: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", {}),
    **{f"td3_bc, alpha {x}": ("td3_bc", {"alpha": x}) for x in (1.0, 2.5, 10.0)},
    **{
        f"iql, inverse temperature {x}": ("iql", {"inverse_temperature": x})
        for x in (1.0, 3.0, 10.0)
    },
    "awac": ("awac", {}),
    "rebrac": ("rebrac", {}),
    "combo": ("combo", SLOWER),
}
"""Learned candidates: learner and settings, the others as everywhere in the tables."""
FAMILIES = {
    "in the log": "a controller that filled a part of the log",
    "retuned": "the ordinary controller retuned in the model, or with a network on top",
    "fitted": "a classical controller fitted on the log",
    "learned": "a learned policy",
}


class Candidate(NamedTuple):
    """A member of a pool."""

    family: str
    policy: Policy


def measured(name: str) -> dict[str, Any]:
    """The pool of one plant."""
    env, started_at = make(name), time.monotonic()
    tunings = env.tunings()
    ordinary = next(iter(tunings))
    acting, plan = quality(env, "mixed")
    log = collect_log(env, acting, n_steps=STEPS, key=jax.random.key(0), plan=plan)
    facts = PlantFacts(env.action_rates(), env.exogenous, env.interlock, env.objective)
    plants = learned_plants(log.transitions, env.spec, 0, facts)
    others = tuple(
        OtherController(tunings[other], filled_by(log, plants, other))
        for other in tunings
        if other != ordinary and np.any(filled_by(log, plants, other))
    )
    plants = plants._replace(by_incumbent=filled_by(log, plants, ordinary))
    plants = plants.with_model_error(tunings[ordinary], others)
    pool = {
        other: Candidate("in the log", tunings[other]) for other in tunings if other != ordinary
    }
    notes: list[str] = []
    pool |= searched_candidates(plants, tunings[ordinary])
    pool |= fitted_candidates(env, log, notes)
    pool |= learned_candidates(env, log, notes)
    policies = {"today": tunings[ordinary], **{key: one.policy for key, one in pool.items()}}
    logged = [key for key, one in pool.items() if one.family == "in the log"]
    searched = [key for key, one in pool.items() if one.family == "retuned"]
    chosen, table = select(plants, policies, "today", logged=logged, searched=searched)
    true = {key: episodes(env, policy) for key, policy in policies.items()}
    judged = {key: on_plant(true[key], true["today"]) for key in policies}
    rows = [
        {"family": pool[one.name].family} | predicted_facts(one) | judged[one.name]
        for one in table[1:]
    ]
    learned = [one for one in table[1:] if pool[one.name].family == "learned"]
    return {
        "plant": name,
        "scale": plants.scale,
        "chosen": chosen,
        "chosen_learned": choose([table[0], *learned], "today"),
        "largest_learned": largest(learned),
        "rank": ranks(table, judged),
        "rank_learned": ranks(learned, judged),
        "candidates": rows,
        "notes": notes,
        "seconds": round(time.monotonic() - started_at),
    }


def filled_by(log: Dataset, plants: Any, name: str) -> np.ndarray:
    """Which of the episodes that judge were recorded by a controller."""
    recorded = own_episodes(log, name)
    if recorded is None:
        return np.zeros(len(plants.evaluation_starts), bool)
    return recorded[np.searchsorted(np.unique(plants.rows.start), plants.evaluation_starts)]


def searched_candidates(plants: Any, policy: Policy) -> dict[str, Candidate]:
    """The ordinary controller retuned, and with a network on top, where the search proposes one."""
    results = {"retuned": retune(plants, policy, 0), "network": refine(plants, policy, 0)}
    return {
        name: Candidate("retuned", one.policy)
        for name, one in results.items()
        if one.chosen != TODAY
    }


def fitted_candidates(env: Any, log: Dataset, notes: list[str]) -> dict[str, Candidate]:
    """Classical controllers fitted on the loops that the tables declare for a plant."""
    task = TASKS.get(env.name)
    if not isinstance(task, Task):
        notes.append(f"no controller is fitted: {task or 'no loops are declared for this plant'}")
        return {}
    pool = {}
    for name in FITTED:
        try:
            policy, _ = CLASSICAL[name]().fit(log.transitions, env.spec, task)
        except InputError as error:
            notes.append(f"{name}: {error}")
            continue
        pool[name] = Candidate("fitted", policy)
    return pool


def learned_candidates(env: Any, log: Dataset, notes: list[str]) -> dict[str, Candidate]:
    """Every learner and setting with both seeds; costs are priced as the plant declares."""
    prices = env.penalty_weights()
    weights = [prices.get(cost.name, 0.0) for cost in log.spec.cost]
    data = training_data(log, penalty_weights=weights)
    pool = {}
    for title, (algorithm, settings) in LEARNED.items():
        learner = sized(ALGORITHMS[algorithm](), **SIZES, **settings)
        started_at = time.monotonic()
        try:
            done = train(learner, data, SEEDS, Plan(UPDATES, 500, UPDATES))
        except InputError as error:
            notes.append(f"{title}: {error}")
            continue
        for seed, policy in zip(SEEDS, done.policies, strict=True):
            pool[f"{title}, seed {seed}"] = Candidate("learned", policy)
        print(f"{env.name} {title}: {time.monotonic() - started_at:.0f} s", flush=True)
        jax.clear_caches()
    return pool


def ranks(table: Any, judged: dict[str, Any]) -> float:
    """Rank correlation of predicted gains with those on the plant."""
    predicted = np.nan_to_num([one.gain for one in table], neginf=-1e30)
    gains = np.nan_to_num([judged[one.name]["gain"] for one in table], neginf=-1e30)
    return float(rank_correlation(predicted, gains))


def largest(learned: list[Prediction]) -> str:
    """The learned policy with the largest predicted gain, refused or not."""
    return max(learned, key=lambda one: np.nan_to_num(one.gain, nan=-np.inf)).name


def rows() -> list[dict[str, Any]]:
    """The rows so far."""
    return json.loads(RESULT.read_text()) if RESULT.is_file() else []


def better(one: dict[str, Any]) -> bool:
    """Whether a candidate is surely better on the plant and keeps the limits."""
    return one["low"] > 0 and not one["over"]


def allowed_best(candidates: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The candidate with the largest gain on the plant of those that do no harm there."""
    allowed = [one for one in candidates if not one["harm"] and one["gain"] > 0]
    return max(allowed, key=lambda one: one["gain"], default=None)


def gain_words(row: dict[str, Any], name: str, candidates: list[dict[str, Any]]) -> str:
    """The choice with its gain, and the best with its own."""
    by_name = {one["name"]: one for one in candidates}
    best = allowed_best(candidates)
    best_words = "none" if best is None else f"{best['name']}: {best['gain']:.3g}"
    if name == "today":
        return f"keeps what runs | {best_words}"
    harm = " (**harm**)" if by_name[name]["harm"] else ""
    return f"{name}: {by_name[name]['gain']:.3g}{harm} | {best_words}"


def tables(pools: list[dict[str, Any]]) -> str:
    """The choice of every pool, the choice among learned policies, and the families."""
    lines = [
        "| Plant | Candidates, better there | Rank correlation | Choice: gain | Best: gain |",
        "|---|---|---|---|---|",
    ]
    for row in pools:
        ones = row["candidates"]
        lines.append(
            f"| {row['plant']} | {len(ones)}, {sum(map(better, ones))} | {row['rank']:.2f} | "
            f"{gain_words(row, row['chosen'], ones)} |"
        )
    lines += [
        "",
        "The choice among the learned policies alone:",
        "",
        "| Plant | Candidates, better there | Rank correlation | Choice: gain | Best: gain | "
        "Largest predicted gain, on the plant | `bc`, mean of its seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in pools:
        ones = [one for one in row["candidates"] if one["family"] == "learned"]
        top = {one["name"]: one for one in ones}[row["largest_learned"]]
        cloned = np.mean([one["gain"] for one in ones if one["name"].startswith("bc,")])
        lines.append(
            f"| {row['plant']} | {len(ones)}, {sum(map(better, ones))} | "
            f"{row['rank_learned']:.2f} | {gain_words(row, row['chosen_learned'], ones)} | "
            f"{top['name']}: {top['gain']:.3g}{' (harm)' if top['harm'] else ''} | {cloned:.3g} |"
        )
    lines += [
        "",
        "| Family | Candidates | Better on the plant | Worse, or over a limit | Refused without "
        "the plant | Of the refused, better | Of those not refused, worse or over a limit |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, words in FAMILIES.items():
        ones = [one for row in pools for one in row["candidates"] if one["family"] == family]
        refused = [one for one in ones if one["refused"]]
        passed = [one for one in ones if not one["refused"]]
        lines.append(
            f"| {words} | {len(ones)} | {sum(map(better, ones))} | "
            f"{sum(one['harm'] for one in ones)} | {len(refused)} | {sum(map(better, refused))} | "
            f"{sum(one['harm'] for one in passed)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measures what is missing, then prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(environment_names()))
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    keep_compiled_programs(cache_directory())
    for name in () if options.page else options.names:
        if any(row["plant"] == name for row in rows()):
            continue
        row = measured(name)
        write_text(RESULT, json.dumps([*rows(), row], indent=1) + "\n")
        print(json.dumps({k: v for k, v in row.items() if k != "candidates"}))
        sys.stdout.flush()
    print(tables(sorted(rows(), key=lambda row: row["plant"])))


if __name__ == "__main__":
    main()
