"""Processor time of 1,000 updates of every learner from a log, on one core, with equal networks.

All learners get the same 20,000 mixed rows of ChemicalReactor, networks of 64 and 64, batches of
128 rows, and else their defaults (transformers see 8 steps, since their default of 20 is for larger
networks). The figure is the difference between a long and a short training in the same process,
divided by the updates between them, so that compiling and what happens once are left out; the least
of the rounds counts, because other work on the machine only adds to it. Learners in a model are
trained a third time, with more updates of the model: its time stands apart. Learners on a plant
get a simulated ChemicalReactor in place of the rows, and their time has its steps in it.

    python tools/studies/benchmarks/learner_times.py
    python tools/studies/benchmarks/learner_times.py --only iql --rounds 1
"""

import argparse
import json
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from _rounds import RESULTS, machine, on_one_core, write

OUT = RESULTS / "learner_times.json"
ROWS, CHUNK, FEW = 20_000, 100, 200
MODEL_UPDATES = 200
LEAST_SECONDS, MOST = 1.0, 25  # of the difference; a multiple of the shortest one
SEQUENCES = ("dt", "cdt")
ON_PLANT = ("sac", "td3", "dqn", "ppo", "ppo_lag", "reinforce", "reinforce_lag")
PLANT = "ChemicalReactor-v0"


def main() -> None:
    """Measures the learners that the file does not hold, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], help="these learners alone")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each (2)")
    parser.add_argument("--core", type=int, default=0, help="the core to run on (0)")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    on_one_core(arguments.core)
    from neorl_agents import ALGORITHMS
    from neorl_core.infrastructure import keep_compiled_programs
    from neorl_core.infrastructure.command_line import cache_directory
    from neorl_envs import make

    keep_compiled_programs(cache_directory())
    known = json.loads(arguments.out.read_text())["learners"] if arguments.out.is_file() else {}
    rows = cache(log_rows)
    for name in arguments.only or [name for name in ALGORITHMS if name not in known]:
        data = make(PLANT) if name in ON_PLANT else rows()
        known[name] = measured(ALGORITHMS[name](), name, data, arguments.rounds)
        print(name, known[name], flush=True)
        unit = "seconds of processor time of 1,000 updates, one core"
        write(arguments.out, {"unit": unit, "learners": known, "machine": machine()})


def log_rows() -> Any:
    """The rows that all learners get."""
    import jax

    from neorl_envs import collect_log, make
    from neorl_envs.recording import quality
    from neorl_train.data import training_data

    env = make(PLANT)
    policies, plan = quality(env, "mixed")
    log = collect_log(env, policies, n_steps=ROWS, key=jax.random.key(0), plan=plan)
    prices = env.penalty_weights()
    return training_data(log, penalty_weights=[prices.get(c.name, 0.0) for c in log.spec.cost])


def measured(learner: Any, name: str, data: Any, rounds: int) -> dict[str, float]:
    """Seconds of 1,000 updates of the learner, and of its model if it has one."""
    from neorl_agents.testing import sized

    settings: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128}
    settings |= {"history_steps": 8} if name in SEQUENCES else {}
    learner = sized(learner, **settings)
    has_model = hasattr(learner, "model_updates")
    if has_model:
        learner = replace(learner, model_updates=MODEL_UPDATES)
    few = getattr(getattr(learner, "rollouts", None), "every", FEW)
    chunk = min(CHUNK, few)
    seconds(learner, data, few, chunk)  # compiles, or reads what is compiled
    guess = seconds(learner, data, 3 * few, chunk) - seconds(learner, data, few, chunk)
    factor = min(max(1, round(LEAST_SECONDS / max(guess, 0.01))), MOST)
    many = few + 2 * few * factor
    own, model = [], []
    for _ in range(rounds):
        short = seconds(learner, data, few, chunk)
        own.append(1e3 * (seconds(learner, data, many, chunk) - short) / (many - few))
        if has_model:
            longer = replace(learner, model_updates=3 * MODEL_UPDATES)
            difference = seconds(longer, data, few, chunk) - short
            model.append(1e3 * difference / (2 * MODEL_UPDATES))
    times = {"seconds": float(f"{min(own):.3g}")}
    return times | ({"model": float(f"{min(model):.3g}")} if has_model else {})


def seconds(learner: Any, data: Any, updates: int, chunk: int) -> float:
    """Processor time of one training."""
    from neorl_train import train, train_online
    from neorl_train.data import TrainingData
    from neorl_train.training import Plan

    started_at = time.process_time()
    plan = Plan(updates, chunk, updates)
    if isinstance(data, TrainingData):
        train(learner, data, (0,), plan)
    else:
        train_online(learner, data, (0,), plan)
    return time.process_time() - started_at


if __name__ == "__main__":
    main()
