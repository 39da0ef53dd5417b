"""``neorl-train run``, ``finetune`` and ``resume``: train, evaluate, decide and report."""

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.shared import (
    RunArgument,
    TrainingFlags,
    named_run,
    print_json,
    print_results,
)
from neorl_train._process.control import join_processes
from neorl_train._process.progress import IMPORTS, REST_OF_IMPORTS, Reporter, Timings
from neorl_train.configuration._sections import (
    Config,
    DevicesConfig,
    config_hash,
    config_to_dict,
    config_type,
    dump_toml,
    load_toml,
)
from neorl_train.configuration._validation import refuse_untrained, require_importable

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
  neorl-train run ../plant/log.h5 --penalty overheating 0.5
  neorl-train run log.h5 --evaluation.environment CSTR-v0    (judge in a simulator of the log)
  neorl-train run log.hdf5 --evaluation.environment gym:Hopper-v5    (score in Gymnasium's)
  neorl-train run my.toml --algorithms.td3-bc.alpha 1.0 --output.no-tracking
  neorl-train run my.toml --devices.batch 4
  neorl-train run my.toml --dry-run          (print the complete configuration, train nothing)

several processes train one run if these variables are set in each (two on one machine):
  export NEORL_COORDINATOR=127.0.0.1:8476 NEORL_PROCESSES=2
  NEORL_PROCESS=1 neorl-train run my.toml &
  NEORL_PROCESS=0 neorl-train run my.toml
"""


FINETUNE_USAGE = """neorl-train finetune RUN [CONFIG.toml] [--OPTION VALUE ...]

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


@dataclasses.dataclass(frozen=True)
class Devices:
    """Devices used for training.

    Attributes:
        batch: Another number of devices that share each batch, which rounds differently; that of
            the run by default.
    """

    batch: int | None = None


@dataclasses.dataclass(frozen=True)
class ResumeOptions(TrainingFlags, RunArgument):
    """Continues an interrupted run with bit-identical results.

    Several processes continue it together if NEORL_COORDINATOR and the other variables that
    `neorl-train run --help` shows are set.

    example: neorl-train resume runs/0001
    """

    devices: Devices = Devices()


def command(arguments: list[str]) -> None:
    """``neorl-train run [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start(IMPORTS)
    with timings.stage("configuration"):
        config, flags = read_run_options(arguments, ALGORITHMS)
    note = single_seed_note(config, arguments)
    if note and not flags.json:
        print(note, file=sys.stderr)
    if flags.dry_run:
        _print_resolved(config, as_json=flags.json)
        return
    # Imported here because a misspelt option does not need the training code.
    with timings.stage(REST_OF_IMPORTS):
        from neorl_train._job.job import run_job
        from neorl_train._job.processes import follow
        from neorl_train.configuration._validation import validate
        from neorl_train.training._processes import all_or_none, leads, require_equal
    join_processes()
    with all_or_none("check its configuration"):
        validate(config)
    require_equal(config_hash(config), "configuration")
    if not leads():
        follow()
        return
    run = run_job(config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)


def single_seed_note(config: Config, arguments: Sequence[str]) -> str:
    """A note for users who wrote ``--training.seeds 4`` but wanted four seeds; otherwise empty."""
    seeds = config.training.seeds
    if "--training.seeds" not in arguments or len(seeds) != 1 or seeds[0] < 2:
        return ""
    seed_list = " ".join(map(str, range(seeds[0]))) if seeds[0] <= 16 else "0 1 2 3"
    return (
        f"--training.seeds {seeds[0]} trains one seed, number {seeds[0]}; for "
        f"{len(seed_list.split())} seeds write --training.seeds {seed_list}"
    )


def _print_resolved(config: Config, *, as_json: bool) -> None:
    """Prints the configuration that the run would use, after every check that needs no training."""
    from neorl_train._job.resolution import resolve
    from neorl_train.configuration._validation import validate

    validate(config)
    complete = resolve(config)
    for note in complete.notes:
        print(note, file=sys.stderr)
    content = config_to_dict(complete.run.config)
    if as_json:
        print_json("configuration", content)
    else:
        print(dump_toml(content), end="")


def finetune(arguments: list[str]) -> None:
    """``neorl-train finetune RUN [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start(IMPORTS)
    with timings.stage("configuration"):
        config, flags = read_fine_tuning_options(arguments, ALGORITHMS)
    with timings.stage(REST_OF_IMPORTS):  # not needed for a misspelt option
        from neorl_train._job.job import run_job
    run = run_job(config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)


def resume(arguments: list[str]) -> None:
    """``neorl-train resume RUN``."""
    flags = parse_options(ResumeOptions, arguments, program="neorl-train resume")
    run = flags.directory("resume")
    from neorl_train._job.job import resume_job
    from neorl_train._job.processes import follow
    from neorl_train.configuration._validation import configure, validate
    from neorl_train.training._processes import all_or_none, leads, require_equal

    timings = Timings.since_start(IMPORTS)
    join_processes()
    with all_or_none("read the run directory"):
        run.record()
        config = configure(run.config)
        validate(config)
    require_equal(config_hash(config), "configuration")
    if not leads():
        follow()
        return
    if flags.devices.batch is not None:
        config = dataclasses.replace(config, devices=DevicesConfig(batch=flags.devices.batch))
        validate(config)
    resume_job(run, config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)


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
    from neorl_train.data._source import FileSource, declares_todays_controller, source_named

    source = source_named(word)
    if isinstance(source, FileSource) and not source.path.exists():
        raise InputError(
            f"{word}: there is no such log; give a dataset file, or a plant that "
            "`neorl-train list` names"
        )
    named = dataclasses.replace(default, data=dataclasses.replace(default.data, source=word))
    if isinstance(source, FileSource) and declares_todays_controller(source.path):
        # Its controller is retuned, and a learner is trained only if somebody asks for one.
        training = dataclasses.replace(named.training, algorithms=())
        return dataclasses.replace(named, training=training)
    return named


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
