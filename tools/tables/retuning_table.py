"""Look for something better than the controllers of every plant in its log, and judge it there.

Usage:
    python tools/tables/retuning_table.py [NAME ...] [--seeds 0 1 2]   what has no result yet
    python tools/tables/retuning_table.py --alone [...]                logs of the ordinary alone
    python tools/tables/retuning_table.py --page                       write the page alone

Every seed has a log of its own (120,000 steps, of all controllers with their operators, or of the
ordinary one and its operators alone), a model, a search and a network; the settings are the same
for all plants. Three ways are judged: the controller retuned, a network on top of the controller as
it was, and the pick: whichever of these two, and of a network on top of the retuned one, has the
largest lower bound without the plant. What is chosen runs in 1,000 episodes of the plant that
nothing has seen, behind its guard, paired with the controller as it was, and is judged by the rule
of the verdict. Of references the pick alone is judged.
Results: tools/baselines/retuning/NAME.json, a list with a row for each seed, log, controller, way.
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
from cell_table import made_on
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
RULE = 2
"""Number of the rule that a row was made by; rows of an older one are made anew."""
RETUNED, NETWORK, BOTH, PICK = "retuned", "network", "retuned and network", "pick"
LOGS = ("all controllers", "the ordinary controller alone")
KINDS = (
    (LOGS[1], False, RETUNED),
    (LOGS[0], False, RETUNED),
    (LOGS[0], False, NETWORK),
    (LOGS[0], False, PICK),
    (LOGS[0], True, PICK),
)
HEADS = (
    "The ordinary, own log: retuned",
    "The ordinary, log of all: retuned",
    "network",
    "pick",
    "The reference, log of all: pick",
)
WORDS = (
    "retuned ordinary controllers from their own logs",
    "retuned ordinary controllers from logs of all",
    "networks on top of ordinary controllers from logs of all",
    "picks for ordinary controllers from logs of all",
    "picks for references",
)


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
    """A line for each plant: answers of the seeds and their gains, for every way."""
    lines = [f"| Plant | {' | '.join(f'{head} | Gain' for head in HEADS)} |"]
    lines.append("|---" * (1 + 2 * len(HEADS)) + "|")
    for name, rows in results.items():
        cells = []
        for kind in KINDS:
            some = [row for row in rows if _kind(row) == kind]
            answers = [answer(row) for row in some]
            words = [f"{answers.count(w)} {w}" for w in dict.fromkeys(answers)]
            gains = ", ".join(f"{row['gain'][0]:+.3g}" for row in some)
            cells += [", ".join(words) or "-", gains or "-"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _kind(row: dict[str, Any]) -> tuple[str, bool, str]:
    return row["log"], row["reference"], row["way"]


def counted(results: dict[str, list[dict[str, Any]]]) -> str:
    """The counts over all plants and seeds, one sentence a way."""
    every = [row for rows in results.values() for row in rows]
    lines = []
    for kind, word in zip(KINDS, WORDS, strict=True):
        answers = [answer(row) for row in every if _kind(row) == kind]
        lines.append(
            f"- Of {len(answers)} {word} {answers.count('deploy')} were deployed, "
            f"{answers.count('kept')} kept, {answers.count('no')} changed without a sure gain, and "
            f"{answers.count('harm')} made worse or taken over a limit."
        )
    lines = [line for line in lines if not line.startswith("- Of 0 ")]
    times = [sum(row["seconds"]) for row in every]
    time_words = f"Model, search and networks together took {np.median(times):.0f} s in the median "
    return "\n".join(lines) + f"\n\n{time_words}and {max(times):.0f} s at most."


GOALS = (
    ("picks for ordinary controllers from logs of all", (LOGS[0], False, PICK), 9),
    ("picks for ordinary controllers from their own logs", (LOGS[1], False, PICK), 8),
    ("picks for references from logs of all", (LOGS[0], True, PICK), 3),
    ("networks on top of ordinary controllers", (LOGS[0], False, NETWORK), 8),
)
MOST_HARM = 2
"""Of 55 picks for ordinary controllers, five logs of each plant."""
MOST_ERROR = 0.1


def goals(results: dict[str, list[dict[str, Any]]]) -> str:
    """A line for each goal, with the number of plants and logs that were measured."""
    lines = ["| Goal, with five logs of each plant | Measured |", "|---|---|"]
    for words, kind, goal in GOALS:
        of_plants = [
            [answer(row) for row in rows if _kind(row) == kind] for rows in results.values()
        ]
        of_plants = [answers for answers in of_plants if answers]
        enough = sum(5 * answers.count("deploy") >= 4 * len(answers) for answers in of_plants)
        lines.append(
            f"| {words}: *deploy* in four of five logs on {goal} of 11 plants | on {enough} of "
            f"{len(of_plants)} plants; logs in all: {sum(map(len, of_plants))} |"
        )
    errors = {name: model_error(name, rows) for name, rows in results.items()}
    errors = {name: error for name, error in errors.items() if error is not None}
    close = [name for name, error in errors.items() if error <= MOST_ERROR]
    lines.append(
        f"| the model's error across the controllers of the log is at most {MOST_ERROR:.0%} of the "
        f"difference between ordinary controller and reference on 7 of 11 plants | on {len(close)} "
        f"of {len(errors)} plants; {min(errors.values()):.0%} to {max(errors.values()):.0%} |"
    )
    picks = [row for rows in results.values() for row in rows if _kind(row) == GOALS[0][1]]
    harm = [answer(row) for row in picks].count("harm")
    lines.append(
        f"| at most {MOST_HARM} of 55 picks for ordinary controllers do harm | {harm} of "
        f"{len(picks)} |"
    )
    return "\n".join(lines)


def model_error(name: str, rows: list[dict[str, Any]]) -> float | None:
    """The mean error of the models of a plant, as a share of what its controllers differ by.

    ``None`` where the picks of one controller are not there.
    """
    stored_rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    returns = {row["policy"]: row["return"] for row in stored_rows}
    known = [row for row in rows if _kind(row)[::2] == (LOGS[0], PICK)]
    own = [returns[row["controller"]] for row in known]
    errors = [row["error"] for row in known if not row["reference"]]
    return float(np.mean(errors)) / (max(own) - min(own)) if len(set(own)) == 2 else None


def write_page() -> None:
    """Writes the table of today's rule and the counts of both rules between the page's markers."""
    every = {name: stored(name) for name in environment_names() if stored(name)}
    today, older = (
        {name: some for name, rows in every.items() if (some := [r for r in rows if of(r)])}
        for of in (lambda row: row.get("rule") == RULE, lambda row: row.get("rule") != RULE)
    )
    blocks = [counted(today), goals(today), table(today)]
    if older:
        blocks += ["By the earlier rule, from other logs:", counted(older)]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    write_text(PAGE, before + "\n\n".join([BEGIN, *blocks, END]) + after)


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
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
