"""Which return a decision transformer reaches for the return that it is asked for.

Usage:
    python tools/studies/tables/aim_curve.py measure [--seeds 0 1 2]    seeds that are not there yet
    python tools/studies/tables/aim_curve.py table                      the table as Markdown

One seed is one training on 20,000 rows of DMSD's mixed log, with the networks and batches of the
command on the learner's page; then the same network acts with every aim, in the same 100 episodes.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from learner_settings import learner_with
from neorl_agents import ALGORITHMS
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory
from neorl_core.statistics import student_interval
from neorl_envs import collect_log, make
from neorl_envs.recording import quality
from neorl_envs.scoring import score_episodes, scores
from neorl_train import train
from neorl_train.data import training_data
from neorl_train.training import Plan

OUT = Path(__file__).resolve().parents[1] / "benchmarks/results/aim_curve.json"
PLANT, ROWS, UPDATES, EPISODES = "DMSD-v0", 20_000, 4_000, 100
AIMS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "table"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    args = parser.parse_args()
    if args.what == "measure":
        keep_compiled_programs(cache_directory())
        for seed in args.seeds:
            measure(seed)
    print(table())


def measure(seed: int) -> None:
    """Trains one seed and lets it act with every aim, unless the file has it."""
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() else {"reached": {}}
    if str(seed) in found["reached"]:
        return
    env = make(PLANT)
    policies, plan = quality(env, "mixed")
    log = collect_log(env, policies, n_steps=ROWS, key=jax.random.key(0), plan=plan)
    learner = learner_with(ALGORITHMS["dt"], hidden=(32, 32), history_steps=8, batch_size=64)
    state = train(learner, training_data(log), (seed,), Plan(UPDATES, 500, UPDATES)).states()[0]
    returns = np.asarray(log.episode_returns())
    keys = jax.random.split(jax.random.key(1), EPISODES)
    reached = {
        str(aim): float(
            np.mean(scores(env, score_episodes(env, replace(learner, aim=aim).policy(state), keys)))
        )
        for aim in AIMS
    }
    found |= {"plant": PLANT, "rows": ROWS, "updates": UPDATES, "episodes": EPISODES}
    found["logged"] = [float(f(returns)) for f in (np.min, np.mean, np.max)]
    found["reached"][str(seed)] = reached
    OUT.write_text(json.dumps(found, indent=1) + "\n")


def table() -> str:
    """A row for each aim: the return asked for, and the mean return that was reached."""
    found = json.loads(OUT.read_text())
    least, _, greatest = found["logged"]
    lines = ["| `aim` | asked | reached |", "|---|---|---|"]
    for aim in AIMS:
        values = np.array([seed[str(aim)] for seed in found["reached"].values()])
        low, high = student_interval(values)[-2:] if len(values) > 1 else (np.nan, np.nan)
        asked = least + aim * (greatest - least)
        lines.append(f"| {aim:g} | {asked:.0f} | {values.mean():.0f} [{low:.0f}, {high:.0f}] |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
