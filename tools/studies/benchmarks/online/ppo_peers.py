"""PPO on CartPole beside CleanRL, rejax and PureJaxRL, on one core.

    python tools/studies/benchmarks/online/ppo_peers.py --cleanrl-python PYTHON --cleanrl PPO_PY \
        --purejaxrl FOLDER

This needs ``rejax==0.1.3`` with ``gymnax==0.0.9`` beside the workspace's packages, in an
environment of their own; ``PPO_PY`` is ``cleanrl/ppo.py`` at commit fe8d8a0, ``FOLDER`` is
``purejaxrl`` at commit 31756b1, and ``PYTHON`` has what ``cleanrl.py`` beside this file asks for.

All sides have separate networks of 64 and 64 tanh units for choice and value, rollouts of 128 steps
of every world, four epochs of four minibatches, Adam and the entropy's weight of 0.01; ours is the
loop of `train_online` with its records, theirs their own. Compilation is left out on all sides.
rejax has no linear rate and clips each number of the gradient in place of its norm, and its
evaluation is left out; ours, for a bootstrap behind the limit of an episode, asks for the value of
every next observation as well. Sides in turn in every round, processor time, one thread; the ratio
is that within a round, its mean and 95 % interval over rounds the result, in
`tools/studies/benchmarks/results/ppo_peers.json`.
"""

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.append(str(HERE.parents[1]))

from _rounds import RESULTS, machine, on_one_core, write  # noqa: E402

ROLLOUT, EPOCHS, MINIBATCHES, RATE, ENTROPY = 128, 4, 4, 2.5e-4, 0.01
UPDATES = {1: 200, 8: 100}
"""Updates of one chunk of ours, and of one training of the JAX peers, by number of worlds."""

GOALS = {1: 25.0, 8: 15.0}
"""Times CleanRL's speed."""

Side = Callable[[], float]
"""One round: steps of all worlds per second of processor time."""


def ours(worlds: int) -> Side:
    """`train_online`, from the end of its first chunk to that of the last but one."""
    from tables.online.classic_plants import CartPole

    from neorl_agents import PPO
    from neorl_agents.learning import Networks
    from neorl_agents.networks import NETWORKS, init_mlp, tanh
    from neorl_train import train_online
    from neorl_train.configuration import OnlineConfig
    from neorl_train.training import Plan, Watcher

    if "tanh" not in dict(NETWORKS.items()):
        kind = NETWORKS.find("mlp")
        NETWORKS.register("tanh", kind._replace(init=partial(init_mlp, activation=tanh)))

    class Clock(Watcher):
        """Processor time at the end of every chunk."""

        def __init__(self) -> None:
            self.marks: list[tuple[int, float]] = []

        def chunk(self, step: int, metrics: Any) -> None:
            self.marks.append((step, time.process_time()))

    learner = PPO(
        actions="choice", rollout=ROLLOUT, epochs=EPOCHS, minibatches=MINIBATCHES,
        learning_rate=RATE, entropy_weight=ENTROPY, networks=Networks((64, 64), kind="tanh"),
    )  # fmt: skip
    chunk = UPDATES[worlds]

    def round_of() -> float:
        clock, plan = Clock(), Plan(5 * chunk, chunk, 5 * chunk)
        train_online(
            learner, CartPole(), (0,), plan, settings=OnlineConfig(environments=worlds),
            watcher=clock,
        )  # fmt: skip
        (first, started_at), (last, ended) = clock.marks[0], clock.marks[-2]
        return (last - first) * ROLLOUT * worlds / (ended - started_at)

    return round_of


def whole(train: Any, worlds: int) -> Side:
    """A training that is one function of a key, compiled before."""
    import jax

    compiled, keys = jax.jit(train), iter(jax.random.split(jax.random.PRNGKey(0), 1000))
    jax.block_until_ready(compiled(next(keys)))

    def round_of() -> float:
        start, calls = time.process_time(), 0
        while not calls or time.process_time() - start < 0.5:
            jax.block_until_ready(compiled(next(keys)))
            calls += 1
        steps = calls * UPDATES[worlds] * ROLLOUT * worlds
        return steps / (time.process_time() - start)

    return round_of


