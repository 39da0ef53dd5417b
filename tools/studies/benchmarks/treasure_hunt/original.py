"""Sorrel's own treasure hunt, timed.

It needs the environment of `tools/studies/oracles/sorrel_treasure_hunt.py`:

    PYTHONPATH=CHECKOUT build/venv-sorrel/bin/python tools/studies/benchmarks/treasure_hunt/original.py \
        VERSION AGENTS EPSILON EPOCHS [--ours] [--score SEED]

Prints one JSON object: processor time of one epoch of the unchanged program on one thread, and of
its parts with clocks around them; or, with a seed, the reward of every epoch under its own
schedule. With ``--ours``, of release 1.4.0 alone, the program makes ``SorrelModel`` of neorl-agents
in the place of its ``PyTorchIQN``; the environment then needs neorl-core and neorl-agents too.
"""

import importlib
import json
import random
import sys
import time

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

WARM_UP = {"head": 3, "2a24efc": 8}  # Epochs until the buffer holds more than a batch.
PARTS = ("observe", "choose", "act", "buffer", "train", "world")


def environment(version: str, agents: int, epsilon: float, decay: float, epochs: int):
    """The source's environment with its own defaults, but for the numbers given."""
    head = version == "head"
    name = "treasurehunt" if head else "treasurehunt_mp"
    parts = {
        part: importlib.import_module(f"sorrel.examples.{name}.{part}")
        for part in ("env", "entities", "world")
    }
    if "--ours" in sys.argv:
        model = importlib.import_module("neorl_agents.populations").SorrelModel
        setattr(parts["env"], "PyTorchIQN", model)  # noqa: B010
    side, turns = (21, 100) if head else (10, 50)
    config = {
        "experiment": {"epochs": epochs - 1, "max_turns": turns, "record_period": 10**9},
        "model": {
            "agent_vision_radius": 2, "epsilon": epsilon, "epsilon_min": 0.0,
            "epsilon_decay": decay, "batch_size": 256, "num_agents": agents,
            "observation_spec": "rgb",
        },
        "world": {
            "height": side, "width": side, "gem_value": 10, "food_value": 5, "bone_value": -10,
            "spawn_prob": 0.005 if head else 0.02, "num_agents": agents,
        },
    }  # fmt: skip
    world = parts["world"].TreasurehuntWorld(config, default_entity=parts["entities"].EmptyEntity())
    env = parts["env"].TreasurehuntEnv(world, config)
    for agent in env.agents:
        agent.model.epsilon = epsilon
    return env


def run(env, epochs: int, logger=None) -> None:
    """The source's own loop."""
    env.config.experiment.epochs = epochs - 1
    env.run_experiment(animate=False, logging=logger is not None, logger=logger)


def clocked(env, spent: dict[str, float]) -> None:
    """Puts clocks around the parts of an epoch; those inside others are taken off afterwards."""

    def around(owner, method: str, part: str) -> None:
        inner = getattr(owner, method)

        def timed(*args, **kwargs):
            start = time.process_time()
            result = inner(*args, **kwargs)
            spent[part] += time.process_time() - start
            return result

        setattr(owner, method, timed)

    for agent in env.agents:
        around(agent, "pov", "observe")
        around(agent, "get_action", "choose")
        around(agent, "act", "act")
        around(agent, "add_memory", "buffer")
        around(agent.model, "train_step", "train")


class Scores:
    """Keeps the reward of every epoch."""

    def __init__(self) -> None:
        self.rewards: list[float] = []

    def record_turn(self, epoch, loss, reward, epsilon=0, **kwargs) -> None:
        """As the source calls it."""
        self.rewards.append(float(reward))


def main() -> None:
    version, agents, epsilon, epochs = (
        sys.argv[1],
        int(sys.argv[2]),
        float(sys.argv[3]),
        int(sys.argv[4]),
    )
    torch.set_num_threads(1)
    if "--score" in sys.argv:
        seed = int(sys.argv[-1])
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the generator that the source draws from
        decay, scores = (0.0005 if version == "head" else 0.001), Scores()
        run(environment(version, agents, epsilon, decay, epochs), epochs, scores)
        print(json.dumps({"version": version, "seed": seed, "reward": scores.rewards}))
        return
    env = environment(version, agents, epsilon, 0.0, epochs)
    run(env, WARM_UP[version])
    start = time.process_time()
    run(env, epochs)
    total = (time.process_time() - start) / epochs
    spent: dict[str, float] = {part: 0.0 for part in PARTS}
    clocked(env, spent)
    start = time.process_time()
    run(env, epochs)
    clocked_total = time.process_time() - start
    spent["world"] = clocked_total - sum(spent.values())
    print(json.dumps({"epoch": total, "parts": {k: v / epochs for k, v in spent.items()}}))


if __name__ == "__main__":
    main()
