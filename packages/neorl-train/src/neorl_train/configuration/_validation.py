"""A configuration from files and values, and what can be said of it without data."""

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from neorl_agents import ALGORITHMS, BaseLearner
from neorl_agents.learning import unfinished_schedules
from neorl_core import InputError
from neorl_core.infrastructure import require_settings, unknown_name
from neorl_envs.recording import QUALITIES
from neorl_train.configuration._classical import check_classical
from neorl_train.configuration._monitors import check_monitors, supervision_of
from neorl_train.configuration._sections import (
    Config,
    TrainingConfig,
    config_type,
    hyperparameters,
    load_toml,
    memory_bytes,
    memory_limit,
    update,
)


def validate(config: Config) -> None:
    """Checks every value that can be checked without the data.

    Args:
        config: Configuration as loaded.

    Raises:
        InputError: Names the first invalid field, what it is and what it must be.
    """
    for field in dataclasses.fields(config):
        # Of the learners only those that are trained or changed are checked, below.
        if field.name != "algorithms" and dataclasses.is_dataclass(getattr(config, field.name)):
            require_settings(getattr(config, field.name), field.name)
    training, data = config.training, config.data
    known = [field.name for field in dataclasses.fields(config.algorithms)]
    _require(bool(data.source), "data.source must name an environment or a dataset file")
    _require(
        data.steps != 0 or training.on == "plant",
        "data.steps must be at least 1, or -1 for the default, got 0",
    )
    if data.quality not in QUALITIES:
        raise unknown_name("data.quality", data.quality, QUALITIES)
    memory_bytes(data.memory)
    memory_limit(config.devices.memory)
    # The log in a file may declare what runs today, which is known when it is read.
    require_candidate(config, may_follow=Path(data.source).is_file())
    for name in training.algorithms:
        if name not in known:
            ALGORITHMS.find(name)  # raises with the reason if a distribution is broken
            raise unknown_name("algorithm", name, known)
    _require_distinct("training.algorithms", training.algorithms)
    _require_distinct("training.seeds", training.seeds)
    defaults = type(config.algorithms)()
    for name in known:
        learner = hyperparameters(config, name)
        if name in training.algorithms or changed_fields(learner, getattr(defaults, name)):
            _validate_hyperparameters(name, learner)
    for name in training.algorithms:
        _validate_length(name, hyperparameters(config, name), training)
    _validate_counts(config)
    check_classical(config.classical)
    check_monitors(config.monitors, algorithms=training.algorithms, seeds=len(training.seeds))
    # Traced, because an array would start JAX with one device, before a run can ask for one a seed.
    jax.eval_shape(lambda: supervision_of(config.supervisor, 1.0))
    _require_distinct("classical.controllers", config.classical.controllers)
    for name, value in config.penalty.items():
        _require(
            math.isfinite(value) and value >= 0,
            f"penalty.{name}, which one unit of that cost subtracts from the reward, must be a "
            f"finite number of at least 0, got {value}",
        )


def require_candidate(config: Config, *, may_follow: bool = False) -> None:
    """Refuses a run that neither trains a learner nor retunes a controller.

    Args:
        config: The configuration.
        may_follow: Whether the log may still declare a controller.

    Raises:
        InputError: Names the learners.
    """
    known = [field.name for field in dataclasses.fields(config.algorithms)]
    _require(
        bool(config.training.algorithms or config.retuning.controller or may_follow),
        "training.algorithms is empty, and no controller is retuned; name one or more of "
        f"{', '.join(known)}, or the controller as retuning.controller",
    )


def _validate_hyperparameters(name: str, algorithm: Any) -> None:
    """Also checks learners that are not trained, because a file may serve several runs."""
    try:
        algorithm.validate()
        require_settings(algorithm)  # which a learner's own method may leave out
    except ValueError as error:
        fault = str(error).removeprefix(f"{type(algorithm).__name__}.")
        raise InputError(f"algorithms.{name}.{fault}") from error


def _validate_length(name: str, algorithm: Any, training: TrainingConfig) -> None:
    per_update = algorithm.batches_per_update
    _require(
        training.chunk % per_update == 0,
        f"training.chunk must be a multiple of {per_update}, the critic steps of one update of "
        f"{name}, got {training.chunk}",
    )
    for field in unfinished_schedules(algorithm, training.updates):
        raise InputError(
            f"algorithms.{name}.{field} is {getattr(algorithm, field)}, and the run has "
            f"{training.updates} updates: its decay would end before the run does; give -1 for the "
            "length of the run"
        )


def _validate_counts(config: Config) -> None:
    training, interval = config.training, config.checkpoints.interval
    for name, value in (("training.updates", training.updates), ("checkpoints.interval", interval)):
        _require(
            value % training.chunk == 0,
            f"{name} must be a positive multiple of training.chunk = {training.chunk}, got {value}"
            "; take another number, or a --training.chunk that divides it",
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)


