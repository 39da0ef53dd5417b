"""Pools of good and bad candidates, ordered without the plant and judged on it.

Usage:
    python tools/studies/tables/choice/candidate_pools.py [NAME ...] [--seeds 0 1]   what has no result yet
    python tools/studies/tables/choice/candidate_pools.py --page                     print the tables alone

A pool is the ordinary controller of a plant and 23 others of its kind, or 51 with a log of another
seed than 0. Every number that it declares tunable is moved at random, in a third of the candidates
by half a step, in a third by one and a half, in a third by four steps (a gain may be multiplied by
exp(2) and more), so that some lose many spreads of the log's returns. Each is predicted in a plant
model learned from a log that the ordinary controller and its operators alone filled (60,000 steps),
and runs in 200 episodes of the plant, paired with the ordinary one. Nothing is trained. A row holds
the rank correlation of both returns, the gain of the choice beside the best allowed one, and what
the candidates are on the plant of which the answer for a log alone is *worth a trial*.
Result: tools/studies/baselines/choice/candidate_pools.json.
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

from neorl_agents.retuning import (
    ChoiceRule,
    PlantFacts,
    Prediction,
    learned_plants,
    select,
)
from neorl_core import Policy
from neorl_core.control import tunables, tuned
from neorl_core.infrastructure import write_text
from neorl_core.statistics import rank_correlation
from neorl_envs import collect_log, environment_names, make
from neorl_train.choosing import other_estimates
from neorl_train.judging import (
    Episodes,
    LogPrediction,
    ResultTables,
    episodes_of,
    join_episodes,
    rollouts_in_chunks,
    trial_verdict,
)

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/candidate_pools.json"
STEPS, STARTS, KEY, MARGIN = 60_000, 200, 778, 0.05
TRIAL = "worth a trial"
SIZES = (0.5,) * 8 + (1.5,) * 8 + (4.0,) * 7
"""Deviations of the changes, in the steps that the controller declares: logs of seed 0."""
MORE_SIZES = (0.5,) * 17 + (1.5,) * 17 + (4.0,) * 17
"""The same for all other logs."""


def pool_of(policy: Any, env: Any, spread: Any, seed: int) -> dict[str, Policy]:
    """The ordinary controller and others of its kind, most of them worse."""
    declared = tunables(policy, env.spec)
    rng = np.random.default_rng(seed)
    pool = {"today": policy}
    for number, size in enumerate(MORE_SIZES if seed else SIZES):
        changes = jnp.asarray(size * rng.normal(size=len(declared)), jnp.float32)
        pool[f"{number}"] = tuned(policy, declared, changes, spread=spread)
    return pool


def measured(name: str, seed: int) -> dict[str, Any]:
    """One pool of one plant."""
    env, started_at = make(name), time.process_time()
    tunings = env.tunings()
    ordinary = next(iter(tunings))
    log = collect_log(env, {ordinary: tunings[ordinary]}, n_steps=STEPS, key=jax.random.key(seed))
    facts = PlantFacts(env.action_rates(), env.exogenous, env.interlock, env.objective)
    own = np.ones(log.n_episodes, bool)
    plants = learned_plants(log.transitions, env.spec, seed, facts, by_incumbent=own)
    pool = pool_of(tunings[ordinary], env, np.std(log.transitions.obs, axis=0), seed)
    plants = plants.with_model_error(pool["today"])
    chosen, table = select(plants, pool, "today")
    tables = ResultTables(
        environment="", reason="", spec=env.spec, reward_unit=env.reward_unit, level=0.95,
        n_starts=0, candidate="", reference="", rows=(), pooled=(), episode_margin=MARGIN,
    )  # fmt: skip
    answers = []
    for one in table[1:]:
        logged = float(plants.logged.mean())
        known = LogPrediction(
            one, "today", table[0].returns, logged, plants.scale, ChoiceRule(),
            other_estimates(one, None, None), plants.excitation,
        )  # fmt: skip
        answers.append(trial_verdict(tables, known).answer)
    true = {name: episodes(env, policy) for name, policy in pool.items()}
    facts_of = [on_plant(true[one.name], true["today"]) for one in table]
    returns = [float(np.mean(true[one.name].returns)) for one in table]
    predicted = np.nan_to_num([one.returns for one in table], neginf=-1e30)
    allowed = [one["gain"] for one in facts_of if not one["harm"]]
    by_name = dict(zip((one.name for one in table), facts_of, strict=True))
    return {
        "plant": name,
        "seed": seed,
        "rank": float(rank_correlation(predicted, np.nan_to_num(returns, neginf=-1e30))),
        "diverged": int(sum(one.gain < -1e20 for one in table)),
        "best": max(allowed),
        "chosen": chosen,
        "gain": by_name[chosen]["gain"],
        "chosen_harms": bool(by_name[chosen]["harm"]),
        "better": int(sum(one["low"] > 0 and not one["over"] for one in facts_of[1:])),
        "scale": plants.scale,
        "candidates": [
            predicted_facts(one) | {"answer": answer} | by_name[one.name]
            for one, answer in zip(table[1:], answers, strict=True)
        ],
        "seconds": round(time.process_time() - started_at, 1),
    }


def predicted_facts(one: Prediction) -> dict[str, Any]:
    """What the rule looks at of one candidate, so that another rule can be tried on the rows."""
    return {
        "name": one.name,
        "predicted": one.gain,
        "predicted_low": one.low,
        "linear": one.by_member[-1],
        "outside": [one.outside, one.outside_incumbent],
        "refused": bool(one.refusals),
    }


def episodes(env: Any, policy: Policy) -> Episodes:
    """Episodes of the plant on the common starts."""
    policy = jax.tree.map(jnp.asarray, policy)
    key, indices = jax.random.key(KEY), np.arange(STARTS)
    chunks = rollouts_in_chunks(env, policy, key, indices, at_once=STARTS)
    return join_episodes([episodes_of(rows, env.spec) for rows in chunks])


def on_plant(mine: Episodes, today: Episodes) -> dict[str, Any]:
    """Paired gain on the plant, and whether a limit is broken in more episodes than allowed."""
    difference = np.asarray(mine.returns, np.float64) - np.asarray(today.returns, np.float64)
    gain = float(difference.mean())
    error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    shares = [one.violated.mean(axis=0) for one in (mine, today)]
    over = bool(np.any(shares[0] > shares[1] + MARGIN))
    harm = not np.isfinite(gain) or gain + 1.96 * error < 0 or over
    return {"gain": gain, "low": gain - 1.96 * error, "over": over, "harm": bool(harm)}


def rows() -> list[dict[str, Any]]:
    """The rows so far."""
    return json.loads(RESULT.read_text()) if RESULT.is_file() else []


def answer_of(one: dict[str, Any]) -> str:
    """The answer for a candidate, by the verdict as it is now.

    Rows of before its clause on the choice rule hold the answer by the other clauses. Where these
    all hold, a candidate that the rule refuses fails that clause, and the answer is *cannot tell*.
    """
    return "cannot tell" if one["answer"] == TRIAL and one["refused"] else one["answer"]


def trials_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The candidates of a pool that are worth a trial by the verdict."""
    return [one for one in row["candidates"] if answer_of(one) == TRIAL]


