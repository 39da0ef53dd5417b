"""Learners under the cost limits of plants: episodes that break each limit, and what they earn.

Usage:
    python tools/studies/tables/limits/limits_table.py measure CSTR-v0     what is not there yet
    python tools/studies/tables/limits/limits_table.py table               the tables as Markdown

All learners get the same log of a plant (``mixed``, 20,000 rows), the same small budget and the
same networks; nothing is tuned to a plant. Those that know no limits get the reward less the
plant's prices. Every policy is judged on the same 200 starts without a guard, and so are the
plant's tunings, the first of which is today's controller. An episode that trips keeps no limit. The
results of one plant are one file; a learner that stands in it with all its seeds is left out, and
seeds that are missing are added, so that a measurement that was cut short goes on.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import ALGORITHMS
from neorl_agents.learning import episode_costs
from neorl_agents.testing import sized
from neorl_core import InputError
from neorl_core.costs import limit_kind
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory
from neorl_core.statistics import student_interval
from neorl_envs import collect_log, environment_names, make
from neorl_envs.recording import quality
from neorl_envs.scoring import score_episodes, scores, within_limits
from neorl_train import train
from neorl_train.data import training_data
from neorl_train.training import Plan

sys.path.append(str(Path(__file__).resolve().parents[1]))

import plant_pages  # pyright: ignore[reportMissingImports]
from cell_table import made_on  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "tools/studies/benchmarks/results/limits"
FOLDER = ROOT / "docs/pages/results"  # where the build puts docs/results
BUDGET = {
    "quality": "mixed", "rows": 20_000, "updates": 5_000, "hidden": [64, 64], "batch_size": 128,
    "episodes": 200,
}  # fmt: skip
SEEDS, LEVEL = 5, 0.95
PLAIN = ("bc", "td3_bc", "iql")
# With targets that follow ten times as fast, so that values are there after so few updates.
FAST = {f"{name}, tau 0.05": name for name in ("iql", "td3_bc_lag", "iql_lag", "bcq_lag")}
SAFE = tuple(
    name for name, kind in ALGORITHMS.items() if kind.keeps_limits and not kind.needs_rollouts
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "table"))
    parser.add_argument("plants", nargs="*", help="plants to measure, such as CSTR-v0")
    parser.add_argument("--learners", nargs="*", default=[], help="these alone")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"number of seeds ({SEEDS})")
    args = parser.parse_args()
    if args.what == "measure":
        keep_compiled_programs(cache_directory())
        for plant in args.plants:
            measure(plant, args.learners, args.seeds)
    else:
        print(page())


def measure(plant: str, learners: list[str], seeds: int) -> None:
    """Trains and judges what the plant's file does not hold yet."""
    env, path = make(plant), RESULTS / f"{plant}.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if results and results["budget"] != BUDGET:
        raise SystemExit(f"{path} is of another budget; move it away")
    policies, plan = quality(env, BUDGET["quality"])
    log = collect_log(env, policies, n_steps=BUDGET["rows"], key=jax.random.key(0), plan=plan)
    prices = env.penalty_weights()
    prices = [prices.get(cost.name, 0.0) for cost in log.spec.cost]
    data = training_data(log, penalty_weights=prices)
    if not results:
        limits = [limit_kind(c).limit_words(c.limit, c.unit) for c in env.spec.cost]
        results = {"budget": BUDGET, "costs": [c.name for c in env.spec.cost], "limits": limits}
        results |= {"log": of_log(data, prices), "learners": {}}
        tunings = {name: judged(env, policy) for name, policy in env.tunings().items()}
        results |= {"controllers": tunings, "reference": env.reference}
        store(path, results)
    for name in learners or (*PLAIN, *SAFE, *FAST):
        known = json.loads(path.read_text())["learners"].get(name, {"seeds": []})
        missing = range(len(known.get("seeds", range(seeds))), seeds)
        if missing:
            started_at = time.monotonic()
            cell = trained(env, data, name, missing)
            if "seeds" in cell:
                cell["seeds"] = known["seeds"] + cell["seeds"]
            # Others may have written meanwhile.
            results = json.loads(path.read_text())
            results["learners"][name] = cell
            store(path, results)
            print(f"{plant} {name}: {time.monotonic() - started_at:.0f} s", flush=True)


def store(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)


