"""Learners under the cost limits of plants: episodes that break each limit, and what they earn.

Usage:
    python tools/studies/tables/limits/limits_table.py measure CSTR-v0     what is not there yet
    python tools/studies/tables/limits/limits_table.py table               the tables as Markdown

All learners get the same log of a plant (``mixed``, 20,000 rows), the same budget and the same
networks; nothing is tuned to a plant. Those that know no limits get the reward less the plant's
prices. A trained policy is judged on the same 200 starts without a guard, and so are the plant's
tunings, the first of which is today's controller. At five points of its training it is judged on
the first 40 of them. An episode that trips keeps no limit. Every point says whether the cost
critics have converged, as the report of a run would say it.

The results of one plant are one file, written after every seed. A seed that was trained for as many
updates stands; others are trained, so that a measurement that was cut short goes on. Seeds of a
shorter training stay beside them, in a row of their own, until all of the longer one are there.
"""

import argparse
import json
import os
import sys
import time
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
from neorl_train.judging import unconverged
from neorl_train.training import Plan, Watcher

sys.path.append(str(Path(__file__).resolve().parents[1]))

import plant_pages  # pyright: ignore[reportMissingImports]
from cell_table import made_on  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "tools/studies/benchmarks/results/limits"
FOLDER = ROOT / "docs/pages/results"  # where the build puts docs/results
BUDGET = {
    "quality": "mixed", "rows": 20_000, "hidden": [64, 64], "batch_size": 128, "episodes": 200,
}  # fmt: skip
UPDATES, INTERVAL = 60_000, 10_000
EPISODES_OF_POINTS = 40
"""Fewer than at the end: judging SteelAnnealing's furnace would take longer than training."""
SEEDS, LEVEL = 5, 0.95
SLOW = ("cdt",)
"""Measured last: a transformer takes more than an hour of a core for a seed, the others minutes."""
PLAIN = ("bc", "td3_bc", "iql")
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
    parser.add_argument("--updates", type=int, default=UPDATES, help=f"updates ({UPDATES:,})")
    args = parser.parse_args()
    if args.what == "measure":
        keep_compiled_programs(cache_directory())
        for plant in args.plants:
            measure(plant, args.learners, args.seeds, args.updates)
    else:
        print(page())


def measure(plant: str, learners: list[str], seeds: int, updates: int) -> None:
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
    for name in learners or sorted((*PLAIN, *SAFE), key=lambda name: name in SLOW):
        known = results["learners"].get(name, {})
        if "failure" in known:
            continue
        stand = of_length(known, updates)
        others = [seed for seed in known.get("seeds", []) if seed not in stand]
        for seed in range(len(stand), seeds):
            started_at = time.process_time()
            cell = trained(env, data, name, seed, updates)
            if "points" in cell:
                stand = [*stand, cell]
                whole = updates == UPDATES and len(stand) >= SEEDS
                cell = {"seeds": stand if whole else [*others, *stand]}
            # Others may have written meanwhile.
            results = json.loads(path.read_text())
            results["learners"][name] = cell
            store(path, results)
            spent = time.process_time() - started_at
            print(f"{plant} {name} {seed}: {spent:.0f} s of processor", flush=True)
            if "failure" in cell:
                break


def of_length(cell: dict[str, Any], updates: int) -> list[dict[str, Any]]:
    """The seeds of a cell that were trained for so many updates."""
    return [seed for seed in cell.get("seeds", []) if seed["points"][-1]["updates"] == updates]


def store(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)