def interval_words(pools: list[dict[str, Any]]) -> str:
    """How often the interval of a predicted gain holds the gain on the plant, worth a trial."""
    trials = [one for row in pools for one in trials_of(row)]
    highs = [2 * one["predicted"] - one["predicted_low"] for one in trials]
    below = [one for one in trials if one["gain"] < one["predicted_low"]]
    above = sum(one["gain"] > high for one, high in zip(trials, highs, strict=True))
    # The gain on the plant has an interval too: as far above it as `low` is below.
    surely = sum(2 * one["gain"] - one["low"] < one["predicted_low"] for one in below)
    return (
        f"**Do not read the interval of a predicted gain as one for the true gain.** Of the {len(trials)} "
        f"that were worth a trial, the gain on the plant lies in the interval of the predicted "
        f"gain for {len(trials) - len(below) - above}, below it for {len(below)} and above it for "
        f"{above}; for {surely} of those below, the whole interval of the gain on the plant lies "
        "below too."
    )


def extent_words(pools: list[dict[str, Any]]) -> str:
    """How bad the worst candidate is, and how many diverged numerically."""
    losses = {
        f"{row['plant']}, log {row['seed']}": -min(one["gain"] for one in row["candidates"])
        / row["scale"]
        for row in pools
    }
    worst = max(losses, key=lambda name: losses[name])
    on_plant = sum(not np.isfinite(one["gain"]) for row in pools for one in row["candidates"])
    return (
        f"All candidates of a pool are changes of one controller. The worst one loses "
        f"{losses[worst]:.0f} spreads of the log's returns ({worst}). Number of candidates whose "
        f"returns are not finite: {sum(row['diverged'] for row in pools)} in the model, {on_plant} "
        "on the plant."
    )


def page() -> str:
    """The table of the stored rows, with what it comes to in words."""
    pools = sorted(rows(), key=lambda row: (row["plant"], row["seed"]))
    lines = [
        "| Plant, log | Candidates, better there | Rank correlation | Gain of the choice, of "
        "the best | Worth a trial, of these worse or over a limit |",
        "|---|---|---|---|---|",
    ]
    for row in pools:
        trials = trials_of(row)
        kept = " (kept what runs)" if row["chosen"] == "today" else ""
        lines.append(
            f"| {row['plant']}, {row['seed']} | {len(row['candidates'])}, {row['better']} | "
            f"{row['rank']:.2f} | {row['gain']:.3g}{kept}, {row['best']:.3g} | "
            f"{len(trials)}, {sum(one['harm'] for one in trials)} |"
        )
    trials = [one for row in pools for one in trials_of(row)]
    harms = sum(one["harm"] for one in trials)
    words = (
        f"{len(pools)} pools, {sum(len(row['candidates']) for row in pools)} candidates. By the "
        f"verdict, {len(trials)} were worth a trial. Number of these that are worse on the plant, "
        f"or over a limit in more episodes than allowed: {harms}. The rank correlation is 0.7 or "
        f"more in {sum(row['rank'] >= 0.7 for row in pools)} of {len(pools)} pools, and the "
        f"gain of the choice at least four fifths of the best in "
        f"{sum(row['gain'] >= 0.8 * row['best'] for row in pools)}. Number of choices that did "
        f"harm: {sum(row['chosen_harms'] for row in pools)}."
    )
    further = [interval_words(pools), "", extent_words(pools), ""]
    return "\n".join([words, "", *further, *lines])


def main() -> None:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(environment_names()))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    for seed in () if options.page else options.seeds:
        for name in options.names:
            if any((row["plant"], row["seed"]) == (name, seed) for row in rows()):
                continue
            row = measured(name, seed)
            write_text(RESULT, json.dumps([*rows(), row], indent=1) + "\n")
            print(json.dumps({k: v for k, v in row.items() if k != "candidates"}))
            sys.stdout.flush()
    print(page())


if __name__ == "__main__":
    main()
