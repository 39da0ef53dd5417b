"""The log that a plant model is learned from, and what is declared of its plant."""

from pathlib import Path
from typing import NamedTuple

from neorl_agents.retuning import PlantFacts
from neorl_core import InputError, Policy
from neorl_envs import Dataset, environment_names, make, read_dataset
from neorl_train.experience._source import source_named
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import RECORD


class KnownLog(NamedTuple):
    """A log, and what is known of the plant that filled it.

    Attributes:
        dataset: The log.
        facts: What a built-in plant declares; nothing of another.
        controllers: Its tunings by name; none of another.
    """

    dataset: Dataset
    facts: PlantFacts
    controllers: dict[str, Policy]


def known_log(path: Path) -> KnownLog:
    """A log by its file or by the run that learned from it.

    Args:
        path: Dataset file, or directory of a run.

    Returns:
        The log, and what a built-in plant declares where it filled the log.

    Raises:
        InputError: If there is neither, or the file cannot be read.
    """
    if path.is_dir() and (path / RECORD).is_file():
        path = _log_of(RunDirectory(path.absolute()))
    elif not path.exists():
        hint = ""
        if str(path) in environment_names():
            hint = f"; record one with `neorl-envs collect {path} --out log.h5`"
        raise InputError(f"{path}: there is no such log or run{hint}")
    dataset = read_dataset(path)
    name = dataset.attributes.get("provenance", {}).get("environment", "")
    if name not in environment_names():
        return KnownLog(dataset, PlantFacts(), {})
    plant = make(name)
    facts = PlantFacts(
        tuple(plant.action_rates()), tuple(plant.exogenous), plant.interlock, plant.objective
    )
    return KnownLog(dataset, facts, dict(plant.tunings()))


def _log_of(run: RunDirectory) -> Path:
    from neorl_agents import ALGORITHMS
    from neorl_train.configuration._sections import config_type
    from neorl_train.configuration._toml import load_toml

    config = load_toml(run.config, config_type(ALGORITHMS)())
    return source_named(config.data.source).log_file(run.dataset)
