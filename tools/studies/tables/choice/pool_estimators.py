"""Estimates of discounted returns from a log alone, beside the returns on the plant.

Usage:
    python tools/studies/tables/choice/pool_estimators.py [NAME ...]   what has no result yet; a pool that
                                                               lacks only the ensemble gets that
    python tools/studies/tables/choice/pool_estimators.py --page       print the tables alone

The pools are those of candidate_pools.py, with every third candidate, some near the ordinary
controller and some far away. The log is the same one, which only the ordinary controller and its
operators filled. Each candidate is estimated by fitted Q evaluation with one network and with an
ensemble, by its distributional form and by the correction with the nearest logged rows, as
``choose`` does it but with 3,000 updates, and runs in 200 episodes of the plant. The discount is
0.95, because episodes of 100 steps then contain 99.4 % of the sum.
Result: tools/studies/baselines/choice/pool_estimators.json.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from candidate_pools import KEY, STARTS, STEPS, pool_of

from neorl_agents.retuning import PlantFacts, learned_plants
from neorl_core.infrastructure import write_text
from neorl_core.statistics import rank_correlation
from neorl_envs import collect_log, make
from neorl_train.choosing import (
    MOST_FAR,
    ChooseOptions,
    logged_episodes,
    return_distribution,
    value_estimates,
)
from neorl_train.judging import Estimate, rollouts_in_chunks

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/pool_estimators.json"
PLANTS, DISCOUNT, UPDATES, TENTH = ("CSTR-v0", "DMSD-v0"), 0.95, 3_000, 10
MEMBERS = ChooseOptions.value_members
ESTIMATORS = {
    "fitted_q": "fitted Q evaluation, one network",
    "ensemble": f"ensemble of fitted Q evaluation, {MEMBERS} networks",
    "mean": "distributional fitted Q evaluation",
    "corrected": "the same corrected by neighbours",
    "worst_tenth": "its worst tenth",
}


def measured(name: str, seed: int) -> dict[str, Any]:
    """One pool of one plant."""
    started_at = time.process_time()
    env, log, pool = log_and_pool(name, seed)
    facts = PlantFacts(env.action_rates(), env.exogenous, env.interlock, env.objective)
    plants = learned_plants(log.transitions, env.spec, seed, facts)
    episodes, settings = logged_episodes(log), settings_of(seed)
    candidates = []
    for label in ("today", *list(pool)[1::3]):
        values = value_estimates(log, episodes, pool[label], members=1, **settings)
        distribution = return_distribution(log, episodes, pool[label], plants, **settings)
        candidates.append(
            {
                "name": label,
                **on_plant(env, pool[label]),
                "fitted_q": ends(values.fitted_q),
                "ensemble": ensemble_of(log, episodes, pool[label], settings),
                "mean": ends(distribution.mean),
                "corrected": ends(distribution.corrected),
                "worst_tenth": ends(distribution.worst_tenth),
                "far": distribution.far,
            }
        )
        print(json.dumps(candidates[-1]))
        sys.stdout.flush()
    seconds = round(time.process_time() - started_at, 1)
    return {"plant": name, "seed": seed, "candidates": candidates, "seconds": seconds}


def log_and_pool(name: str, seed: int) -> tuple[Any, Any, Any]:
    """The plant, the log of its ordinary controller and the pool of candidates by name."""
    env = make(name)
    tunings = env.tunings()
    ordinary = next(iter(tunings))
    log = collect_log(env, {ordinary: tunings[ordinary]}, n_steps=STEPS, key=jax.random.key(seed))
    pool = pool_of(tunings[ordinary], env, np.std(log.transitions.obs, axis=0), seed)
    return env, log, pool


def settings_of(seed: int) -> dict[str, Any]:
    """The settings of every fit."""
    return {"discount": DISCOUNT, "updates": UPDATES, "seed": seed}


def ensemble_of(log: Any, episodes: Any, policy: Any, settings: dict[str, Any]) -> list[float]:
    """The estimate of a candidate by an ensemble."""
    return ends(value_estimates(log, episodes, policy, members=MEMBERS, **settings).fitted_q)


def with_ensemble(row: dict[str, Any]) -> dict[str, Any]:
    """A pool that was measured without the ensemble, with its estimates."""
    started_at, settings = time.process_time(), settings_of(row["seed"])
    _, log, pool = log_and_pool(row["plant"], row["seed"])
    episodes, candidates = logged_episodes(log), []
    for one in row["candidates"]:
        ensemble = ensemble_of(log, episodes, pool[one["name"]], settings)
        candidates.append({**one, "ensemble": ensemble})
        print(json.dumps(candidates[-1]))
        sys.stdout.flush()
    seconds = round(row["seconds"] + time.process_time() - started_at, 1)
    return {**row, "candidates": candidates, "seconds": seconds}


def on_plant(env: Any, policy: Any) -> dict[str, Any]:
    """Discounted and plain returns on the plant, with the standard error of the former."""
    policy = jax.tree.map(jnp.asarray, policy)
    key, indices = jax.random.key(KEY), np.arange(STARTS)
    rows = next(rollouts_in_chunks(env, policy, key, indices, at_once=STARTS))
    reward = np.where(rows.mask, rows.reward, 0).astype(np.float64)
    returns = reward @ DISCOUNT ** np.arange(reward.shape[1])
    return {
        "true": float(returns.mean()),
        "error": float(returns.std(ddof=1) / np.sqrt(STARTS)),
        "true_worst_tenth": float(np.sort(returns)[: STARTS // TENTH].mean()),
        "true_return": float(reward.sum(axis=1).mean()),
    }


def ends(one: Estimate) -> list[float]:
    """An estimate and its interval as a list."""
    return [one.value, one.low, one.high]


def rows() -> list[dict[str, Any]]:
    """The rows so far."""
    return json.loads(RESULT.read_text()) if RESULT.is_file() else []


def covers(candidate: dict[str, Any], name: str) -> bool:
    """Whether the interval holds the true value, up to the chance of the 200 episodes."""
    value, low, high = candidate[name]
    reach = np.hypot((high - low) / 2, 1.96 * candidate["error"])
    return bool(abs(value - candidate["true"]) <= reach)


def facts(candidates: list[dict[str, Any]], name: str) -> list[str]:
    """Rank correlation, median error and intervals that hold the true value of one estimator."""
    tail = name == "worst_tenth"
    true = np.asarray([one["true_worst_tenth" if tail else "true"] for one in candidates])
    values = np.asarray([one[name][0] for one in candidates])
    inside = sum(covers(one, name) for one in candidates)
    return [
        f"{float(rank_correlation(values, true)):.2f}",
        f"{np.median(np.abs(values - true)):.3g}",
        "-" if tail else f"{inside} of {len(candidates)}",
    ]


def page() -> str:
    """The table of the stored rows."""
    lines = [
        "| Plant | Estimator | Rank correlation | Median error | Intervals that hold the true "
        "value |",
        "|---|---|---|---|---|",
    ]
    for row in sorted(rows(), key=lambda row: row["plant"]):
        near = [one for one in row["candidates"] if one["far"] <= MOST_FAR]
        groups = (row["candidates"], near)
        known = {name for name in ESTIMATORS if all(name in one for one in row["candidates"])}
        for name, words in ESTIMATORS.items():
            if name not in known:
                continue
            of_all, of_near = (facts(group, name) for group in groups)
            cells = " | ".join(f"{x}; {y}" for x, y in zip(of_all, of_near, strict=True))
            lines.append(f"| {row['plant']} | {words} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(PLANTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    for name in () if options.page else options.names:
        mine = [row for row in rows() if (row["plant"], row["seed"]) == (name, options.seed)]
        if mine and "ensemble" in mine[0]["candidates"][0]:
            continue
        row = with_ensemble(mine[0]) if mine else measured(name, options.seed)
        others = [one for one in rows() if one not in mine]
        write_text(RESULT, json.dumps([*others, row], indent=1) + "\n")
    print(page())


if __name__ == "__main__":
    main()
