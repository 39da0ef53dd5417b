"""Parses the arguments of a command that trains into its flags and its configuration."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.run_argument import TrainingFlags, named_run
from neorl_train.configuration._sections import Config, config_type
from neorl_train.configuration._toml import load_toml
from neorl_train.configuration._untrained import refuse_untrained, require_importable

FlagsType = TypeVar("FlagsType", bound=TrainingFlags)
Part = TypeVar("Part")


@dataclasses.dataclass(frozen=True)
class RunFlags(TrainingFlags):
    """What ``run`` prints and records.

    Attributes:
        dry_run: Check everything, print the complete configuration and train nothing.
    """

    dry_run: bool = False


@dataclasses.dataclass(frozen=True)
class RunOptions(RunFlags, Config):
    """The options of ``run``."""


@dataclasses.dataclass(frozen=True)
class FineTuningOptions(TrainingFlags, Config):
    """The options of ``finetune``."""


def read_run_options(
    arguments: list[str], algorithms: Mapping[str, type]
) -> tuple[Config, RunFlags]:
    """The configuration and the flags of ``neorl-train run``.

    The configuration is not yet validated. An option of a learner that is not trained is refused.
    """
    default = config_type(algorithms)()
    words = list(arguments)
    require_importable(default, words)
    if word := _take_word(words, RunFlags):
        default = _with_first_word(word, default)
    return _config_and_flags(default, words, RunFlags(), "neorl-train run")


def read_fine_tuning_options(
    arguments: list[str], algorithms: Mapping[str, type]
) -> tuple[Config, TrainingFlags]:
    """The configuration and the flags of ``neorl-train finetune``.

    It is the configuration of the named run with the given options, not yet validated.
    """
    words = list(arguments)
    require_importable(config_type(algorithms)(), words)
    run = _take_word(words, TrainingFlags)
    if not run:
        raise InputError(
            "finetune takes the directory of a finished run first, for example "
            "`neorl-train finetune runs/0001`"
        )
    from neorl_train._job.offline_run import fine_tuning_defaults

    default = fine_tuning_defaults(str(named_run(run)))
    if file := _take_word(words, TrainingFlags):
        default = load_toml(Path(file), default)
    config, flags = _config_and_flags(default, words, TrainingFlags(), "neorl-train finetune RUN")
    chunk_given = any(word.startswith("--training.chunk") for word in words)
    return (config if chunk_given else _with_fitting_chunk(config)), flags


def _take_word(arguments: list[str], flags: type) -> str:
    """Removes the first word, which only flags may precede; empty if an option comes first."""
    names = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(flags)}
    first = next((i for i, word in enumerate(arguments) if word not in names), None)
    return "" if first is None or arguments[first].startswith("-") else arguments.pop(first)


def _config_and_flags(
    default: Config, arguments: list[str], flags: FlagsType, program: str
) -> tuple[Config, FlagsType]:
    """Parses the options and flags of a command that trains."""
    kind = dataclasses.make_dataclass(
        "Options", [], bases=(type(flags), type(default)), frozen=True
    )
    given = kind(**fields_of(default), **fields_of(flags))
    options = parse_options(kind, arguments, program=program, default=given)
    config = part_of(options, default)
    refuse_untrained(config, arguments)
    return config, part_of(options, flags)


def _with_first_word(word: str, default: Config) -> Config:
    """The configuration in a file, or the default one for the named log or plant."""
    if word.endswith(".toml"):
        return load_toml(Path(word), default)
    from neorl_train.data._source import FileSource, source_named

    source = source_named(word)
    if isinstance(source, FileSource) and not source.path.exists():
        raise InputError(
            f"{word}: there is no such log; give a dataset file, or a plant that "
            "`neorl-train list` names"
        )
    return dataclasses.replace(default, data=dataclasses.replace(default.data, source=word))


def _with_fitting_chunk(config: Config) -> Config:
    """Sets the chunk to its largest divisor that divides the updates, if that is allowed."""
    training, settings = config.training, config.finetune
    steps = settings.environments * settings.updates_per_step
    if training.updates < 1 or training.chunk < 1 or steps < 1:
        return config
    chunk = math.gcd(training.updates, training.chunk)
    if chunk % steps:
        return config
    return dataclasses.replace(config, training=dataclasses.replace(training, chunk=chunk))


def part_of(options: Any, part: Part) -> Part:
    """The values that options have for the fields of a part of them."""
    return type(part)(**{name: getattr(options, name) for name in fields_of(part)})


def fields_of(options: Any) -> dict[str, Any]:
    """The values of the fields of a dataclass, by name."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
