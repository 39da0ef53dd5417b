"""Look for something better than the controllers of every plant in its log, and judge it there.

Usage:
    python tools/studies/tables/retuning_table.py [NAME ...] [--seeds 0 1 2]   what has no result yet
    python tools/studies/tables/retuning_table.py --alone [...]                logs of the ordinary alone
    python tools/studies/tables/retuning_table.py --page                       print the tables alone

Every seed has a log of its own (120,000 steps, of all controllers with their operators, or of the
ordinary one and its operators alone), a model, a search and a network; the settings are the same
for all plants. Three ways are judged: the controller retuned, a network on top of the controller as
it was, and the pick: whichever of these two, and of a network on top of the retuned one, has the
largest lower bound without the plant. What is chosen runs in 1,000 episodes of the plant that
nothing has seen, behind its guard, paired with the controller as it was, and is judged by the rule
of the verdict. Of references the pick alone is judged.
Results: tools/studies/baselines/retuning/NAME.json, a list with a row for each seed, log, controller, way.
"""

import argparse
import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from baseline_table import RESULTS
from cell_table import made_on
from choice.retuning_page import BOTH, LOGS, NETWORK, PICK, RETUNED, RULE, section
from neorl_agents.retuning import (
    TODAY,
    LearnedPlants,
    OtherController,
    PlantFacts,
    Prediction,
    learned_plants,
    refine,
    retune,
    select,
)
from neorl_core import Policy
from neorl_core.infrastructure import write_text
from neorl_envs import collect_log, environment_names, make
from neorl_safety.guards import guard
from neorl_train import verdict
from neorl_train.judging import (
    PolicyResult,
    ResultTables,
    episodes_of,
    join_episodes,
    plant_constraints,
    policy_rows,
    rollouts_in_chunks,
)

WHERE = RESULTS / "retuning"
STEPS, STARTS, AT_ONCE, LEVEL, MARGIN = 120_000, 1_000, 250, 0.95, 0.05
KEY = 777
CANDIDATE = "retuned-0"


def measured(name: str, seed: int, *, alone: bool) -> list[dict[str, Any]]:
    """What comes of the ordinary controller and of the reference of one plant, from one log."""
    env = make(name)
    tunings = env.tunings()
    ordinary = next(iter(tunings))
    acting = {ordinary: tunings[ordinary]} if alone else tunings
    log = collect_log(env, acting, n_steps=STEPS, key=jax.random.key(seed))
    facts = PlantFacts(env.action_rates(), env.exogenous, env.interlock, env.objective)
    started_at = time.time()
    plants = learned_plants(log.transitions, env.spec, seed, facts)
    fitted = time.time() - started_at
    rows = []
    for base in dict.fromkeys((ordinary, ordinary if alone else env.reference)):
        others = tuple(
            OtherController(tunings[name], own_episodes(log, plants, name))
            for name in acting
            if name != base
        )
        known = plants._replace(by_incumbent=own_episodes(log, plants, base)).with_model_error(
            tunings[base], others
        )
        started_at = time.time()
        ways = candidates(known, tunings[base], seed)
        searched = time.time() - started_at
        before = _episodes(env, tunings[base])
        for way, (chosen, policy, taken) in ways.items():
            if way != PICK and base != ordinary:
                continue
            row = {"seed": seed, "log": LOGS[alone], "controller": base, "way": way}
            row["reference"] = base == env.reference
            row |= {"seconds": [round(fitted, 1), round(searched, 1)], "chosen": chosen}
            row |= {"predicted": taken.gain, "predicted_low": taken.low, "rule": RULE}
            row |= {"error": known.error}
            row |= judged(env, base, before, None if chosen == TODAY else policy) | made_on()
            rows.append(row)
            gain = row["gain"]
            words = f"{name} {seed} {base}, {way}: {chosen}, {gain[0]:.4g}, {row['failed']}"
            print(words, flush=True)
    return rows


