"""How long a log must be before *worth a trial* is worth anything: retuning from growing logs.

Usage:
    python tools/studies/tables/choice/log_lengths.py [PLANT ...] [--lengths 40]   what is missing
    python tools/studies/tables/choice/log_lengths.py --page                       print the table

Today's controller is the plant's ordinary one, and its own log is cut after 10, 20, 40, ...
episodes, so a longer log of a seed begins with the shorter one. Each part goes through the steps of
a run on a log that declares its loop: plant model, search of the parameters, choice, and the verdict of a log
alone with the clauses model, return, costs, support, agreement of the linear part, excitation and
the choice rule. The model has a third of the updates of a run and the search two thirds of the
generations, and no fitted Q evaluation is asked, which can only refuse. A proposal runs in 512 new
episodes of the plant, paired with today's controller: the true gain.
Result: tools/studies/baselines/choice/log_lengths.json, a row for each plant, seed and length.
"""

import argparse
import functools
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    TODAY,
    PlantFacts,
    RetuneSettings,
    SearchSettings,
    learned_plants,
    replayed,
    retune,
)
from neorl_core import InputError, Policy
from neorl_core.infrastructure import write_text
from neorl_envs import collect_log, make
from neorl_train.judging import (
    LogPrediction,
    ResultTables,
    episodes_of,
    join_episodes,
    rollouts_in_chunks,
    trial_verdict,
)

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/log_lengths.json"
LENGTHS = {
    "CSTR-v0": (10, 20, 40, 80, 160, 320),
    "DMSD-v0": (10, 20, 40, 80, 160, 320),
    "ChemicalReactor-v0": (10, 20, 40, 80, 160),
}
SETTINGS = RetuneSettings(
    model=HistoryModelSettings(updates=1_000), search=SearchSettings(generations=8)
)
STARTS, AT_ONCE, KEY, LEVEL = 512, 256, 781, 0.95


@functools.cache
def longest_log(name: str, seed: int) -> Any:
    """The log of a seed that all lengths are cut from, recorded by the ordinary controller."""
    env = make(name)
    ordinary, today = next(iter(env.tunings().items()))
    steps = max(LENGTHS[name]) * env.spec.horizon
    return collect_log(env, {ordinary: today}, n_steps=steps, key=jax.random.key(seed))


def first_rows(rows: Any, count: int) -> Any:
    """The first rows of a log."""
    return jax.tree.map(lambda column: column[:count], rows)


def measured(name: str, length: int, seed: int) -> dict[str, Any]:
    """One part of one log: the answer, the predicted gain and the true one."""
    env, begun = make(name), time.process_time()
    ordinary, today = next(iter(env.tunings().items()))
    log = longest_log(name, seed)
    ends = np.append(log.episode_starts, len(log.transitions.reward))
    rows = first_rows(log.transitions, int(ends[length]))
    facts = PlantFacts(env.action_rates(), env.exogenous, env.interlock, env.objective)
    row: dict[str, Any] = {"plant": name, "seed": seed, "episodes": length}
    row["rows"] = len(rows.reward)
    try:
        plants = learned_plants(rows, env.spec, seed, facts, SETTINGS)
    except InputError as error:
        return row | {"answer": "refused", "why": str(error), "gain": 0.0, "low": 0.0, "true": None}
    own = np.ones(len(plants.logged), bool)
    plants = plants._replace(by_incumbent=own).with_model_error(today)
    done = retune(plants, today, seed, SETTINGS)
    prediction = {one.name: one for one in done.table}[done.chosen]
    forecast = LogPrediction(
        prediction,
        ordinary,
        float(np.asarray(replayed(plants.evaluation_plant, today).returns)[:-1].mean()),
        float(plants.logged.mean()),
        plants.scale,
        SETTINGS.rule,
        excitation=plants.excitation,
    )
    tables = ResultTables(
        environment="",
        reason="",
        spec=env.spec,
        reward_unit=env.reward_unit,
        level=LEVEL,
        n_starts=0,
        candidate=done.chosen,
        reference=ordinary,
        rows=(),
        pooled=(),
        episode_margin=0.05,
    )
    decided = trial_verdict(tables, forecast)
    kept = done.chosen == TODAY
    return row | {
        "answer": "keep" if kept else decided.answer,
        "failed": [] if kept else [one.name for one in decided.clauses if not one.holds],
        "gain": prediction.gain,
        "low": prediction.low,
        "true": None if kept else true_gain(env, today, done.policy),
        "seconds": round(time.process_time() - begun, 1),
    }


