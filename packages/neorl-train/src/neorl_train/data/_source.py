"""Sources of experience: a log in a file, or a simulated plant, whose collected logs are kept."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_core.infrastructure import replacing, unknown_name
from neorl_core.infrastructure.command_line import cache_directory, one_line
from neorl_envs import Dataset, collect_log, make, read_dataset, write_dataset
from neorl_envs.blocks import Constant
from neorl_envs.datasets import require_content_hash, stored_bytes, todays_controller
from neorl_envs.ingest import log_suffixes, reader_name
from neorl_envs.plants import PLANTS, Plant, SimulatedPlant, is_plant, plant_origin
from neorl_envs.recording import quality
from neorl_train.configuration._online import FineTuningConfig
from neorl_train.configuration._sections import (
    PEAK,
    DataConfig,
    EvaluationConfig,
    stays_on_disk,
)
from neorl_train.runs._directory import LOG_CACHE


@dataclasses.dataclass(frozen=True)
class PlantSource:
    """A simulated plant, on which a log is collected or learners are trained.

    Attributes:
        name: Name of the environment.
        constants: Factors on its declared constants.
    """

    name: str
    constants: tuple[tuple[str, float], ...] = ()

    def simulator(self) -> Plant:
        """The plant itself."""
        return changed_plant(self.name, dict(self.constants))

    def log_file(self, run_dataset: Path) -> Path:
        """Path of a run's log, which lies in the run directory."""
        return run_dataset


@dataclasses.dataclass(frozen=True)
class FileSource:
    """A log in a file; its plant is not available for trials.

    Attributes:
        path: Dataset file, the manifest of several files, or a file that a reader supports.
    """

    path: Path

    def simulator(self) -> None:
        """Always ``None``."""

    def log_file(self, run_dataset: Path) -> Path:
        """Path of a run's log, which is the user's file."""
        return self.path.absolute()


RunSource: TypeAlias = PlantSource | FileSource


def source_named(name: str, constants: Mapping[str, float] = MappingProxyType({})) -> RunSource:
    """The source that a configuration names.

    Args:
        name: Name of an environment, path of a co-simulation unit, or path of a file.
        constants: Factors on the declared constants of an environment.

    Raises:
        InputError: If it is neither (the closest environment is suggested), or if constants are
            given for a log.
    """
    if is_plant(name):
        return PlantSource(name, tuple(sorted(constants.items())))
    if constants:
        raise InputError(
            f"data.constants is given, but {name} is not a simulated plant; leave data.constants "
            "out"
        )
    if Path(name).exists() or name.endswith(log_suffixes()) or os.sep in name:
        return FileSource(Path(name))
    if Path(name).suffix:
        raise InputError(f"there is no file {name}")
    fault = unknown_name("environment (and no such dataset file)", name, PLANTS)
    raise InputError(f"{fault}; a plant of your own is installed with an entry point neorl.plants")


def declares_todays_controller(path: Path) -> bool:
    """Whether a log in a file declares a loop for every action, so that a run can retune them.

    A file that cannot be read declares nothing; what is wrong with it is said when a run reads it.
    """
    try:
        if not path.is_file() or reader_name(path) != "neorl":
            return False
        dataset = read_dataset(path, memory_map=True)
    except InputError:
        return False
    moved = {loop["manipulated"] for loop in todays_controller(dataset).loops}
    return moved >= {channel.name for channel in dataset.spec.action}


def is_streamed(data: DataConfig, path: Path) -> bool:
    """Whether a run's log stays in its file because memory is too small for it."""
    try:
        return stays_on_disk(data.memory, stored_bytes(path))
    except OSError:  # a Minari folder has no size; the reader reports what is missing
        return False


def read_log(data: DataConfig, path: Path) -> Dataset:
    """Reads the log of a run with its hash checked; it is memory-mapped if it does not fit.

    Raises:
        InputError: If it cannot be read, or its format cannot be memory-mapped.
    """
    if not is_streamed(data, path):
        return read_dataset(path)
    if reader_name(path) not in ("neorl", "shards", ""):
        raise InputError(
            f"{path}: in memory it takes about {PEAK * stored_bytes(path) / 1e9:.3g} GB, more than "
            f"data.memory = {data.memory}, and only neorl's own dataset files can be read in "
            "blocks; convert the file once with write_dataset(new, read_dataset(old)), or raise "
            "data.memory"
        )
    dataset = read_dataset(path, memory_map=True)
    require_content_hash(dataset, str(path))
    return dataset


