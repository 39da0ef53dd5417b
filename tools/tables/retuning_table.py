"""Retune the ordinary controller and the reference of every plant from its log, and judge them.

Usage:
    python tools/tables/retuning_table.py [NAME ...] [--seeds 0 1 2]   what has no result yet
    python tools/tables/retuning_table.py --alone [...]                logs of the ordinary alone
    python tools/tables/retuning_table.py --page                       write the page alone

Every seed has a log of its own (120,000 steps, of all controllers with their operators, or of the
ordinary one and its operators alone), a model and a search; the settings are the same for all
plants. What is chosen without the plant runs in 1,000 episodes of the plant that nothing has seen,
behind its guard, paired with the controller as it was, and is judged by the rule of the verdict.
Results: tools/baselines/retuning/NAME.json, a list with a row for each seed, log and controller.
"""

import argparse
import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from baseline_table import RESULTS, ROOT
from neorl_agents.retuning import PlantFacts, Retuned, learned_plants, retune
from neorl_core import Policy
from neorl_core.infrastructure import write_text
from neorl_envs import collect_log, environment_names, make
from neorl_safety.guards import guard
from neorl_train import verdict
from neorl_train.evaluation._episodes import episodes_of, joined
from neorl_train.evaluation._rollout import rollouts_in_chunks
from neorl_train.evaluation._simulated import plant_constraints
from neorl_train.evaluation._summary import policy_rows
from neorl_train.results import PolicyResult, ResultTables

WHERE = RESULTS / "retuning"
PAGE = ROOT / "docs/pages/explanation/retuned-on-every-plant.md"
BEGIN, END = "<!-- retuning: python tools/tables/retuning_table.py --page -->", "<!-- end -->"
STEPS, STARTS, AT_ONCE, LEVEL, MARGIN = 120_000, 1_000, 250, 0.95, 0.05
KEY = 777
CANDIDATE = "retuned-0"
LOGS = ("all controllers", "the ordinary controller alone")
KINDS = ((LOGS[1], False), (LOGS[0], False), (LOGS[0], True))


def measured(name: str, seed: int, *, alone: bool) -> list[dict[str, Any]]:
    """The ordinary controller and the reference of one plant, retuned from one log."""
    env = make(name)
    tunings = env.tunings()
    ordinary = next(iter(tunings))
    acting = {ordinary: tunings[ordinary]} if alone else tunings
    log = collect_log(env, acting, n_steps=STEPS, key=jax.random.key(seed))
    facts = PlantFacts(env.action_rates(), env.exogenous, env.interlock, env.objective)
    begun = time.time()
    plants = learned_plants(log.transitions, env.spec, seed, facts)
    fitted = time.time() - begun
    rows = []
    for base in dict.fromkeys((ordinary, ordinary if alone else env.reference)):
        begun = time.time()
        done = retune(plants, tunings[base], seed)
        searched = time.time() - begun
        row = {"seed": seed, "log": LOGS[alone], "controller": base}
        row["reference"] = base == env.reference
        row |= {"seconds": [round(fitted, 1), round(searched, 1)], "chosen": done.chosen}
        row |= _predicted(done) | judged(env, base, tunings[base], done)
        rows.append(row)
        gain = row["gain"]
        print(f"{name} {seed} {base}: {done.chosen}, {gain[0]:.4g}, {row['failed']}", flush=True)
    return rows


def _predicted(done: Retuned) -> dict[str, Any]:
    taken = {one.name: one for one in done.table}[done.chosen]
    changes = [[c.name, c.before, c.after, c.unit] for c in done.changes]
    return {"predicted": taken.gain, "predicted_low": taken.low, "changes": changes}


def judged(env: Any, base: str, before: Policy, done: Retuned) -> dict[str, Any]:
    """The paired gain on the plant, and the clauses of the verdict that do not hold."""
    if done.chosen == done.table[0].name:
        return {"gain": [0.0, 0.0, 0.0], "over": [], "over_before": [], "failed": ["kept"]}
    acting = env.tunings()[env.reference]
    behind = guard(done.policy, plant_constraints(env), acting, env.spec)
    results = [
        PolicyResult(base, base, "classical", False, _episodes(env, before)),
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
    return joined([episodes_of(rows, env.spec) for rows in chunks])


def stored(name: str) -> list[dict[str, Any]]:
    """The rows of a plant so far."""
    path = WHERE / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else []


def answer(row: dict[str, Any]) -> str:
    """What became of one choice: deployed, kept, not deployed, or harm."""
    if row["failed"] == ["kept"]:
        return "kept"
    if not row["failed"]:
        return "deploy"
    return "harm" if row["gain"][2] < 0 or any(name != "return" for name in row["failed"]) else "no"


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """A line for each plant: answers of the seeds and their mean gain, for both controllers."""
    lines = [
        "| Plant | The ordinary, from its own log | Gain | The ordinary, from a log of all | Gain "
        "| The reference, from a log of all | Gain |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in results.items():
        cells = []
        for kind in KINDS:
            some = [row for row in rows if (row["log"], row["reference"]) == kind]
            answers = [answer(row) for row in some]
            words = [f"{answers.count(w)} {w}" for w in dict.fromkeys(answers)]
            gains = ", ".join(f"{row['gain'][0]:+.3g}" for row in some)
            cells += [", ".join(words) or "-", gains or "-"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def counted(results: dict[str, list[dict[str, Any]]]) -> str:
    """The counts over all plants and seeds in one sentence."""
    every = [row for rows in results.values() for row in rows]
    parts = []
    words = (
        "ordinary controllers from their own logs",
        "ordinary controllers from logs of all",
        "references",
    )
    for kind, word in zip(KINDS, words, strict=True):
        answers = [answer(row) for row in every if (row["log"], row["reference"]) == kind]
        parts.append(
            f"of {len(answers)} {word} {answers.count('deploy')} were deployed, "
            f"{answers.count('kept')} kept, {answers.count('no')} changed without a sure gain, and "
            f"{answers.count('harm')} made worse or taken over a limit"
        )
    times = [sum(row["seconds"]) for row in every]
    slowest = f"Model and search together took {np.median(times):.0f} s in the median and "
    return f"{'; '.join(parts).capitalize()}. {slowest}{max(times):.0f} s at most."


def write_page() -> None:
    """Writes the table and the counts between the markers of the page."""
    results = {name: stored(name) for name in environment_names() if stored(name)}
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    body = f"{BEGIN}\n\n{counted(results)}\n\n{table(results)}\n\n{END}"
    write_text(PAGE, before + body + after)


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if not given.page:
        WHERE.mkdir(exist_ok=True)
        for seed in given.seeds:
            for name in given.names or environment_names():
                rows = stored(name)
                there = {(row["seed"], row["log"]) for row in rows}
                if (seed, LOGS[given.alone]) in there:
                    continue
                rows += measured(name, seed, alone=given.alone)
                rows.sort(key=lambda row: (row["log"], row["seed"]))
                write_text(WHERE / f"{name}.json", json.dumps(rows, indent=1) + "\n")
                jax.clear_caches()  # programs of one plant are no use to the next
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
