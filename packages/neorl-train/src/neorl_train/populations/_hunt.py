"""The treasure hunt as a command: trains, stores, and summarises what was learned."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from neorl_agents.populations import IQN
from neorl_core import InputError
from neorl_core.infrastructure import write_json
from neorl_envs.worlds import TreasureHunt, treasure_hunt
from neorl_train.populations._epochs import Epochs, Order
from neorl_train.populations._run import (
    population_checkpoints,
    random_rewards,
    train_population,
)
from neorl_train.runs import Records, file_lock, read_records

Defaults = dict[str, Any]

LEARNERS: dict[str, Defaults] = {
    "head": {},
    "2a24efc": {
        "batch_size": 256,
        "acting_quantiles": 256,
        "epsilon": 1.0,
        "epsilon_decay": 0.001,
    },
}
"""Settings of each version's learner that differ from the defaults of :class:`IQN`."""


@dataclasses.dataclass(frozen=True)
class HuntOptions:
    """Options of a treasure hunt.

    Attributes:
        out: Folder of the run; an existing run is continued.
        version: Rules and defaults of the source: release 1.4.0 or commit 2a24efc.
        agents: Number of agents; 0 uses the source's number.
        turns: Turns per episode; 0 uses the source's number.
        epochs: Number of episodes, each followed by a gradient step of every agent.
        chunk: Epochs between two checkpoints.
        seed: Seed of all random numbers.
        order: Whether agents act one after another or simultaneously.
        semantics: ``mended``, or ``original``, which reproduces the defects of the source.
        batch_size: Rows per gradient step; 0 uses the source's number.
        capacity: Turns that an agent remembers.
        learning_rate: Learning rate of Adam.
        prioritised: Whether turns are sampled in proportion to their last loss; not available with
            the original's semantics.
        n_step: Number of rewards summed in a target; 0 means 1, or the source's number with its
            semantics.
        discount: Discount of the reward per turn; 0 means 0.99 cubed, which equals the effective
            discount of the source's target, or the source's value with its semantics.
    """

    out: Path = Path("hunt")
    version: Literal["head", "2a24efc"] = "head"
    agents: int = 0
    turns: int = 0
    epochs: int = 1000
    chunk: int = 20
    seed: int = 0
    order: Order = "strict"
    semantics: Literal["mended", "original"] = "mended"
    batch_size: int = 0
    capacity: int = 1024
    learning_rate: float = 2.5e-4
    prioritised: bool = False
    n_step: int = 0
    discount: float = 0.0

    def world(self) -> TreasureHunt:
        """The world that these options define.

        Raises:
            InputError: Names an invalid number.
        """
        return treasure_hunt(self.version, n_agents=self.agents or None, horizon=self.turns or None)

    def learner(self) -> IQN:
        """The learner of every agent."""
        semantics = self.version if self.semantics == "original" else "mended"
        settings = {**LEARNERS[self.version], "semantics": semantics}
        settings["prioritised"] = self.prioritised
        # Three summed rewards at 0.99 did not learn: docs/pages/how-to/treasure-hunt.md.
        usual = {} if self.semantics == "original" else {"n_step": 1, "discount": 0.99**3}
        given = {"n_step": self.n_step, "discount": self.discount}
        settings |= usual | {name: value for name, value in given.items() if value}
        if self.batch_size:
            settings["batch_size"] = self.batch_size
        return IQN(capacity=self.capacity, learning_rate=self.learning_rate, **settings)


def hunt(
    options: HuntOptions, *, say: Callable[[str], None] = print, stop: Callable[[], bool]
) -> str:
    """Trains, and writes ``epochs.jsonl``, ``checkpoints`` and ``hunt.json`` into the folder.

    Args:
        options: Options of the training.
        say: Called with progress messages.
        stop: Called once per chunk; true ends the training, which can be continued.

    Returns:
        One paragraph that summarises what was learned.

    Raises:
        InputError: Names an invalid number, or how an earlier run in the folder differs.
    """
    world, learner = options.world(), options.learner()
    options.out.mkdir(parents=True, exist_ok=True)
    with file_lock(options.out / "lock"):
        keep = population_checkpoints(
            options.out / "checkpoints", world, learner, seed=options.seed, say=say
        )
        lines = Records(options.out / "epochs.jsonl")
        begun = [False]

        def watch(first: int, epochs: Epochs) -> None:
            if not begun[0]:
                begun[0] = True
                lines.keep(lambda line: line["epoch"] < first)
            for i in range(len(epochs.reward)):
                lines.write(
                    {
                        "epoch": first + i,
                        "reward": epochs.reward[i].tolist(),
                        "loss": epochs.loss[i].tolist(),
                        "epsilon": epochs.epsilon[i].tolist(),
                    }
                )
            lines.sync()
            mean = epochs.reward.sum(axis=1).mean()
            reached = first + len(epochs.reward)
            say(f"epoch {reached}/{options.epochs}: {mean:.1f} an epoch, all agents")

        try:
            trained = train_population(
                world, learner, seed=options.seed, epochs=options.epochs, chunk=options.chunk,
                order=options.order, checkpoints=keep, watch=watch, stop=stop,
            )  # fmt: skip
        finally:
            lines.close()
        return _result(options, world, trained.epoch, trained.finished)


def _result(options: HuntOptions, world: TreasureHunt, epoch: int, finished: bool) -> str:
    rewards = np.array([sum(line["reward"]) for line in read_records(options.out / "epochs.jsonl")])
    if not len(rewards):
        raise InputError(f"{options.out}: stopped before the first epoch; give the command again")
    last = rewards[-max(1, len(rewards) // 10) :]
    chance = random_rewards(world, seed=options.seed, episodes=100, order=options.order).sum(axis=1)
    result = {
        "epochs": epoch,
        "finished": finished,
        "reward_last_tenth": float(last.mean()),
        "reward_random": float(chance.mean()),
        "reward_random_standard_error": float(chance.std(ddof=1) / np.sqrt(len(chance))),
    }
    write_json(options.out / "hunt.json", result)
    ended = "" if finished else " (stopped; the same command continues it)"
    return (
        f"{epoch} epochs{ended}: {last.mean():.1f} an epoch over the last {len(last)}, all agents "
        f"together; at random {chance.mean():.1f} ± {result['reward_random_standard_error']:.1f} "
        f"(standard error of 100 epochs)\nleft in {options.out}"
    )