def trained(env: Any, data: Any, name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Every seed judged, with the device that it was trained on, or the refusal of the log."""
    settings = {"hidden": tuple(BUDGET["hidden"]), "batch_size": BUDGET["batch_size"]}
    if name in FAST:
        settings["tau"] = 0.05
    learner = sized(ALGORITHMS[FAST.get(name, name)](), **settings)
    updates = BUDGET["updates"]
    try:
        done = train(learner, data, tuple(seeds), Plan(updates, 500, updates))
    except InputError as error:
        return {"failure": str(error)}
    return {"seeds": [judged(env, policy) | made_on() for policy in done.policies]}


def judged(env: Any, policy: Any) -> dict[str, Any]:
    """Shares of episodes over each limit and with a trip, and the mean return."""
    episodes = score_episodes(env, policy, jax.random.split(jax.random.key(1), BUDGET["episodes"]))
    over = ~within_limits(env, episodes)
    return {
        **shares_over(over),
        "return": float(f"{np.mean(np.asarray(episodes.total)):.6g}"),
        "score": float(f"{scores(env, episodes).mean():.6g}"),
        "trips": float(np.mean(np.asarray(episodes.trip))),
    }


def shares_over(over: np.ndarray) -> dict[str, Any]:
    return {"over": over.mean(0).tolist(), "over_any": float(over.any(1).mean())}


def of_log(data: Any, prices: list[float]) -> dict[str, Any]:
    """The same of the logged episodes."""
    episode, quantities = episode_costs(data.spec, data.rows)
    over = np.stack(
        [limit_kind(c).exceeded(quantities[:, i], c.limit) for i, c in enumerate(data.spec.cost)], 1
    )
    reward = np.asarray(data.rows.reward, np.float64)
    paid = np.asarray(data.rows.cost, np.float64) @ np.asarray(prices)
    returns, score = (np.bincount(episode, weights=x).mean() for x in (reward, reward - paid))
    return {
        **shares_over(over),
        "return": float(f"{returns:.6g}"),
        "score": float(f"{score:.6g}"),
        "episodes": len(quantities),
    }


def table(path: Path) -> str:
    """One plant: the log, today's controller, the learners."""
    results = json.loads(path.read_text())
    env = make(path.stem)
    heads = [
        f"over {channel.name} ({limit}{', no unit' if channel.unit == '1' else ''})"
        for channel, limit in zip(env.spec.cost, results["limits"], strict=True)
    ]
    plant_page = os.path.relpath(plant_pages.page_of(path.stem), FOLDER)
    lines = [
        f"[The plant]({plant_page}); unit of returns: {env.reward_unit}",
        "",
        f"| | {' | '.join(heads)} | over any | over any, minus `bc` [{LEVEL:.0%}] | trips | "
        "return | return minus penalties |",
    ]
    lines.append("|---" * (len(heads) + 6) + "|")
    log = results["log"]
    lines.append(row(f"the log ({log['episodes']} episodes)", [log]))
    today = next(iter(results["controllers"]))
    for name in dict.fromkeys((today, results["reference"])):
        lines.append(row(f"controller {name}", [results["controllers"][name]]))
    refused: dict[str, list[str]] = {}  # the reason, without the name of the class
    for name in (*PLAIN, *SAFE, *FAST):
        cell = results["learners"].get(name)
        if cell is None:
            continue
        if "failure" in cell:
            refused.setdefault(cell["failure"].partition(" ")[2], []).append(f"`{name}`")
        else:
            cloning = None if name == "bc" else results["learners"].get("bc")
            count = len(cell["seeds"])
            title = f"`{name}`" if count >= SEEDS else f"`{name}`, {count} of {SEEDS} seeds"
            lines.append(row(title, cell["seeds"], cloning and cloning["seeds"]))
    for reason, names in refused.items():
        lines += ["", f"The log is refused by {', '.join(names)}, each of which {reason}."]
    return "\n".join(lines)


def row(name: str, cells: list[dict[str, Any]], cloning: list[dict[str, Any]] | None = None) -> str:
    shares = [*np.mean([cell["over"] for cell in cells], axis=0)]
    shares.append(np.mean([cell["over_any"] for cell in cells]))
    trips = f"{np.mean([cell['trips'] for cell in cells]):.0%}" if "trips" in cells[0] else ""
    numbers = []
    for which in ("return", "score"):
        values = np.array([cell[which] for cell in cells])
        spread = f" ± {values.std(ddof=1):.3g}" if len(cells) > 1 else ""
        numbers.append(f"{values.mean():.4g}{spread}")
    words = [f"{share:.0%}" for share in shares]
    return f"| {' | '.join([name, *words, compared(cells, cloning), trips, *numbers])} |"


def compared(cells: list[dict[str, Any]], cloning: list[dict[str, Any]] | None) -> str:
    """The difference of *over any* to behaviour cloning, paired by seed, for fresh seeds."""
    if cloning is None or len(cells) != len(cloning):
        return ""
    pairs = zip(cells, cloning, strict=True)
    differences = [100 * (one["over_any"] - other["over_any"]) for one, other in pairs]
    interval = student_interval(jnp.asarray(differences), level=LEVEL)
    return f"{interval.estimate:+.0f} points [{interval.low:+.0f}, {interval.high:+.0f}]"


def page() -> str:
    """The tables of all plants, and which learners are not in them."""
    parts = [f"## {path.stem.removesuffix('-v0')}\n\n{table(path)}" for path in _stored()]
    left = [f"`{name}`: {', '.join(plants)}" for name in SAFE if (plants := unmeasured(name))]
    note = f"Plants with cost limits on which a learner has not been measured: {'; '.join(left)}."
    return "\n\n".join([*parts, *([note] if left else [])])


def _stored() -> list[Path]:
    return sorted(RESULTS.glob("*.json"))


def unmeasured(name: str) -> list[str]:
    """The plants with cost limits that have no results of a learner."""
    return [
        plant.removesuffix("-v0")
        for plant in sorted(environment_names())
        if make(plant).spec.cost and name not in measured_learners(plant)
    ]


def measured_learners(plant: str) -> set[str]:
    """The learners that the file of a plant has, also those that refused its log."""
    path = RESULTS / f"{plant}.json"
    return set(json.loads(path.read_text())["learners"]) if path.is_file() else set()


if __name__ == "__main__":
    main()
