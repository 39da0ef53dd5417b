"""PPO and REINFORCE on a plant with cost limits: costs ignored, the plant's penalties, multipliers.

Usage:
    python tools/studies/tables/limits/rollouts.py measure          what is not there yet
    python tools/studies/tables/limits/rollouts.py table            the table as Markdown

All train on the plant itself without a guard, for the same number of steps, with their defaults but
for what ``BUDGET`` says. Every policy is judged on the same 200 starts, and so are the plant's
tunings. A learner that stands in the file is left out, so that a measurement goes on.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from limits_table import judged, row, store

from neorl_agents import ALGORITHMS
from neorl_core.costs import limit_kind
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory
from neorl_envs import make
from neorl_train import train_online
from neorl_train.configuration import OnlineConfig
from neorl_train.training import Plan

RESULTS = Path(__file__).resolve().parents[4] / "tools/studies/benchmarks/results/limits/on_policy"
BUDGET = {
    "environments": 32, "rollout": 64, "updates": {"ppo": 200, "reinforce": 800},
    "learning_rate": 1e-3, "seeds": [0, 1, 2], "episodes": 200,
}  # fmt: skip
WAYS = ("free", "priced", "lag")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "table"))
    parser.add_argument("--plant", default="ChemicalReactor-v0", help="a plant with cost limits")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        keep_compiled_programs(cache_directory())
        measure(arguments.plant)
    print(table(arguments.plant))


def measure(plant: str) -> None:
    """Trains and judges what the file does not hold yet."""
    env, path = make(plant), RESULTS / f"{plant}.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if results and results["budget"] != BUDGET:
        raise SystemExit(f"{path} is of another budget; move it away")
    if not results:
        limits = [limit_kind(c).limit_words(c.limit, c.unit) for c in env.spec.cost]
        tunings = {name: judged(env, policy) for name, policy in env.tunings().items()}
        results = {"budget": BUDGET, "costs": [c.name for c in env.spec.cost], "limits": limits}
        results |= {"controllers": tunings, "learners": {}}
    for name in BUDGET["updates"]:
        for way in WAYS:
            if f"{name} {way}" not in results["learners"]:
                results["learners"][f"{name} {way}"] = trained(env, name, way)
                store(path, results)


def trained(env: Any, name: str, way: str) -> dict[str, Any]:
    """Every seed judged."""
    kind = ALGORITHMS[f"{name}_lag" if way == "lag" else name]
    rate = {} if name == "reinforce" else {"learning_rate": BUDGET["learning_rate"]}
    learner, updates = kind(rollout=BUDGET["rollout"], **rate), BUDGET["updates"][name]
    started_at = time.monotonic()
    done = train_online(
        learner,
        env,
        BUDGET["seeds"],
        Plan(updates, 50, updates),
        settings=OnlineConfig(environments=BUDGET["environments"]),
        penalty=dict.fromkeys(env.penalty_weights(), 0.0) if way == "free" else None,
    )
    cell = {"seeds": [judged(env, policy) for policy in done.policies]}
    print(f"{name} {way}: {time.monotonic() - started_at:.0f} s", flush=True)
    return cell


def table(plant: str) -> str:
    """The plant's controllers, then the learners."""
    results = json.loads((RESULTS / f"{plant}.json").read_text())
    heads = [
        f"over {name} ({limit})"
        for name, limit in zip(results["costs"], results["limits"], strict=True)
    ]
    lines = [f"| | {' | '.join(heads)} | over any | trips | return | return minus penalties |"]
    lines.append("|---" * (len(heads) + 5) + "|")
    lines += [row(f"controller {name}", [cell]) for name, cell in results["controllers"].items()]
    words = {"free": "costs ignored", "priced": "the plant's penalties", "lag": "multipliers"}
    for name, cell in results["learners"].items():
        who, way = name.split()
        lines.append(row(f"{who}, {words[way]}", cell["seeds"]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