def own_episodes(log: Any, plants: LearnedPlants, name: str) -> np.ndarray:
    """Whether a controller filled each of the episodes that judge."""
    starts = np.unique(plants.rows.start)
    number = log.attributes["behaviours"].index(name)
    return (np.asarray(log.behaviour) == number)[np.searchsorted(starts, plants.evaluation_starts)]


def candidates(
    plants: LearnedPlants, before: Policy, seed: int
) -> dict[str, tuple[str, Policy, Prediction]]:
    """For each way what was chosen, the policy, and its prediction."""
    retuned = retune(plants, before, seed)
    alone = refine(plants, before, seed)
    pool = {TODAY: before}
    if retuned.chosen != TODAY:
        pool[RETUNED] = retuned.policy
        both = refine(plants, retuned.policy, seed)
        if both.chosen != TODAY:
            pool[BOTH] = both.policy
    if alone.chosen != TODAY:
        pool[NETWORK] = alone.policy
    chosen, table = select(plants, pool, TODAY, searched=pool)
    policies = {RETUNED: retuned, NETWORK: alone}
    ways = {
        way: (one.chosen, one.policy, {t.name: t for t in one.table}[one.chosen])
        for way, one in policies.items()
    }
    return ways | {PICK: (chosen, pool[chosen], {t.name: t for t in table}[chosen])}


def judged(env: Any, base: str, before: Any, policy: Policy | None) -> dict[str, Any]:
    """The paired gain on the plant, and the clauses of the verdict that do not hold."""
    if policy is None:
        return {"gain": [0.0, 0.0, 0.0], "over": [], "over_before": [], "failed": ["kept"]}
    acting = env.tunings()[env.reference]
    behind = guard(policy, plant_constraints(env), acting, env.spec)
    results = [
        PolicyResult(base, base, "classical", False, before),
        PolicyResult(CANDIDATE, "retuned", "learner", True, _episodes(env, behind)),
    ]
    rows = policy_rows(results, env.spec, reference=base, level=LEVEL)
    tables = ResultTables(
        environment=env.name,
        reason="",
        spec=env.spec,
        reward_unit=env.reward_unit,
        level=LEVEL,
        n_starts=STARTS,
        candidate=CANDIDATE,
        reference=base,
        rows=rows,
        pooled=(),
        episode_margin=MARGIN,
    )
    decided, difference = verdict(tables), rows[1].difference
    assert difference is not None
    return {
        "gain": [difference.value, difference.low, difference.high],
        "over": [cell.violations for cell in rows[1].costs],
        "over_before": [cell.violations for cell in rows[0].costs],
        "failed": [clause.name for clause in decided.clauses if not clause.holds],
    }


def _episodes(env: Any, policy: Policy) -> Any:
    policy = jax.tree.map(jnp.asarray, policy)
    key, indices = jax.random.key(KEY), np.arange(STARTS)
    chunks = rollouts_in_chunks(env, policy, key, indices, at_once=AT_ONCE)
    return join_episodes([episodes_of(rows, env.spec) for rows in chunks])


def stored(name: str) -> list[dict[str, Any]]:
    """The rows of a plant so far."""
    path = WHERE / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else []


def every_row() -> dict[str, list[dict[str, Any]]]:
    """All rows so far, by plant."""
    return {name: rows for name in environment_names() if (rows := stored(name))}


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page:
        WHERE.mkdir(exist_ok=True)
        for seed in arguments.seeds:
            for name in arguments.names or environment_names():
                rows = stored(name)
                made = [r for r in rows if (r["seed"], r["log"]) == (seed, LOGS[arguments.alone])]
                if made and all(row.get("rule") == RULE for row in made):
                    continue
                rows = [row for row in rows if row not in made]
                rows += measured(name, seed, alone=arguments.alone)
                rows.sort(key=lambda row: (row["log"], row["seed"], row["reference"]))
                write_text(WHERE / f"{name}.json", json.dumps(rows, indent=1) + "\n")
                jax.clear_caches()  # programs of one plant are no use to the next
    print(section(every_row()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
