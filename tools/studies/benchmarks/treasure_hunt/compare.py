"""Populations in the treasure hunt beside Sorrel's own program, on one core.

    taskset -c 0 python tools/studies/benchmarks/treasure_hunt/compare.py \
        --python build/venv-sorrel/bin/python --head CHECKOUT_OF_357f220 --mp CHECKOUT_OF_2a24efc

The environment of the peer is that of `tools/studies/oracles/sorrel_treasure_hunt.py`. Both sides do the
same work: the same networks, quantiles, batches and numbers of turns and gradient steps, at a fixed
chance of random actions, ours with `semantics` of the source. Processor time is measured, one
thread each, sides in turn, and the least of the rounds counts; the ratio is the result. Our program
trains its agents one after another (`lax.map`); the same as one batch of networks (`vmap`) is timed
beside it. Written to `tools/studies/benchmarks/results/treasure_hunt.json`, where cases that are not
measured stay as they are.
"""

import argparse
import json
import os
import platform
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp

from neorl_agents.populations import IQN, draw_windows, end_episode, init_population, remember
from neorl_core import as_arrays
from neorl_envs.worlds import strict_turn, treasure_hunt
from neorl_train.populations import play_episode, run_epochs

HERE = Path(__file__).resolve().parent
VERSIONS: dict[str, dict[str, Any]] = {
    "head": {"epsilon": 0.6, "settings": {}},
    "2a24efc": {"epsilon": 0.632, "settings": {"batch_size": 256, "acting_quantiles": 256}},
}


def processor_time(call: Any, repeats: int) -> float:
    """Seconds of one call, the least of three measurements; the program is compiled before."""
    jax.block_until_ready(call())
    least = float("inf")
    for _ in range(3):
        start = time.process_time()
        for _ in range(repeats):
            result = call()
        jax.block_until_ready(result)
        least = min(least, (time.process_time() - start) / repeats)
    return least


