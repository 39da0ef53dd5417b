"""The treasure hunt as a command: trains, stores, and summarises what was learned."""

from collections.abc import Callable

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import write_json
from neorl_envs.worlds import TreasureHunt
from neorl_train.populations._epochs import Epochs
from neorl_train.populations._hunt_options import HuntOptions
from neorl_train.populations._run import (
    population_checkpoints,
    random_rewards,
    train_population,
)
from neorl_train.runs import Records, file_lock, read_records


def hunt(
    options: HuntOptions, *, print_line: Callable[[str], None] = print, stop: Callable[[], bool]
) -> str:
    """Trains, and writes ``epochs.jsonl``, ``checkpoints`` and ``hunt.json`` into the folder.

    Args:
        options: Options of the training.
        print_line: Called with progress messages.
        stop: Called once per chunk; true ends the training, which can be continued.

    Returns:
        One paragraph that summarises what was learned.

    Raises:
        InputError: Names an invalid number, or how an earlier run in the folder differs.
    """
    world, learner = options.world(), options.learner()
    options.out.mkdir(parents=True, exist_ok=True)
    with file_lock(options.out / "lock"):
        checkpoints = population_checkpoints(
            options.out / "checkpoints", world, learner, seed=options.seed, print_line=print_line
        )
        lines = Records(options.out / "epochs.jsonl")
        is_cleared = [False]

        def watch(first: int, epochs: Epochs) -> None:
            if not is_cleared[0]:
                is_cleared[0] = True
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
            print_line(f"epoch {reached}/{options.epochs}: {mean:.1f} an epoch, over all agents")

        try:
            trained = train_population(
                world, learner, seed=options.seed, epochs=options.epochs, chunk=options.chunk,
                order=options.order, checkpoints=checkpoints, watch=watch, stop=stop,
            )  # fmt: skip
        finally:
            lines.close()
        return _result(options, world, trained.epoch, trained.finished)


def _result(options: HuntOptions, world: TreasureHunt, epoch: int, finished: bool) -> str:
    rewards = np.array([sum(line["reward"]) for line in read_records(options.out / "epochs.jsonl")])
    if not len(rewards):
        raise InputError(
            f"{options.out}: the training was stopped before the first epoch; repeat the command"
        )
    last = rewards[-max(1, len(rewards) // 10) :]
    random = random_rewards(world, seed=options.seed, episodes=100, order=options.order).sum(axis=1)
    result = {
        "epochs": epoch,
        "finished": finished,
        "reward_last_tenth": float(last.mean()),
        "reward_random": float(random.mean()),
        "reward_random_standard_error": float(random.std(ddof=1) / np.sqrt(len(random))),
    }
    write_json(options.out / "hunt.json", result)
    stopped = "" if finished else " (stopped; the same command continues it)"
    return (
        f"{epoch} epochs{stopped}: {last.mean():.1f} an epoch over the last {len(last)} epochs, "
        f"all agents together; random play {random.mean():.1f} ± "
        f"{result['reward_random_standard_error']:.1f} (standard error of 100 epochs)\nwritten to "
        f"{options.out}"
    )
