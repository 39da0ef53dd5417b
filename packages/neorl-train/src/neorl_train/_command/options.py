"""Parses the arguments of a subcommand into its flags and its configuration."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.run_argument import FLAGS, Flags, flag_field, named_run
from neorl_train.configuration._sections import Config, config_type
from neorl_train.configuration._toml import load_toml
from neorl_train.configuration._untrained import refuse_untrained, require_importable

USAGE = """neorl-train run [CONFIG.toml | LOG | PLANT] [--OPTION VALUE ...]

Collects or reads a log, trains every algorithm on it, evaluates the policies and writes a verdict
and a report into a numbered run directory. Values on the command line override those of the file,
which override the defaults below. With --training.on plant, learners are trained on a simulated
plant itself. The first word may also name a log or a plant: the same as
--data.source with the defaults.

examples:
  neorl-train run
  neorl-train run CSTR-v0 --retuning.controller incumbent
  neorl-train run --training.algorithms iql --training.seeds 0 1
  neorl-train run CSTR-v0 --training.on plant --training.algorithms iql
  neorl-train run --data.source ../plant/log.h5 --penalty overheating 0.5
  neorl-train run log.h5 --evaluation.environment CSTR-v0    (judge in a simulator of the log)
  neorl-train run my.toml --algorithms.td3-bc.alpha 1.0 --output.no-tracking
  neorl-train run my.toml --devices.batch 4
  neorl-train run my.toml --dry-run          (print the complete configuration, train nothing)

several processes train one run if these variables are set in each (two on one machine):
  export NEORL_COORDINATOR=127.0.0.1:8476 NEORL_PROCESSES=2
  NEORL_PROCESS=1 neorl-train run my.toml &
  NEORL_PROCESS=0 neorl-train run my.toml
"""

FINE_TUNING_USAGE = """neorl-train finetune RUN [CONFIG.toml] [--OPTION VALUE ...]

Trains the learners of a finished run further on its SIMULATED plant: it collects data with the
exploring policy behind the declared guard and updates on batches of which half comes from the log.
Never explore on a real plant. The result is a new run, with the policies before and after, the
regret, and the number of limit violations during training. Options keep the values of RUN; its
log, penalties and networks cannot be changed. training.updates counts online critic steps;
training.chunk is that of RUN, or a divisor of it that fits the updates, and a multiple of
finetune.environments.

examples:
  neorl-train finetune runs/0001
  neorl-train finetune runs/0001 --training.algorithms iql --training.updates 10000
  neorl-train finetune runs/0001 --finetune.share 0.25 --finetune.environments 20
  neorl-train finetune runs/0002 --finetune.environment CSTR-v0    (RUN was trained on a file)
"""


def read_run_options(arguments: list[str], algorithms: Mapping[str, type]) -> tuple[Config, Flags]:
    """The configuration and the flags of ``neorl-train run``.

    Args:
        arguments: Optionally a file name (flags may precede it), then options.
        algorithms: Class of every algorithm by name.

    Returns:
        The configuration, not yet validated, and the flags.

    Raises:
        InputError: If anything is wrong, in one line that names the closest option. An option of a
            learner that is not trained is refused too.
        SystemExit: After ``--help``.
    """
    default = config_type(algorithms)()
    words = list(arguments)
    require_importable(default, words)
    first = next((i for i, word in enumerate(words) if word not in FLAGS), None)
    if first is not None and not words[first].startswith("-"):
        default = _with_first_word(words.pop(first), default)
    return _config_and_flags(default, words, program="neorl-train run", description=USAGE)


def read_fine_tuning_options(
    arguments: list[str], algorithms: Mapping[str, type]
) -> tuple[Config, Flags]:
    """The configuration and the flags of ``neorl-train finetune``.

    Args:
        arguments: The directory of a finished run, then optionally a file name, then options.
        algorithms: Class of every algorithm by name.

    Returns:
        The configuration of that run updated with the given options, not yet validated, and the
        flags.

    Raises:
        InputError: If no run is named, it cannot be fine-tuned, or an option is wrong; one line.
        SystemExit: After ``--help``.
    """
    flag_words = [word for word in arguments if word in FLAGS]
    words = [word for word in arguments if word not in FLAGS]
    default = config_type(algorithms)()
    require_importable(default, words)
    if not {"-h", "--help"} & set(words):
        if not words or words[0].startswith("-"):
            raise InputError(
                "finetune takes the directory of a finished run first, for example "
                "`neorl-train finetune runs/0001`"
            )
        from neorl_train._pipeline.offline_run import continued

        default = continued(str(named_run(words.pop(0))))
        if words and not words[0].startswith("-"):
            default = load_toml(Path(words.pop(0)), default)
    program = "neorl-train finetune RUN"
    config, flags = _config_and_flags(
        default, [*words, *flag_words], program=program, description=FINE_TUNING_USAGE
    )
    chunk_given = any(word.startswith("--training.chunk") for word in words)
    return (config if chunk_given else _with_fitting_chunk(config)), flags


def _config_and_flags(
    default: Config, words: list[str], *, program: str, description: str
) -> tuple[Config, Flags]:
    """Parses the options and flags of a command that trains."""
    kind = with_flags(type(default))
    options = parse_options(
        kind,
        words,
        program=program,
        default=kind(**_fields(default)),
        description=description,
        by_section=True,
    )
    flags = Flags(**{name: getattr(options, name) for name in _fields(Flags())})
    config = type(default)(**{name: getattr(options, name) for name in _fields(default)})
    refuse_untrained(config, words)
    return config, flags


def _with_first_word(word: str, default: Config) -> Config:
    """The configuration in a file, or the default one for the named log or plant."""
    if word.endswith(".toml"):
        return load_toml(Path(word), default)
    from neorl_train.experience._source import FileSource, source_named

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


def with_flags(kind: type[Config], *, without: Collection[str] = ()) -> type[Config]:
    """The configuration class with the flags added to its sections, for one parser of both.

    Args:
        kind: The configuration class.
        without: Flags that the command does not accept.
    """
    import tyro

    fields = []
    for field in dataclasses.fields(Flags):
        if field.name in without:
            continue
        help_text = field.metadata["help"]
        marks = tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help=help_text)
        fields.append((field.name, Annotated[(bool, *marks)], flag_field(help_text)))
    options_type = dataclasses.make_dataclass("RunOptions", fields, bases=(kind,), frozen=True)
    options_type.__doc__ = kind.__doc__
    return options_type


def _fields(options: Any) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