def rejax(worlds: int) -> Side:
    """Rejax's PPO without its evaluations."""
    made: Any = importlib.import_module("rejax").PPO.create(
        env="CartPole-v1", num_envs=worlds, num_steps=ROLLOUT, num_epochs=EPOCHS,
        num_minibatches=MINIBATCHES, learning_rate=RATE, max_grad_norm=0.5, ent_coef=ENTROPY,
        total_timesteps=UPDATES[worlds] * ROLLOUT * worlds,
        eval_freq=UPDATES[worlds] * ROLLOUT * worlds, skip_initial_evaluation=True,
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)},
    )  # fmt: skip
    return whole(made.replace(eval_callback=lambda *_: 0).train, worlds)


def purejaxrl(folder: Path, worlds: int) -> Side:
    """PureJaxRL's ppo.py; its wrappers of other simulators are not needed, nor are those."""
    for name in ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training", "navix"):
        sys.modules.setdefault(name, MagicMock())
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    settings = {
        "LR": RATE, "NUM_ENVS": worlds, "NUM_STEPS": ROLLOUT, "UPDATE_EPOCHS": EPOCHS,
        "TOTAL_TIMESTEPS": UPDATES[worlds] * ROLLOUT * worlds, "NUM_MINIBATCHES": MINIBATCHES,
        "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": ENTROPY, "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5, "ACTIVATION": "tanh", "ENV_NAME": "CartPole-v1", "ANNEAL_LR": True,
        "DEBUG": False,
    }  # fmt: skip
    return whole(importlib.import_module("ppo").make_train(settings), worlds)


def cleanrl(python: str, path: str, worlds: int) -> Side:
    """CleanRL's ppo.py in a process of its own."""
    command = [python, str(HERE / "cleanrl.py"), path, str(worlds), "16"]

    def round_of() -> float:
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(completed.stdout.splitlines()[-1])

    return round_of


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """Mean of the ratios within rounds, and its 95 % interval."""
    import numpy as np

    from neorl_core.statistics import student_interval

    each = np.asarray(over) / np.asarray(under)
    interval = student_interval(each, level=0.95)
    return {"mean": float(each.mean()), "low": float(interval.low), "high": float(interval.high)}


def compared(sides: Mapping[str, Side], rounds: int) -> dict[str, Any]:
    """All sides in turn, and ours over each of the others."""
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            speeds[name].append(side())
    others = [name for name in sides if name != "ours"]
    ratios = {name: ratio(speeds["ours"], speeds[name]) for name in others}
    return {"steps_a_second": speeds, "ours_over": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cleanrl-python", required=True)
    parser.add_argument("--cleanrl", required=True, help="CleanRL's ppo.py")
    parser.add_argument("--purejaxrl", type=Path, required=True, help="folder of its ppo.py")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "ppo_peers.json")
    arguments = parser.parse_args()
    on_one_core(arguments.core)

    from neorl_core.infrastructure import keep_compiled_programs
    from neorl_core.infrastructure.command_line import cache_directory

    keep_compiled_programs(cache_directory())
    packages = ("jax", "jaxlib", "optax", "rejax", "gymnax", "flax", "distrax")
    cases: dict[str, Any] = {}
    result = {"benchmark": "ppo_peers", "goals_over_cleanrl": GOALS, "worlds": cases}
    for worlds in UPDATES:
        sides = {
            "ours": ours(worlds),
            "cleanrl": cleanrl(arguments.cleanrl_python, arguments.cleanrl, worlds),
            "rejax": rejax(worlds),
            "purejaxrl": purejaxrl(arguments.purejaxrl, worlds),
        }
        cases[str(worlds)] = compared(sides, arguments.rounds)
        for name, one in cases[str(worlds)]["ours_over"].items():
            low, high = one["low"], one["high"]
            print(f"{worlds} worlds: ours / {name} {one['mean']:.2f} ({low:.2f} to {high:.2f})")
        write(arguments.out, result | machine(packages))


if __name__ == "__main__":
    main()