def simulator(
    data: DataConfig, evaluation: EvaluationConfig, finetune: FineTuningConfig
) -> Plant | None:
    """The plant on which policies of a run can act; ``None`` if there is only a log.

    It is the environment that generated the log, or the one that an evaluation or a fine-tuning
    names for a log in a file. A Gymnasium environment is no plant: it has no controllers.

    Raises:
        InputError: If the source is neither an environment nor a file, an option names no
            environment, or it names another one than the source or the other option.
    """
    source = source_named(data.source, data.constants)
    judge, trainer = evaluation.environment, finetune.environment
    if judge and not evaluation.is_gymnasium and not is_plant(judge):
        fault = unknown_name("simulated plant as evaluation.environment", judge, PLANTS)
        raise InputError(f"{fault}; a Gymnasium environment is named gym:ID or gym:MODULE:ID")
    if judge and isinstance(source, PlantSource) and judge != source.name:
        raise InputError(
            f"evaluation.environment is {judge}, but data.source is the simulated plant "
            f"{source.name}, on which the run is judged anyway; leave evaluation.environment out"
        )
    if judge and trainer and judge != trainer:
        raise InputError(
            f"evaluation.environment is {judge}, but finetune.environment is {trainer}, and a "
            "fine-tuning is judged on the plant on which it trains; leave one of them out"
        )
    no_plant = isinstance(source, PlantSource) or evaluation.is_gymnasium
    named = trainer or ("" if no_plant else judge)
    return source_named(named).simulator() if named else source.simulator()


def known_plant(environment: Plant | None, dataset: Dataset | None) -> Plant | None:
    """The plant of a run, or the registered plant on which its log was recorded.

    Returns:
        The plant; ``None`` if it is not known, or if the log was given other channels or units
        since, for which the declarations of the plant do not hold.
    """
    if environment is not None or dataset is None:
        return environment
    name = dataset.attributes.get("provenance", {}).get("environment")
    plant = make(name) if name in PLANTS else None
    same = plant is not None and _names_and_units(plant.spec) == _names_and_units(dataset.spec)
    return plant if same else None


def _names_and_units(spec: Spec) -> list[tuple[str, str]]:
    channels = (*spec.obs, *spec.action, *spec.cost)
    return [(channel.name, channel.unit) for channel in channels]


def declared_penalty(
    penalty: Mapping[str, float], environment: Plant | None, names: tuple[str, ...]
) -> dict[str, float]:
    """Penalty of every cost, by name: as configured, otherwise as the environment declares it.

    Args:
        penalty: The configured ones.
        environment: Plant of the run, if there is one.
        names: Names of the cost channels.

    Raises:
        InputError: If a cost has no penalty, or a penalty belongs to no cost.
    """
    weights = {} if environment is None else environment.penalty_weights()
    declared = {**weights, **penalty}
    for name in penalty:
        if name not in names:
            raise unknown_name("cost in penalty", name, names)
    missing = [name for name in names if name not in declared]
    if missing:
        single = len(missing) == 1
        pairs = {**penalty, **dict.fromkeys(missing, 0.5)}
        raise InputError(
            f"penalty.{' and penalty.'.join(missing)} {'is' if single else 'are'} not declared; "
            f"state how much one unit of {'that cost' if single else 'each cost'} subtracts from "
            "the reward, for example "
            f"`--penalty {' '.join(f'{name} {value:g}' for name, value in pairs.items())}`"
        )
    return {name: declared[name] for name in names}


