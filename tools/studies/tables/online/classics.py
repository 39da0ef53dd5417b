"""Learners of choices on CartPole, for as many steps as CleanRL's, and SAC and TD3 on Pendulum.

Usage:
    python tools/studies/tables/online/classics.py measure                what is not there yet
    python tools/studies/tables/online/classics.py measure --only dqn     that one, where it is not
    python tools/studies/tables/online/classics.py table                  the table as Markdown

500,000 steps of CartPole-v1, restated as a plant (``classic_plants.py``), by every seed; hidden
layers, rates and batches are those of CleanRL's scripts. "dqn, plain" is without double values,
duelling, priorities and the clip of the gradient, as CleanRL's is; "dqn" has all four, and
"dqn, 100,000 steps" has a fifth of the steps and four times the rate. DQN steps ten episodes side
by side and takes an update after each step; CleanRL's takes one after every ten steps of one
episode. "sac, pendulum" and "td3, pendulum" take 12,000 updates on as many steps of Pendulum-v1,
two episodes side by side. Each policy is judged deterministically on 100 fresh episodes; the mean
return of all episodes that ended in the last tenth of the training, exploration included, stands
beside it, as CleanRL states it.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from classic_plants import CartPole, Pendulum

from neorl_agents import DQN, PPO, SAC, TD3, Reinforce
from neorl_agents.learning import Networks, Steps
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory
from neorl_envs.scoring import score_episodes, scores
from neorl_train import train_online
from neorl_train.configuration import OnlineConfig
from neorl_train.training import Plan, Watcher

PATH = Path(__file__).resolve().parents[2] / "benchmarks/results/classics.json"
STEPS, SEEDS = 500_000, (0, 1, 2, 3, 4)
# CleanRL's documentation, CartPole-v1, three seeds: mean and deviation of the return.
CLEANRL = {"dqn": (488.69, 16.11), "ppo": (492.40, 13.05)}


class Returns(Watcher):
    """Sums of all episodes so far, by seed, after every chunk."""

    def __init__(self) -> None:
        self.sums: list[np.ndarray] = []

    def chunk(self, step: int, metrics: Any) -> None:
        """Remembers the sums of every seed."""
        episodes = np.asarray([seed["online_episodes"] for seed in metrics])
        returns = np.asarray([seed["online_return"] for seed in metrics])
        self.sums.append(np.stack([episodes, episodes * returns]))


def learners() -> dict[str, tuple[Any, Plan, OnlineConfig]]:
    """Each with its plan and what it collects."""
    small = {
        "networks": Networks(hidden=(64, 64)),
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
    }
    sac = SAC(steps=Steps(batch_size=128, optimiser="sac", reward_scale="none"), **small)
    td3 = TD3(steps=Steps(batch_size=128, reward_scale="none"), **small)
    swing = (Plan(12_000, 1_000, 12_000), OnlineConfig(environments=2, warm_up=1_000))
    updates = (STEPS - 10_000) // 10
    dqn = OnlineConfig(environments=10, warm_up=10_000, capacity=10_000)
    rollouts = STEPS // (4 * 128)
    parts = DQN(
        priority=0.6,
        double=True,
        dueling=True,
        steps=Steps(batch_size=128, optimiser="dqn", reward_scale="none"),
    )
    return {
        "dqn, plain": (DQN(), Plan(updates, 4900, updates), dqn),
        "dqn": (parts, Plan(updates, 4900, updates), dqn),
        "dqn, 100,000 steps": (
            dataclasses.replace(parts, learning_rate=1e-3),
            Plan(9000, 900, 9000),
            dqn,
        ),
        "ppo": (
            PPO(actions="choice", entropy_weight=0.01),
            Plan(rollouts, 61, rollouts),
            OnlineConfig(environments=4),
        ),
        "reinforce": (
            Reinforce(actions="choice", rollout=500),
            Plan(STEPS // 5000, 10, STEPS // 5000),
            OnlineConfig(environments=10),
        ),
        "sac, pendulum": (sac, *swing),
        "td3, pendulum": (td3, *swing),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "table"))
    parser.add_argument("--only", choices=tuple(learners()), help="measure this one alone")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        keep_compiled_programs(cache_directory())
        for name in learners() if arguments.only is None else [arguments.only]:
            measure(name)
    print(table())


def measure(name: str) -> None:
    """Trains and judges the seeds that were not yet, one after another."""
    learner, plan, settings = learners()[name]
    plant = Pendulum() if name.endswith("pendulum") else CartPole()
    keys = jax.random.split(jax.random.key(1_000_000), 100)
    for seed in SEEDS:
        results: dict[str, Any] = json.loads(PATH.read_text()) if PATH.is_file() else {}
        cell = results.setdefault(name, {})
        if str(seed) in cell:
            continue
        watcher, started_at = Returns(), time.process_time()
        done = train_online(learner, plant, (seed,), plan, settings=settings, watcher=watcher)
        judged = np.mean(scores(plant, score_episodes(plant, done.policies[0], keys)))
        sums = np.asarray(watcher.sums)[..., 0]
        episodes, returns = sums[-1] - sums[len(sums) - 1 - len(sums) // 10]
        cell[str(seed)] = {
            "judged": round(float(judged), 2),
            "training": round(float(returns / episodes), 2),
            "processor_seconds": round(time.process_time() - started_at, 1),
        }
        PATH.write_text(json.dumps(results, indent=1) + "\n")
        print(name, seed, cell[str(seed)], flush=True)


def table() -> str:
    """Mean and deviation over the seeds that were measured, CleanRL's beside them."""
    lines = [
        "| Learner | seeds | judged | last tenth of training | CleanRL |",
        "|---|---|---|---|---|",
    ]
    for name, cell in json.loads(PATH.read_text()).items():
        columns = [[one[key] for one in cell.values()] for key in ("judged", "training")]
        words = [
            f"{np.mean(x):.1f}" + (f" ± {np.std(x, ddof=1):.1f}" if len(x) > 1 else "")
            for x in columns
        ]
        whole = not name.endswith(" steps")  # CleanRL states nothing for fewer.
        mean, std = CLEANRL.get(name.partition(",")[0], (None, None)) if whole else (None, None)
        beside = "" if mean is None else f"{mean} ± {std}"
        lines.append(f"| `{name}` | {len(cell)} | {words[0]} | {words[1]} | {beside} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