def trained(env: Any, data: Any, name: str, seed: int, updates: int) -> dict[str, Any]:
    """The points of one training, with the device that it ran on, or the refusal of the log."""
    settings = {"hidden": tuple(BUDGET["hidden"]), "batch_size": BUDGET["batch_size"]}
    learner = sized(ALGORITHMS[name](), **settings)
    watcher, points = Chunks(name, seed), []
    interval = min(INTERVAL, updates // 4)

    def judge(policy: Any) -> dict[str, Any]:
        made = interval * (len(points) + 1)
        episodes = BUDGET["episodes"] if made == updates else EPISODES_OF_POINTS
        points.append({"updates": made} | judged(env, policy, episodes))
        return {}

    plan = Plan(updates, 1_000, interval)
    try:
        train(learner, data, (seed,), plan, watcher=watcher, validate=judge)
    except InputError as error:
        return {"failure": str(error)}
    points = [point | watcher.of_critics(learner, point["updates"]) for point in points]
    return {"points": points, "processor_s": watcher.processor_seconds()} | made_on()


class Chunks(Watcher):
    """The metrics of one training, chunk by chunk, as a run records them."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self.lines: list[dict[str, Any]] = []
        self.started_at = time.process_time()

    def running(self) -> None:
        """The program is compiled; time counts from here."""
        self.started_at = time.process_time()

    def chunk(self, step: int, metrics: list[dict[str, float]]) -> None:
        """Keeps the metrics of the one seed."""
        line = {"kind": "chunk", "algorithm": self.name, "seed": self.seed, "step": step}
        self.lines.append(line | {"metrics": metrics[0]})

    def processor_seconds(self) -> float:
        """Spent by training and judging together, without the compilation of the training."""
        return round(time.process_time() - self.started_at, 1)

    def of_critics(self, learner: Any, updates: int) -> dict[str, Any]:
        """Mean and convergence of the cost critics after so many updates; nothing without them."""
        lines = [line for line in self.lines if line["step"] <= updates]
        if "cost_q" not in lines[-1]["metrics"]:
            return {}
        names = ("tau", "discount", "policy_delay")
        settings = {name: getattr(learner, name) for name in names if hasattr(learner, name)}
        late = unconverged(lines, {self.name: settings})
        mean = float(f"{lines[-1]['metrics']['cost_q']:.6g}")
        return {"cost_q": mean, "converged": not late}


def judged(env: Any, policy: Any, count: int = BUDGET["episodes"]) -> dict[str, Any]:
    """Shares of episodes over each limit and with a trip, and the mean return."""
    starts = jax.random.split(jax.random.key(1), BUDGET["episodes"])[:count]
    episodes = score_episodes(env, policy, starts)
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
        f"| | updates | {' | '.join(heads)} | over any | over any, minus `bc` [{LEVEL:.0%}] | trips | "
        "return | return minus penalties |",
    ]
    lines.append("|---" * (len(heads) + 7) + "|")
    log = results["log"]
    lines.append(row(f"the log ({log['episodes']} episodes)", [log], updates=""))
    today = next(iter(results["controllers"]))
    for name in dict.fromkeys((today, results["reference"])):
        lines.append(row(f"controller {name}", [results["controllers"][name]], updates=""))
    refused: dict[str, list[str]] = {}  # the reason, without the name of the class
    for name in (*PLAIN, *SAFE):
        cell = results["learners"].get(name)
        if cell is None:
            continue
        if "failure" in cell:
            refused.setdefault(cell["failure"].partition(" ")[2], []).append(f"`{name}`")
        else:
            for updates in sorted({seed["points"][-1]["updates"] for seed in cell["seeds"]}):
                last = [seed["points"][-1] for seed in of_length(cell, updates)]
                cloning = None
                if name != "bc":
                    cloned = of_length(results["learners"].get("bc", {}), updates)
                    cloning = [seed["points"][-1] for seed in cloned]
                title = f"`{name}`{of_seeds(last)}"
                lines.append(row(title, last, cloning, converged(last)))
    lines += curves(results["learners"])
    for reason, names in refused.items():
        lines += ["", f"The log is refused by {', '.join(names)}, each of which {reason}."]
    return "\n".join(lines)


def of_seeds(seeds: list[dict[str, Any]]) -> str:
    return "" if len(seeds) >= SEEDS else f", {len(seeds)} of {SEEDS} seeds"


def converged(points: list[dict[str, Any]]) -> str:
    """The number of updates, and in how many seeds the cost critics have converged."""
    updates = f"{min(point['updates'] for point in points):,}"
    known = [point["converged"] for point in points if "converged" in point]
    return f"{updates}, {sum(known)} of {len(known)} converged" if known else updates


def curves(learners: dict[str, Any]) -> list[str]:
    """The share of episodes over any limit, and the return minus penalties, over the training."""
    whole = {name: of_length(cell, UPDATES) for name, cell in learners.items()}
    whole = {name: seeds for name, seeds in whole.items() if seeds}
    if not whole:
        return []
    at = range(INTERVAL, UPDATES + 1, INTERVAL)
    lines = [
        "",
        f"| Over any / return minus penalties after | {' | '.join(f'{n:,}' for n in at)} |",
    ]
    lines.append("|---" * (len(at) + 1) + "|")
    for name in (n for n in (*PLAIN, *SAFE) if n in whole):
        words = []
        for points in zip(*(seed["points"] for seed in whole[name]), strict=True):
            over, score = (np.mean([p[key] for p in points]) for key in ("over_any", "score"))
            words.append(f"{over:.0%} / {score:.4g}")
        lines.append(f"| `{name}`{of_seeds(whole[name])} | {' | '.join(words)} |")
    return lines


def row(
    name: str,
    cells: list[dict[str, Any]],
    cloning: list[dict[str, Any]] | None = None,
    updates: str | None = None,
) -> str:
    """One line of a table; ``updates`` is the second column where there is one."""
    shares = [*np.mean([cell["over"] for cell in cells], axis=0)]
    shares.append(np.mean([cell["over_any"] for cell in cells]))
    trips = f"{np.mean([cell['trips'] for cell in cells]):.0%}" if "trips" in cells[0] else ""
    numbers = []
    for which in ("return", "score"):
        values = np.array([cell[which] for cell in cells])
        spread = f" ± {values.std(ddof=1):.3g}" if len(cells) > 1 else ""
        numbers.append(f"{values.mean():.4g}{spread}")
    words = [f"{share:.0%}" for share in shares]
    first = [name] if updates is None else [name, updates]
    return f"| {' | '.join([*first, *words, compared(cells, cloning), trips, *numbers])} |"


def compared(cells: list[dict[str, Any]], cloning: list[dict[str, Any]] | None) -> str:
    """The difference of *over any* to behaviour cloning, paired by seed, for fresh seeds."""
    if cloning is None or len(cells) != len(cloning) or len(cells) < 2:
        return ""
    pairs = zip(cells, cloning, strict=True)
    differences = [100 * (one["over_any"] - other["over_any"]) for one, other in pairs]
    interval = student_interval(jnp.asarray(differences), level=LEVEL)
    return f"{interval.estimate:+.0f} points [{interval.low:+.0f}, {interval.high:+.0f}]"


def shares() -> str:
    """Shares of episodes over any limit at the end of whole trainings, plant by plant."""
    columns: dict[str, dict[str, str]] = {}
    for path in _stored():
        results = json.loads(path.read_text())
        ends = {
            f"`{name}`": [seed["points"][-1]["over_any"] for seed in seeds]
            for name, cell in results["learners"].items()
            if len(seeds := of_length(cell, UPDATES)) >= SEEDS
        }
        if len(ends) > len(PLAIN):
            best = results["controllers"][results["reference"]]
            ends |= {"the log": results["log"]["over_any"], "the best controller": best["over_any"]}
            columns[path.stem] = {name: f"{np.mean(share):.0%}" for name, share in ends.items()}
    names = ["the log", "the best controller", *(f"`{name}`" for name in (*PLAIN, *SAFE))]
    names = [name for name in names if any(name in column for column in columns.values())]
    return "\n".join(
        [
            f"| | {' | '.join(plant.removesuffix('-v0') for plant in columns)} |",
            "|---" * (len(columns) + 1) + "|",
            *(
                f"| {name} | {' | '.join(column.get(name, '') for column in columns.values())} |"
                for name in names
            ),
        ]
    )


def page() -> str:
    """The shares of all plants, their tables, and which learners are not in them."""
    parts = [f"## {path.stem.removesuffix('-v0')}\n\n{table(path)}" for path in _stored()]
    parts = [shares(), *parts]
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