def true_gain(env: Any, today: Policy, proposed: Policy) -> list[float]:
    """Mean paired gain on the plant, and the ends of its 95 % interval."""
    returns = []
    for policy in (today, proposed):
        acting = jax.tree.map(jnp.asarray, policy)
        chunks = rollouts_in_chunks(
            env, acting, jax.random.key(KEY), np.arange(STARTS), at_once=AT_ONCE
        )
        episodes = join_episodes([episodes_of(one, env.spec) for one in chunks])
        returns.append(np.asarray(episodes.returns, np.float64))
    gains = returns[1] - returns[0]
    reach = 1.96 * float(gains.std(ddof=1)) / np.sqrt(STARTS)
    return [float(gains.mean()), float(gains.mean() - reach), float(gains.mean() + reach)]


def stored() -> list[dict[str, Any]]:
    """The rows so far."""
    return json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else []


def kind(row: dict[str, Any]) -> str:
    """What came of one log: a trial with a sure gain, without one, or none."""
    if row["answer"] != "worth a trial":
        return "no trial"
    return "gain" if row["true"][1] > 0 else "no gain"


Rows = list[dict[str, Any]]


def groups() -> dict[str, dict[int, Rows]]:
    """The stored rows by plant and length."""
    found: dict[str, dict[int, Rows]] = {}
    for row in stored():
        found.setdefault(row["plant"], {}).setdefault(row["episodes"], []).append(row)
    return found


def inside(row: dict[str, Any]) -> bool:
    """Whether the true gain is in the interval of the predicted one, up to its own chance."""
    chance = row["true"][2] - row["true"][0]
    return abs(row["true"][0] - row["gain"]) <= row["gain"] - row["low"] + chance


def curve() -> dict[str, dict[int, tuple[int, int, str]]]:
    """By plant and length how many logs ended in a trial with a true gain, and of how many."""
    points = {}
    for plant, by_length in groups().items():
        points[plant.removesuffix("-v0")] = {
            length: (
                sum(kind(row) == "gain" for row in rows),
                len(rows),
                ", ".join(f"{kind(row)}" for row in rows),
            )
            for length, rows in sorted(by_length.items())
        }
    return points


def page() -> str:
    """The table of the stored rows."""
    lines = [
        "| Plant | Episodes | Rows | Duration | Logs | Worth a trial | of these with a true gain "
        "| of these inside the interval | Mean true gain of a trial |",
        "|---" * 9 + "|",
    ]
    for plant, by_length in groups().items():
        spec = make(plant).spec
        for length, rows in sorted(by_length.items()):
            trials = [row for row in rows if row["answer"] == "worth a trial"]
            gains = sum(kind(row) == "gain" for row in trials)
            mean = f"{np.mean([row['true'][0] for row in trials]):.3g}" if trials else ""
            hours = rows[0]["rows"] * spec.dt / 3600
            duration = f"{hours / 24:.3g} days" if hours >= 24 else f"{hours:.3g} h"
            cells = (plant.removesuffix("-v0"), length, f"{rows[0]['rows']:,}", duration, len(rows))
            of = (len(trials), gains, sum(map(inside, trials)), mean)
            lines.append(f"| {' | '.join(map(str, (*cells, *of)))} |")
    return "\n".join(lines)


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plants", nargs="*", default=list(LENGTHS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--lengths", nargs="+", type=int, help="episodes; all by default")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    for name in () if arguments.page else arguments.plants:
        for length in arguments.lengths or LENGTHS[name]:
            for seed in arguments.seeds:
                key = {"plant": name, "episodes": length, "seed": seed}
                if any(key.items() <= row.items() for row in stored()):
                    continue
                row = measured(name, length, seed)
                print(json.dumps(row), flush=True)
                # Read again, because another process may have added rows.
                rows = {tuple(one[k] for k in key): one for one in [*stored(), row]}
                ordered = [rows[found] for found in sorted(rows)]
                write_text(RESULT, json.dumps(ordered, indent=1) + "\n")
            jax.clear_caches()  # programs of one length are no use to the next
    print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
