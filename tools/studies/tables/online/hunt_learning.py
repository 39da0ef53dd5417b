"""What populations learn in the treasure hunt, with the source's semantics and the mended ones.

Usage:
    python tools/studies/tables/online/hunt_learning.py measure --epochs 2000     what is not there yet
    python tools/studies/tables/online/hunt_learning.py add FILE ...              the source's scores
    python tools/studies/tables/online/hunt_learning.py table                     the table as Markdown

Everything else is the default of the source's release 1.4.0: two agents, 100 turns, one gradient
step of each agent an epoch. ``source`` is our program with the source's semantics, which equals
its own turn by turn and step by step (``tools/studies/oracles/sorrel_treasure_hunt.py``). ``Sorrel`` is
the source itself: ``tools/studies/benchmarks/treasure_hunt/original.py head 2 1.0 2000 --score SEED``
prints what ``add`` reads. It begins with random actions alone, and so do two ways, where the
default begins with six of ten. ``mended, one step`` keeps the source's target, one reward and a
discount of 0.99 cubed, on windows that stay inside their episode. A score is the reward of an epoch, both agents together, in the mean over a
hundred epochs; every seed is one cell of the file, so that a measurement that was cut short goes
on.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from neorl_agents.populations import IQN
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory
from neorl_core.statistics import student_interval
from neorl_envs.worlds import treasure_hunt
from neorl_train.populations import random_rewards, train_population

PATH = Path(__file__).resolve().parents[2] / "benchmarks/results/hunt_learning.json"
WAYS: dict[str, dict[str, Any]] = {
    "source": {"semantics": "head"},
    "mended": {"n_step": 3, "discount": 0.99},
    "mended, one step": {},
    "source, all random at first": {"semantics": "head", "epsilon": 1.0},
    "mended, one step, all random at first": {"epsilon": 1.0},
}
SEEDS, BLOCK = range(5), 100


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "add", "table"))
    parser.add_argument("files", nargs="*", type=Path, help="what the source printed, for add")
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    args = parser.parse_args()
    if args.what == "measure":
        keep_compiled_programs(cache_directory())
        for way in args.ways:
            for seed in SEEDS:
                measure(way, seed, args.epochs)
    elif args.what == "add":
        for path in args.files:
            printed = json.loads(path.read_text())
            keep("Sorrel, all random at first", printed["seed"], printed["reward"])
    print(table())


def measure(way: str, seed: int, epochs: int) -> None:
    """Trains one population from the beginning, unless that was done."""
    results: dict[str, Any] = json.loads(PATH.read_text()) if PATH.is_file() else {}
    world = treasure_hunt("head")
    if "random" not in results:
        chance = random_rewards(world, seed=0, episodes=2000).sum(axis=1)
        PATH.write_text(json.dumps(results | {"random": interval(chance)}, indent=1) + "\n")
    if str(seed) in results.get("scores", {}).get(f"{way}, {epochs} epochs", {}):
        return
    started_at = time.process_time()
    trained = train_population(world, IQN(**WAYS[way]), seed=seed, epochs=epochs, chunk=BLOCK)
    keep(way, seed, np.asarray(trained.epochs.reward, float).sum(axis=1))
    print(f"{time.process_time() - started_at:.0f} s of processor")


def keep(way: str, seed: int, reward: Any) -> None:
    """Writes the means of a training's blocks of epochs."""
    results = json.loads(PATH.read_text())
    cells = results.setdefault("scores", {}).setdefault(f"{way}, {len(reward)} epochs", {})
    cells[str(seed)] = np.asarray(reward).reshape(-1, BLOCK).mean(axis=1).round(2).tolist()
    PATH.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{way}, seed {seed}: {cells[str(seed)][-1]} in the last {BLOCK} epochs")


def interval(values: Any) -> list[float]:
    """Mean and 95 % interval."""
    student = student_interval(np.asarray(values, float), level=0.95)
    return [round(float(x), 2) for x in (np.mean(values), student.low, student.high)]


def table() -> str:
    """The first and the last tenth of every training, over seeds."""
    results = json.loads(PATH.read_text())
    mean, low, high = results["random"]
    lines = ["| Who | first tenth | last tenth | seeds |", "|---|---|---|---|"]
    lines.append(f"| random play | | {mean:.1f} ({low:.1f} to {high:.1f}) | 2,000 epochs |")
    for name, cells in results["scores"].items():
        scores = np.asarray(list(cells.values()))
        part = max(1, scores.shape[1] // 10)
        ends = [
            interval(scores[:, side].mean(axis=1)) for side in (slice(part), slice(-part, None))
        ]
        words = [f"{mean:.1f} ({low:.1f} to {high:.1f})" for mean, low, high in ends]
        lines.append(f"| {name} | {words[0]} | {words[1]} | {len(scores)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