def data_keys(data: DataConfig) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys for the collection and for the split."""
    collect, split = jax.random.split(jax.random.key(data.seed))
    return collect, split


ADVICE = "name the simulator of the plant that the log was recorded on"


def require_same_channels(
    simulator: Spec, log: Spec, environment: str, advice: str = ADVICE
) -> None:
    """Refuses a simulated plant whose channels differ from those of a log and its policies.

    Cost limits may differ, because they belong to the run.
    """
    for field, kind in (("obs", "observed"), ("action", "action"), ("cost", "cost")):
        simulated, recorded = getattr(simulator, field), getattr(log, field)
        if field == "cost":
            simulated, recorded = _without_limits(simulated), _without_limits(recorded)
        if len(simulated) != len(recorded):
            raise InputError(
                f"{environment} has {len(simulated)} {kind} channels, and the log and its policies "
                f"have {len(recorded)}; {advice}"
            )
        for channel, logged in zip(simulated, recorded, strict=True):
            if channel != logged:
                raise InputError(
                    f"{environment} has the {kind} channel {_describe(channel)}, where the log "
                    f"and its policies have {_describe(logged)}; {_advice(logged, advice)}"
                )
    if simulator.dt != log.dt:
        raise InputError(
            f"{environment} has a control period of {simulator.dt:g} s, the log one of {log.dt:g} "
            f"s; {advice}"
        )


def _without_limits(costs: Sequence[CostChannel]) -> list[tuple[str, str, str]]:
    """Name, unit and kind of every cost; its limit belongs to the run."""
    return [(channel.name, channel.unit, channel.per) for channel in costs]


def _describe(channel: Channel | tuple[str, str, str]) -> str:
    """Describes a channel with its range, or a cost with what it counts."""
    if isinstance(channel, Channel):
        return f"{channel.name} ({channel.low:g} to {channel.high:g} {channel.unit})"
    name, unit, per = channel
    return f"{name} ({unit} per {per})"


def _advice(logged: Channel | tuple[str, str, str], advice: str) -> str:
    if isinstance(logged, Channel) and logged.unit == "?":
        return (
            "the log's file does not state its channels; write its rows with the channels of the "
            "plant first"
        )
    return advice


def changed_plant(name: str, factors: Mapping[str, float]) -> Plant:
    """The named plant with some of its declared constants multiplied by factors.

    Its controllers are those of the plant as declared, as if a design had been copied. The same
    factors give the same object, so that its compiled programs are reused.

    Raises:
        InputError: If the plant declares no constants, or none of that name, or a value is
            physically impossible.
    """
    return _change(name, tuple(sorted(factors.items())))


@functools.cache
def _change(name: str, factors: tuple[tuple[str, float], ...]) -> Plant:
    plant = make(name)
    if not factors:
        return plant
    declared = getattr(type(plant), "constants", None)
    if not isinstance(plant, SimulatedPlant) or not hasattr(declared, "_replace"):
        raise InputError(
            f"data.constants is given, but the constants of {name} cannot be changed individually; "
            "leave data.constants out"
        )
    fields: Any = declared
    changed = {}
    for constant, factor in factors:
        original = getattr(fields, constant, None)
        if not isinstance(original, Constant):
            known = [name for name in fields._fields if isinstance(getattr(fields, name), Constant)]
            raise unknown_name(f"constant of {name} in data.constants", constant, known)
        if not math.isfinite(factor):
            raise InputError(f"data.constants.{constant} must be a finite factor, got {factor}")
        scaled = jax.tree.map(lambda value, by=factor: value * by, original.value)
        changed[constant] = dataclasses.replace(original, value=scaled)
    kind: Any = type(type(plant).__name__, (type(plant),), {
        "constants": fields._replace(**changed),
        "__module__": type(plant).__module__,
        "__doc__": f"{name} with other constants.",
    })  # fmt: skip
    other = kind(**{field.name: getattr(plant, field.name) for field in dataclasses.fields(plant)})
    try:
        other.check_params(other.default_params())
    except ValueError as error:
        raise InputError(f"data.constants: {error}") from error
    parameters = zip(
        *(jax.tree.leaves(one.default_params()) for one in (other, plant)), strict=True
    )
    # A plant may have infinite parameters of its own, such as the speed of an ideal actuator.
    if not all((np.isfinite(new) | (new == old)).all() for new, old in parameters):
        raise InputError(
            f"data.constants lead to parameters of {name} that are not finite; choose "
            "smaller factors"
        )
    return other


MAX_BYTES = 10e9
"""Bytes of all logs in a user's cache; the least recently used one is removed first."""


