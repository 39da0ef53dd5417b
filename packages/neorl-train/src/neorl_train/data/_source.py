"""Sources of experience: a simulated plant, also with other constants, or a log in a file."""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_core.infrastructure import unknown_name
from neorl_envs import Dataset, make, read_dataset
from neorl_envs.blocks import Constant
from neorl_envs.datasets import require_content_hash, stored_bytes
from neorl_envs.ingest import log_suffixes, reader_name
from neorl_envs.plants import PLANTS, Plant, SimulatedPlant
from neorl_train.configuration._sections import PEAK, Config, DataConfig, stays_on_disk


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
        name: Name of an environment, or path of a file.
        constants: Factors on the declared constants of an environment.

    Raises:
        InputError: If it is neither (the closest environment is suggested), or if constants are
            given for a log.
    """
    if name in PLANTS:
        return PlantSource(name, tuple(sorted(constants.items())))
    if constants:
        raise InputError(
            f"data.constants is given, but {name} is not a simulated plant; leave data.constants "
            "out"
        )
    if Path(name).exists() or name.endswith(log_suffixes()) or os.sep in name:
        return FileSource(Path(name))
    fault = unknown_name("environment (and no such dataset file)", name, PLANTS)
    raise InputError(f"{fault}; a plant of your own is installed with an entry point neorl.plants")


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


def simulator(config: Config) -> Plant | None:
    """The plant on which policies of a run can act; ``None`` if there is only a log.

    It is the environment that generated the log, or the one that an evaluation or a fine-tuning
    names for a log in a file.

    Raises:
        InputError: If the source is neither an environment nor a file, an option names no
            environment, or it names another one than the source or the other option.
    """
    source = source_named(config.data.source, config.data.constants)
    judge, trainer = config.evaluation.environment, config.finetune.environment
    if judge and judge not in PLANTS:
        raise unknown_name("simulated plant as evaluation.environment", judge, PLANTS)
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
    named = trainer or ("" if isinstance(source, PlantSource) else judge)
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


def declared_penalty(config: Config, names: tuple[str, ...]) -> dict[str, float]:
    """Penalty of every cost, by name: as configured, otherwise as the environment declares it.

    Args:
        config: A validated configuration.
        names: Names of the cost channels.

    Raises:
        InputError: If a cost has no penalty, or a penalty belongs to no cost.
    """
    environment = simulator(config)
    weights = {} if environment is None else environment.penalty_weights()
    declared = {**weights, **config.penalty}
    for name in config.penalty:
        if name not in names:
            raise unknown_name("cost in penalty", name, names)
    missing = [name for name in names if name not in declared]
    if missing:
        single = len(missing) == 1
        pairs = {**config.penalty, **dict.fromkeys(missing, 0.5)}
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
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(other.default_params())):
        raise InputError(
            f"data.constants lead to parameters of {name} that are not finite; choose "
            "smaller factors"
        )
    return other