class Ours:
    """Our program at one number of agents, which are trained in turn or as one batch.

    Args:
        version: Version of the source whose semantics are kept.
        agents: Number of agents.
        epochs: Epochs of one call.
        over_agents: ``"map"``, or ``"vmap"`` for one batch of networks.
    """

    def __init__(self, version: str, agents: int, epochs: int, over_agents: str = "map") -> None:
        case = VERSIONS[version]
        self.world = treasure_hunt(version, n_agents=agents)  # pyright: ignore[reportArgumentType]
        self.learner = IQN(
            semantics=version,  # pyright: ignore[reportArgumentType]
            epsilon=case["epsilon"], epsilon_decay=0.0, **case["settings"],
        )  # fmt: skip
        world, self.key, self.epochs, self.done = self.world, jax.random.key(0), epochs, 0
        sizes = (agents, world.n_obs, world.n_actions, world.horizon)
        self.population = init_population(self.learner, *sizes, self.key)
        self.arrays = (as_arrays(world), as_arrays(self.learner))
        start = time.process_time()
        lowered = run_epochs.lower(
            *self.arrays, self.population, jnp.asarray(0), self.key,
            n_epochs=epochs, over_agents=over_agents,
        )  # fmt: skip
        self.program = lowered.compile()
        self.compile_time = time.process_time() - start
        for _ in range(-(-12 // epochs)):  # Until the memory holds more than a batch.
            self.next_epochs()

    def next_epochs(self) -> Any:
        """Goes on by one call, whose rewards are returned."""
        number = jnp.asarray(self.done)
        self.population, happened = self.program(*self.arrays, self.population, number, self.key)
        self.done += self.epochs
        return happened.reward

    def epoch(self) -> float:
        """Processor time of one epoch."""
        return processor_time(self.next_epochs, 1) / self.epochs


def parts(world: Any, learner: IQN, population: Any, key: Any) -> dict[str, float]:
    """What an epoch consists of, each a program of its own."""
    shape, frames = (
        learner.shape(world.horizon),
        jnp.zeros((world.n_agents, learner.frames - 1, world.n_obs)),
    )
    play = jax.jit(partial(play_episode, as_arrays(world), as_arrays(learner)))
    at_random = population._replace(epsilon=jnp.ones_like(population.epsilon))
    moved = processor_time(lambda: play(at_random, frames, key, key), 3)
    acted = processor_time(lambda: play(population, frames, key, key), 3)
    episodes = play(population, frames, key, key)
    ends = jax.jit(partial(end_episode, as_arrays(learner), turns=world.horizon))
    ended = processor_time(lambda: ends(population, episodes, key), 2)

    @jax.jit
    def kept(memory: Any, episodes: Any) -> Any:
        def one(given: Any) -> Any:
            memory = remember(shape, *given)
            return draw_windows(
                shape, memory, key, batch=learner.batch_size, discount=jnp.float32(0.99)
            )

        return jax.lax.map(one, (memory, episodes))

    buffer = processor_time(lambda: kept(population.memory, episodes), 5)
    return {
        "world, observe, act": moved,
        "choose": max(acted - moved, 0.0),
        "buffer": buffer,
        "train": max(ended - buffer, 0.0),
    }


def worlds_alone(version: str, worlds: int) -> float:
    """Agents' steps a second of world and observation, at random, many worlds in one program."""
    world = as_arrays(treasure_hunt(version))  # pyright: ignore[reportArgumentType]

    def choose(carry: Any, agent: Any, obs: Any) -> Any:
        actions, seen = carry
        return (actions, seen + jnp.sum(obs)), actions[agent]

    def turn(carry: Any, key: Any) -> Any:
        state, seen = carry
        for_world, for_actions = jax.random.split(key)
        actions = jax.random.randint(for_actions, (world.n_agents,), 0, world.n_actions)
        state, (_, seen), turn = strict_turn(
            world, state, world.draw(for_world), choose, (actions, seen)
        )
        return (state, seen), jnp.sum(turn.reward)

    @jax.jit
    def episodes(keys: Any) -> Any:
        def one(key: Any) -> Any:
            return jax.lax.scan(turn, (world.reset(key), 0.0), jax.random.split(key, world.horizon))

        return jax.vmap(one)(keys)

    keys = jax.random.split(jax.random.key(0), worlds)
    return worlds * world.horizon * world.n_agents / processor_time(lambda: episodes(keys), 2)


def theirs(options: Any, version: str, agents: int, epsilon: float, epochs: int) -> dict[str, Any]:
    """The same of the source, in a process of its own."""
    folder = options.head if version == "head" else options.mp
    words = [
        options.python,
        str(HERE / "original.py"),
        version,
        str(agents),
        str(epsilon),
        str(epochs),
    ]
    completed = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(completed.stdout.splitlines()[-1])


def compared(options: Any, version: str, agents: int) -> dict[str, Any]:
    """Both programs at one number of agents, in turn; ours in both of its forms."""
    few, rounds = agents < 50, []
    forms = {form: Ours(version, agents, 4 if few else 2, form) for form in ("map", "vmap")}
    usual = forms["map"]
    for _ in range(options.rounds if few else 1):
        mine = {
            "epoch": usual.epoch(),
            "compile": usual.compile_time,
            "parts": parts(usual.world, usual.learner, usual.population, usual.key),
            "epoch_vmap": forms["vmap"].epoch(),
        }
        source = theirs(options, version, agents, VERSIONS[version]["epsilon"], 3 if few else 1)
        rounds.append({"ours": mine, "source": source})
    jax.clear_caches()
    best = {side: min(one[side]["epoch"] for one in rounds) for side in ("ours", "source")}
    vmapped = min(one["ours"]["epoch_vmap"] for one in rounds)
    turns = usual.world.horizon
    return {
        "version": version,
        "agents": agents,
        "ratio": best["source"] / best["ours"],
        "vmap_over_map": vmapped / best["ours"],
        "turns_a_second": {side: turns / best[side] for side in best},
        "train_steps_a_second": {side: agents / best[side] for side in best},
        "rounds": rounds,
    }


def worlds_compared(options: Any, version: str) -> list[dict[str, Any]]:
    """World and observation alone, at random."""
    default = treasure_hunt(version)  # pyright: ignore[reportArgumentType]
    source = theirs(options, version, default.n_agents, 1.0, 3)["parts"]
    seconds = sum(source[part] for part in ("observe", "act", "world"))
    alone, rows = default.n_agents * default.horizon / seconds, []
    for worlds in (1, 64):
        mine = worlds_alone(version, worlds)
        sides = {"ours": mine, "source": alone, "ratio": mine / alone}
        rows.append({"version": version, "worlds": worlds, **sides})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--python", "--head", "--mp"):
        parser.add_argument(name, required=True)
    parser.add_argument("--versions", nargs="*", default=list(VERSIONS), choices=list(VERSIONS))
    parser.add_argument("--agents", type=int, nargs="*", default=[2, 5, 10, 50])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results/treasure_hunt.json")
    options = parser.parse_args()
    result: dict[str, Any] = {"cases": [], "worlds": []}
    if options.out.is_file():
        result |= json.loads(options.out.read_text())
    result |= {"jax": jax.__version__, "machine": platform.machine()}
    for version in options.versions:
        for agents in options.agents:
            row = compared(options, version, agents)
            keep(options.out, result, "cases", [row], ("version", "agents"))
            words = f"ratio {row['ratio']:.1f}, vmap / map {row['vmap_over_map']:.2f}"
            print(version, agents, words, flush=True)
        keep(options.out, result, "worlds", worlds_compared(options, version), ("version",))


def keep(path: Path, result: dict[str, Any], part: str, rows: list[Any], key: Any) -> None:
    """Writes the rows in the place of those with the same key, and leaves the others."""
    new = {tuple(row[name] for name in key) for row in rows}
    others = [row for row in result[part] if tuple(row[name] for name in key) not in new]
    result[part] = others + rows
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