def collected_log(data: DataConfig, run_dataset: Path, print_line: Callable[[str], None]) -> None:
    """Puts the environment's log into a run, from the user's cache if it is there.

    Args:
        data: Section whose source is an environment.
        run_dataset: Path of the destination; an existing file is kept.
        print_line: Called with one line that states where the log came from.

    Raises:
        OSError: If it cannot be written.
    """
    if run_dataset.exists():
        return
    cached = _cached_log(data)
    if cached.exists():
        print_line(f"log read from {cached}")
    else:
        env = changed_plant(data.source, data.constants)
        key, _ = data_keys(data)
        controllers, plan = quality(env, data.quality)
        log = collect_log(env, controllers, plan=plan, n_steps=data.steps, key=key)
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
            write_dataset(cached, log)
        except OSError:  # without a home folder or space there, the run still has its log
            write_dataset(run_dataset, log)
            return
        _limit_cache(cached)
    with contextlib.suppress(OSError):
        os.utime(cached)
    with replacing(run_dataset) as copy:
        try:
            os.link(cached, copy)
        except OSError:  # another file system, or one without links
            shutil.copyfile(cached, copy)


def more_rows(requested: int, collected: int) -> str:
    """Explains why a collected log has more rows than requested."""
    return (
        f"{collected} rows for data.steps {requested}, because every episode is complete and each "
        "controller acts in equally many"
    )


def _limit_cache(latest: Path) -> None:
    """Removes the least recently used logs while the cache is too large; linked copies remain."""
    with contextlib.suppress(OSError):
        cached_files = [
            (path.stat(), path) for path in latest.parent.glob("*.h5") if path != latest
        ]
        total = latest.stat().st_size + sum(stat.st_size for stat, _ in cached_files)
        for stat, path in sorted(cached_files, key=lambda entry: entry[0].st_mtime):
            if total <= MAX_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size


def complete_log(data: DataConfig, run_dataset: Path, print_line: Callable[[str], None]) -> Dataset:
    """Reads the log that was collected for a run; a damaged one is collected again.

    Args:
        data: Section whose source is an environment.
        run_dataset: Path where :func:`collected_log` put it.
        print_line: Called with one line if it was damaged.

    Raises:
        InputError: If the new log cannot be read either.
        OSError: If it cannot be written.
    """
    try:
        return read_log(data, run_dataset)
    except InputError as error:
        print_line(f"{one_line(error)}: collecting it again")
    # The same file under two names: the next run would have the damaged log too.
    for damaged in (run_dataset, _cached_log(data)):
        damaged.unlink(missing_ok=True)
    collected_log(data, run_dataset, print_line)
    return read_log(data, run_dataset)


def _cached_log(data: DataConfig) -> Path:
    """The cache path, named by a digest of everything that determines the log, including code."""
    inputs = {
        "steps": data.steps,
        "quality": data.quality,
        "seed": data.seed,
        "constants": data.constants,
    }
    return cache_directory(LOG_CACHE) / f"{plant_digest(data.source, inputs)}.h5"


def plant_digest(source: str, inputs: Mapping[str, Any]) -> str:
    """A digest of a plant and given inputs, which changes with code and versions."""
    package = type(make(source)).__module__.partition(".")[0]
    content = {
        "source": source,
        "origin": plant_origin(source),
        **inputs,
        "code": code_digest(dict.fromkeys(("neorl_core", "neorl_envs", package))),
        "jax": metadata.version("jax"),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def code_digest(packages: Iterable[str]) -> str:
    """SHA-256 of the source files of imported packages or single-file modules; empty for none."""
    code, files = hashlib.sha256(), 0
    for package in packages:
        file = getattr(sys.modules.get(package), "__file__", None)
        path = Path(file or "")
        for source in sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]:
            if source.is_file():
                code.update(source.read_bytes())
                files += 1
    return code.hexdigest() if files else ""
