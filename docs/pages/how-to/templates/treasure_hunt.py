"""Train independent agents in the treasure hunt; the same command continues a stopped training.

python treasure_hunt.py hunts/0001
python treasure_hunt.py hunts/0002 --version 2a24efc --agents 10 --epochs 500

The folder then holds one line per epoch in epochs.jsonl and the newest checkpoints.
"""

import argparse
from contextlib import closing
from pathlib import Path

from neorl_agents.populations import IQN
from neorl_envs.worlds import treasure_hunt
from neorl_train.populations import (
    Epochs,
    population_checkpoints,
    random_rewards,
    train_population,
)
from neorl_train.runs import Records, file_lock, read_records

# IQN(semantics="head") has the source's defects.
LEARNERS = {
    "head": IQN(),
    "2a24efc": IQN(batch_size=256, acting_quantiles=256, epsilon=1.0, epsilon_decay=0.001),
}


def main() -> None:
    """Trains, writes the results of every chunk, and compares the agents with random play."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder; an existing one is continued")
    parser.add_argument("--version", choices=LEARNERS, default="head", help="version of the source")
    parser.add_argument("--agents", type=int, help="number of agents; by default the source's")
    parser.add_argument("--turns", type=int, help="turns per episode; by default the source's")
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--chunk", type=int, default=20, help="epochs between two checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    world = treasure_hunt(arguments.version, n_agents=arguments.agents, horizon=arguments.turns)
    learner = LEARNERS[arguments.version]
    arguments.out.mkdir(parents=True, exist_ok=True)
    records = arguments.out / "epochs.jsonl"
    with file_lock(arguments.out / "lock"), closing(Records(records)) as lines:

        def watch(first: int, epochs: Epochs) -> None:
            # A training that was killed may have written more lines than its checkpoint holds.
            lines.keep(lambda line: line["epoch"] < first)
            for number, (reward, loss) in enumerate(
                zip(epochs.reward, epochs.loss, strict=True), first
            ):
                lines.write({"epoch": number, "reward": reward.tolist(), "loss": loss.tolist()})
            lines.sync()
            mean = epochs.reward.sum(axis=1).mean()
            print(f"epoch {first + len(epochs.reward)}: {mean:.1f} an epoch, over all agents")

        train_population(
            world,
            learner,
            seed=arguments.seed,
            epochs=arguments.epochs,
            chunk=arguments.chunk,
            checkpoints=population_checkpoints(
                arguments.out / "checkpoints", world, learner, seed=arguments.seed
            ),
            watch=watch,
        )
    rewards = [sum(line["reward"]) for line in read_records(records)]
    last = rewards[-max(1, len(rewards) // 10) :]
    random = random_rewards(world, seed=arguments.seed).sum(axis=1)
    print(
        f"{sum(last) / len(last):.1f} an epoch over the last {len(last)} epochs, all agents "
        f"together; random play {random.mean():.1f} ± {random.std(ddof=1) / len(random) ** 0.5:.1f}"
    )


if __name__ == "__main__":
    main()
