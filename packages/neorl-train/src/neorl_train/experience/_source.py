"""Where experience comes from: an environment by name, or a dataset file."""

import os
from pathlib import Path

import jax
from jaxtyping import PRNGKeyArray

from neorl_core import InputError
from neorl_core.boundary import unknown_name
from neorl_envs import environment_names, make
from neorl_envs.ingest import log_suffixes
from neorl_envs.plants import Plant
from neorl_train.configuration._sections import Config


def is_environment(source: str) -> bool:
    """Whether a source names an environment; otherwise it is the path of a file.

    Raises:
        InputError: If it is neither; the nearest environment is named.
    """
    if source in environment_names():
        return True
    if Path(source).exists() or source.endswith(log_suffixes()) or os.sep in source:
        return False
    raise unknown_name("environment (and no such dataset file)", source, environment_names())


def plant(source: str) -> Plant | None:
    """The environment of a source, or ``None`` where the source is a file."""
    return make(source) if is_environment(source) else None


def declared_penalty(config: Config, names: tuple[str, ...]) -> dict[str, float]:
    """Penalty of every cost, by name: as configured, else as the environment declares it.

    Args:
        config: Configuration, validated.
        names: Names of the cost channels.

    Raises:
        InputError: If a cost has no penalty, or a penalty no cost.
    """
    environment = plant(config.data.source)
    weights = {} if environment is None else environment.penalty_weights()
    declared = {**weights, **config.penalty}
    for name in config.penalty:
        if name not in names:
            raise unknown_name("cost in penalty", name, names)
    missing = [name for name in names if name not in declared]
    if missing:
        raise InputError(
            f"penalty.{missing[0]} is not declared; say what one unit of that cost takes off the "
            f"reward, for example `--penalty {missing[0]} 0.5`"
        )
    return {name: declared[name] for name in names}


def data_keys(config: Config) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of the collection and of the split."""
    collect, split = jax.random.split(jax.random.key(config.data.seed))
    return collect, split
