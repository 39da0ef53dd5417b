"""The treasure hunt as a command: train, keep, and say what was learned."""

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
"""What the learner of each version has that is not a default of :class:`IQN`."""


@dataclasses.dataclass(frozen=True)
class HuntOptions:
    """A treasure hunt.

    Attributes:
        out: Folder of the run; a run that is there is continued.
        version: Rules and defaults of the source: release 1.4.0 or commit 2a24efc.
        agents: Number of agents; 0 for the source's.
        turns: Turns of one episode; 0 for the source's.
        epochs: Episodes, each followed by a gradient step of every agent.
        chunk: Epochs between two checkpoints.
        seed: Decides everything that is drawn.
        order: Whether agents act one after another or at one moment.
        semantics: ``mended``, or ``original``, which keeps the defects of the source.
        batch_size: Rows of one gradient step; 0 for the source's.
        capacity: Turns that an agent remembers.
        learning_rate: Rate of Adam.
        prioritised: Whether turns are drawn by their last loss; not with the original's semantics.
        n_step: Steps whose rewards a target sums; 0 for 1, or for the source's with its semantics.
        discount: Discount of the reward a turn; 0 for 0.99 cubed, which is what the source's target
            comes to, or for the source's with its semantics.
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
        """The world of these options.

        Raises:
            InputError: Naming a bad number.
        """
        return treasure_hunt(self.version, n_agents=self.agents or None, horizon=self.turns or None)

    def learner(self) -> IQN:
        """The learner of every agent."""
        semantics = self.version if self.semantics == "original" else "mended"
        settings = {**LEARNERS[self.version], "semantics": semantics}
        settings["prioritised"] = self.prioritised
        # Three summed rewards at 0.99 were not shown to learn: docs/pages/how-to/treasure-hunt.md.
        usual = {} if self.semantics == "original" else {"n_step": 1, "discount": 0.99**3}
        given = {"n_step": self.n_step, "discount": self.discount}
        settings |= usual | {name: value for name, value in given.items() if value}
        if self.batch_size:
            settings["batch_size"] = self.batch_size
        return IQN(capacity=self.capacity, learning_rate=self.learning_rate, **settings)


def hunt(
    options: HuntOptions, *, say: Callable[[str], None] = print, stop: Callable[[], bool]
) -> str:
    """Trains, leaves ``epochs.jsonl``, ``checkpoints`` and ``hunt.json`` in the folder.

    Args:
        options: Options of the training.
        say: Told how it goes.
        stop: Asked once a chunk; true ends the training, which can be continued.

    Returns:
        One paragraph that says what was learned.

    Raises:
        InputError: Naming a bad number, or what of an earlier run in the folder differs.
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
