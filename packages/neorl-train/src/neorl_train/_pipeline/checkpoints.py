"""The checkpoints of one learner of a run."""

from collections.abc import Callable

from neorl_train.configuration._sections import Config, config_hash
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.runs._directory import RunDirectory


def run_checkpoints(
    run: RunDirectory, config: Config, name: str, dataset_hash: str, say: Callable[[str], None]
) -> Checkpoints:
    """Checkpoints that only this run, configuration, log and learner can go on from.

    Args:
        run: Run directory.
        config: Its configuration.
        name: The learner.
        dataset_hash: Content hash of the log.
        say: Called with what a person should read.
    """
    return Checkpoints(
        run.checkpoints(name),
        identity={
            "run": run.record()["id"],
            "config_hash": config_hash(config),
            "dataset_hash": dataset_hash,
            "algorithm": name,
        },
        interval=config.checkpoints.interval,
        keep=config.checkpoints.keep,
        say=say,
    )
