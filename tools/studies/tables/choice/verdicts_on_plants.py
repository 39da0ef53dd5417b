"""How often the verdict errs on simulated plants, whose candidates are known from more episodes.

Usage:
    python tools/studies/tables/choice/verdicts_on_plants.py [NAME ...]   what has no result yet
    python tools/studies/tables/choice/verdicts_on_plants.py --page       print the tables alone

A pair is the ordinary controller of a plant and another of its kind, each of whose tunable numbers
is moved at random: in 13 candidates by a quarter of a step, in 13 by half a step, in 13 by one and
a half. Both run the same 1,536 starts, in which parameters, disturbances and noise of the plant
vary; the candidate runs behind the plant's guard. Four sets of 128 starts are judged by the rule of
the verdict, the other 1,024 say what is true. Nothing is learned or chosen.
Result: tools/studies/baselines/choice/verdicts_on_plants.json.
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

from neorl_core import InputError, Policy
from neorl_core.control import tunables, tuned
from neorl_core.infrastructure import write_text
from neorl_envs import collect_log, environment_names, make
from neorl_safety.guards import guard
from neorl_train import verdict
from neorl_train.judging import (
    Episodes,
    PolicyResult,
    ResultTables,
    episodes_of,
    join_episodes,
    plant_constraints,
    policy_rows,
    rollouts_in_chunks,
)

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/verdicts_on_plants.json"
SIZES = (0.25,) * 13 + (0.5,) * 13 + (1.5,) * 13
"""Deviations of the changes, in the steps that the controller declares."""
STEPS, SETS, STARTS, TRUTH, AT_ONCE, KEY = 6_000, 4, 128, 1_024, 256, 779
LEVEL, MARGIN = 0.95, 0.05
CANDIDATE, TODAY = "candidate-0", "today"


def measured(name: str) -> dict[str, Any]:
    """All pairs of one plant."""
    env, begun = make(name), time.process_time()
    tunings = env.tunings()
    ordinary = next(iter(tunings.values()))
    log = collect_log(env, n_steps=STEPS, key=jax.random.key(0))
    spread, rng = np.std(log.transitions.obs, axis=0), np.random.default_rng(0)
    declared, constraints = tunables(ordinary, env.spec), plant_constraints(env)
    today, pairs = episodes(env, ordinary), []
    for size in SIZES:
        changes = jnp.asarray(size * rng.normal(size=len(declared)), jnp.float32)
        policy = tuned(ordinary, declared, changes, spread=spread)
        behind = guard(policy, constraints, tunings[env.reference], env.spec)
        mine = episodes(env, behind)
        answers = [answer(env, mine, today, number) for number in range(SETS)]
        true = truth(env, part(mine, slice(-TRUTH, None)), part(today, slice(-TRUTH, None)))
        pairs.append({"size": size, **true, "deploy": answers.count("deploy"), "sets": SETS})
    return {"plant": name, "pairs": pairs, "seconds": round(time.process_time() - begun, 1)}


def episodes(env: Any, policy: Policy) -> Episodes:
    """Episodes of a policy on the common starts: first those that are judged."""
    policy = jax.tree.map(jnp.asarray, policy)
    key, indices = jax.random.key(KEY), np.arange(SETS * STARTS + TRUTH)
    chunks = rollouts_in_chunks(env, policy, key, indices, at_once=AT_ONCE)
    return join_episodes([episodes_of(rows, env.spec) for rows in chunks])


def part(whole: Episodes, rows: slice) -> Episodes:
    """Some of the episodes."""
    return whole.reorder(np.arange(whole.count)[rows])


def answer(env: Any, mine: Episodes, today: Episodes, number: int) -> str:
    """The verdict on one of the sets of starts."""
    rows = slice(number * STARTS, (number + 1) * STARTS)
    results = [
        PolicyResult(TODAY, TODAY, "classical", False, part(today, rows)),
        PolicyResult(CANDIDATE, "candidate", "learner", True, part(mine, rows)),
    ]
    tables = ResultTables(
        environment=env.name,
        reason="",
        spec=env.spec,
        reward_unit=env.reward_unit,
        level=LEVEL,
        n_starts=STARTS,
        candidate=CANDIDATE,
        reference=TODAY,
        rows=policy_rows(results, env.spec, reference=TODAY, level=LEVEL),
        pooled=(),
        episode_margin=MARGIN,
    )
    return verdict(tables).answer


def truth(env: Any, mine: Episodes, today: Episodes) -> dict[str, Any]:
    """Gain with its standard error, skew, and whether limits are kept as the verdict wants it."""
    gains = np.asarray(mine.returns, np.float64) - np.asarray(today.returns, np.float64)
    gain, spread = float(gains.mean()), float(gains.std())
    skew = float(np.mean(((gains - gain) / spread) ** 3)) if spread else 0.0
    shares = [one.violated.mean(axis=0) for one in (mine, today)]
    means = [
        float((mine.cost_worst if channel.per == "step" else mine.cost_sum)[:, j].mean())
        for j, channel in enumerate(env.spec.cost)
    ]
    limits = [channel.limit for channel in env.spec.cost]
    over = bool(np.any(shares[0] > shares[1] + MARGIN)) or bool(np.any(np.greater(means, limits)))
    error = spread / np.sqrt(len(gains))
    return {"gain": gain, "error": float(error), "skew": skew, "over": over}


def kind_of(pair: dict[str, Any]) -> str:
    """What the episodes that were not judged say of a pair."""
    if pair["over"]:
        return "over a limit"
    if pair["gain"] + 1.96 * pair["error"] < 0:
        return "worse"
    return "better" if pair["gain"] - 1.96 * pair["error"] > 0 else "not told apart"


def rows() -> list[dict[str, Any]]:
    """The plants so far."""
    return json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else []


def _missing(measured_plants: list[str]) -> str:
    """A sentence on the built-in plants that have no row; empty if all have one."""
    names = [name for name in environment_names() if name not in measured_plants]
    return f" Not run yet: {', '.join(names)}." * bool(names)


def page() -> str:
    """The table of the stored rows, with what it comes to in words."""
    plants = sorted(rows(), key=lambda row: row["plant"])
    kinds = ("worse", "over a limit", "not told apart", "better")
    lines = [
        "| Plant | Pairs | " + " | ".join(f"{kind}: verdicts, deploy" for kind in kinds) + " |",
        "|---" * (2 + len(kinds)) + "|",
    ]
    every: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for row in plants:
        cells = []
        for kind in kinds:
            some = [pair for pair in row["pairs"] if kind_of(pair) == kind]
            every[kind] += some
            cells.append(f"{sum(p['sets'] for p in some)}, {sum(p['deploy'] for p in some)}")
        lines.append(f"| {row['plant']} | {len(row['pairs'])} | {' | '.join(cells)} |")
    pairs = [pair for some in every.values() for pair in some]
    wrong = every["worse"] + every["over a limit"]
    judged, deployed = (sum(pair[key] for pair in wrong) for key in ("sets", "deploy"))
    skewed = sum(abs(pair["skew"]) > 1 for pair in pairs)
    words = (
        f"{len(pairs)} pairs on {len(plants)} {'plant' if len(plants) == 1 else 'plants'}, "
        f"{sum(p['sets'] for p in pairs)} verdicts on "
        f"{STARTS} starts each; in {skewed} pairs the paired differences have a skew beyond 1. Of "
        f"{judged} verdicts on candidates that are worse or over a limit, {deployed} were deploy "
        f"({100 * deployed / max(judged, 1):.1f} %).{_missing([row['plant'] for row in plants])}"
    )
    return "\n".join([words, "", *lines])


def main() -> int:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(environment_names()))
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    for name in () if options.page else options.names:
        if any(row["plant"] == name for row in rows()):
            continue
        try:
            row = measured(name)
        except InputError as error:  # a plant whose ordinary controller declares no numbers
            print(f"{name} is left out: {error}", flush=True)
            continue
        write_text(RESULT, json.dumps([*rows(), row], indent=1) + "\n")
        print(name, row["seconds"], flush=True)
    print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