def _require_distinct(name: str, values: tuple) -> None:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    _require(not repeated, f"{name} names {', '.join(repeated)} twice")


def configure(
    file: str | os.PathLike[str] | None = None, /, **sections: Mapping[str, Any]
) -> Config:
    """The configuration of a run: the defaults, overridden by a file, then by given sections.

    Args:
        file: A TOML file, as for the command.
        **sections: Values by section, with the names of the file.

    Returns:
        The configuration, after every check that needs no data.

    Raises:
        InputError: If the file cannot be read, a section or key is unknown (the closest name is
            suggested), or a value has another type or is out of range.

    Example:
        >>> from neorl_train import configure
        >>> config = configure(
        ...     data={"source": "plant.h5"},
        ...     training={"algorithms": ["iql"], "seeds": [0, 1]},
        ...     algorithms={"iql": {"expectile": 0.8}},
        ... )
        >>> config.training.seeds, config.algorithms.iql.expectile
        ((0, 1), 0.8)
    """
    config = config_type(ALGORITHMS)()
    if file is not None:
        config = load_toml(Path(file), config)
    config = update(config, sections)
    validate(config)
    return config


OPTION = re.compile(r"--algorithms\.([^.=]+)\.[^=]+")
"""Pattern of a learner's option as typed."""


def require_importable(config: Config, arguments: Iterable[str]) -> None:
    """Raises if options are given for a learner that has no section: its distribution is broken."""
    sections = set(_names(config.algorithms))
    for word in arguments:
        option = OPTION.match(word)
        name = option[1].replace("-", "_") if option else ""
        if name in ALGORITHMS and name not in sections:
            ALGORITHMS.find(name)


def refuse_untrained(config: Config, arguments: Iterable[str]) -> None:
    """Refuses an option that was typed for a learner that is not trained.

    A file may serve several runs, so unused sections in it are allowed (:func:`untrained_notes`);
    an option typed for this one run is not.

    An unknown name among the trained learners is left to :func:`validate`.
    """
    trained = config.training.algorithms
    if not set(trained) <= set(_names(config.algorithms)):
        return
    for word in arguments:
        option = OPTION.match(word)
        name = option[1].replace("-", "_") if option else ""
        if option and name not in trained:
            raise InputError(
                f"{option[0]} is an option of {name}, which this run does not train: it trains "
                f"{', '.join(trained)}; leave it out, or train {name} too with "
                f"`--training.algorithms {' '.join((*trained, name))}`"
            )


def untrained_notes(config: Config, usual: Any) -> list[str]:
    """Notes about learners that are configured but not trained.

    ``usual`` has the sections of all learners if nothing is configured: the defaults, or for a
    fine-tuning those of its run.
    """
    notes = []
    for name in _names(config.algorithms):
        settings, defaults = hyperparameters(config, name), getattr(usual, name)
        changed = changed_fields(settings, defaults)
        if changed and name not in config.training.algorithms:
            notes.append(
                f"algorithms.{name} has {', '.join(changed)}, but this run does not train {name}, "
                f"so the settings have no effect; add {name} to training.algorithms to train it too"
            )
    return notes


def changed_fields(settings: Any, defaults: Any, where: str = "") -> list[str]:
    """Dotted names of the fields that differ; nested settings are compared field by field."""
    changed = []
    for field in _names(settings):
        value, default = getattr(settings, field), getattr(defaults, field)
        if dataclasses.is_dataclass(value):
            changed += changed_fields(value, default, f"{where}{field}.")
        elif value != default:
            changed.append(f"{where}{field}")
    return changed


def _names(section: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(section)]


SIZES = ("networks.hidden", "steps.batch_size")


def size_notes(learners: Mapping[str, Any]) -> list[str]:
    """Says so if learners that are compared have networks or batches of different sizes.

    The defaults of a run are small for some learners and those of the papers for the others, so a
    comparison with the defaults would also compare sizes.

    Learners that are not made with ``BaseLearner`` have no common sizes and are left out.
    """
    names: dict[str, list[str]] = {}
    for name, learner in learners.items():
        if isinstance(learner, BaseLearner):
            names.setdefault(_sizes(learner), []).append(name)
    if len(names) < 2:
        return []
    groups = "; ".join(f"{', '.join(group)}: {sizes}" for sizes, group in names.items())
    return [
        f"the learners differ in size ({groups}); to compare the methods alone, give all of them "
        f"the same {' and '.join(SIZES)}"
    ]


def _sizes(learner: BaseLearner) -> str:
    hidden = " ".join(map(str, learner.networks.hidden))
    return f"hidden layers of {hidden}, batches of {learner.steps.batch_size}"
