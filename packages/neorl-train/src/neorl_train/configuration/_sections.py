"""The configuration of a run: typed sections, their TOML file and their hash."""

import contextlib
import dataclasses
import hashlib
import inspect
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_core.infrastructure import MAX_SEED, Binder, setting, unknown_name
from neorl_core.statistics import DEFAULT_LEVEL
from neorl_train.configuration._classical import ClassicalConfig, RetuningConfig
from neorl_train.configuration._guard import FallbackConfig, LimitsConfig
from neorl_train.configuration._monitors import MonitorsConfig, SupervisorConfig
from neorl_train.configuration._online import FineTuningConfig, OnlineConfig

DEMO_HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "bc": {"networks": {"hidden": (64, 64)}, "steps": {"batch_size": 128}},
    "td3_bc": {
        "networks": {"hidden": (64, 64)},
        "steps": {"batch_size": 128},
        "alpha": 0.5,
        "critic_learning_rate": 1e-3,
        "tau": 0.02,
    },
    "iql": {
        "networks": {"hidden": (64, 64)},
        "steps": {"batch_size": 128},
        "advantage_scale": "std",
        "value_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "tau": 0.02,
        "decay_updates": -1,
    },
}
"""The defaults of a run that differ from those of the algorithms, which follow the papers."""


PEAK = 5
"""Peak memory of a log that is trained on in memory, as a multiple of its file size."""
SAMPLE = 20
"""Divisor of the memory: this part may hold a sample of episodes if not all of them fit."""
_UNITS = {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_AMOUNT = re.compile(rf"\s*(\d+(?:\.\d+)?|\.\d+)\s*({'|'.join(_UNITS)})\s*")


def memory_bytes(text: str, name: str = "data.memory") -> float:
    """Bytes of an amount such as ``"2GB"``.

    Args:
        text: The amount.
        name: Name of the setting, for messages.

    Raises:
        InputError: If it is not an amount of memory.

    Example:
        >>> memory_bytes("1.5 GB")
        1500000000.0
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        or_zero = " or 0 (always stream)" if name == "data.memory" else ""
        raise InputError(f"{name} must be an amount such as 2GB, 500MB{or_zero}, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def memory_limit(text: str) -> float:
    """Bytes that training may take according to ``devices.memory``; infinite if it is empty.

    Raises:
        InputError: If it is not an amount, or is zero.
    """
    if not text.strip():
        return math.inf
    amount = memory_bytes(text, "devices.memory")
    if not amount:
        raise InputError(
            "devices.memory must be above 0; leave it empty to use the memory that is available"
        )
    return amount


def stays_on_disk(memory: str, n_bytes: int) -> bool:
    """Whether a log file of a given size would take more than a given amount of memory."""
    return PEAK * n_bytes > memory_bytes(memory)


DEFAULT_STEPS = 120_000
"""Default number of steps of a collected log."""
MIXED = "mixed"
"""Default quality of a collected log."""
MAX_STARTS = 100_000
"""More episodes are surely a typing error: an evaluation keeps them all in memory."""
MAX_STEPS = 10_000_000_000
"""More steps are surely a typing error: no disk could store them."""


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Source of the experience.

    Attributes:
        source: Name of an environment, whose log is collected, or the path of a dataset file.
        steps: Least number of steps to collect under the plant's own controllers. The log may
            contain a few more rows, because episodes are complete and each controller acts in the
            same number of them. No effect for a file. The default (-1) means 120,000, or none if
            learners are trained on the plant itself.
        quality: Behaviour that generates the collected log: ``random`` (uniform actions),
            ``medium`` (the plant's first tuning), ``mixed`` (all tunings) or ``expert`` (its
            reference, without operators). No effect for a file.
        held_out: Fraction of the episodes that training does not see.
        seed: Seed of the collection and of the split.
        memory: Most memory that the log may take, such as ``"2GB"``. A log that needs more, about
            five times its file size, stays on disk: batches are read ahead and shuffled by blocks.
        readers: Number of sections in which a log on disk is read, each supplying an equal part of
            every batch. With several processes, each reads its own sections if the number of
            processes divides this number.
        constants: Factors on declared constants of a simulated plant, by name, to model the same
            plant at another site; its controllers are unchanged.
    """

    source: str = "ChemicalReactor-v0"
    steps: int = setting(-1, low=0, high=MAX_STEPS, also=-1)
    quality: str = MIXED
    held_out: float = setting(0.1, above=0, below=1)
    seed: int = setting(0, low=0, high=MAX_SEED)
    memory: str = "8GB"
    readers: int = setting(1, low=1)
    constants: dict[str, float] = dataclasses.field(default_factory=dict)

    def recorded(self, on: str) -> "DataConfig":
        """Fills in the number of steps to collect if learners are trained on a log of a plant."""
        default = 0 if on == "plant" else DEFAULT_STEPS
        return dataclasses.replace(self, steps=default) if self.steps == -1 else self


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Which learners are trained, and for how long.

    Attributes:
        algorithms: Names of the learners, trained one after another.
        on: What they are trained on: ``"log"``, or ``"plant"`` to train from scratch on the
            simulated plant itself. A log is then used only for monitors, comparison and replay.
        seeds: Seeds of the training runs, which are spread over the cores.
        updates: Number of gradient steps per seed: of the critic, or of the policy for behaviour
            cloning.
        chunk: Number of updates in one call of the compiled program; metrics are its means.
    """

    algorithms: tuple[str, ...] = ("bc", "td3_bc", "iql")
    on: Literal["log", "plant"] = "log"
    seeds: tuple[int, ...] = setting((0, 1, 2, 3), low=0, high=MAX_SEED)
    updates: int = setting(30_000, low=1, high=MAX_SEED)
    chunk: int = setting(500, low=1, high=100_000)


PAIRED_STARTS_SEED = 1
"""Seed of the starts for comparisons across runs: the cells of a sweep or a benchmark."""


ARTEFACT = ".safetensors"
"""Suffix of a policy artefact."""


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation in the simulator, if there is one.

    Attributes:
        environment: Simulated plant on which a log in a file was recorded; the run is then judged
            in paired episodes on it. A Gymnasium environment, ``gym:ID`` or ``gym:MODULE:ID``
            (importing ``MODULE`` registers it), gives scores and a learning curve of ten points or
            more. If empty, a run on a log has no simulator.
        starts: Number of paired episodes (common random numbers) in which every policy is
            evaluated.
        seed: Seed of the starts; -1 derives it from all other settings of the run, so that runs
            with different settings use different starts, and equal runs use the same.
        curve_starts: Number of separate starts on which policies are evaluated during training;
            with zero they are evaluated only on held-out rows.
        candidate: Policy to deliver: an algorithm, represented by its first seed, or the average of
            its seeds, ``"iql-mean"`` for ``"iql"``; one of ``classical.controllers``, fitted on the
            log, or of ``classical.declared``; a tuning of the plant that recorded a part of the
            log; ``"retuned"``, the retuned controller; the name of one of ``policies``; or
            ``"best"``, chosen from all of them without the plant. If empty, the best one if a
            controller is retuned, else the last of the trained algorithms.
        policies: Policy artefacts that are candidates too, such as an actor that another program
            trained; each is called like its file, without the suffix.
        incumbent: What runs on the plant today, which the candidate must beat: a tuning of the
            plant, one of ``classical.controllers`` or ``classical.declared``, the path of a policy
            artefact (``*.safetensors``), which is called like its file, or ``"logged behaviour"``,
            everything that filled the log in turns. If empty, the retuned controller, else the
            plant's first tuning, or the one that recorded most of a log in a file of which the
            first recorded nothing; for a log without a simulator, ``"logged behaviour"``.
        level: Confidence level of every interval used by the verdict.
        episode_margin: Margin for the fraction of episodes over a cost's limit: its upper bound may
            exceed that of today's controller by at most this; ``inf`` sets no requirement on single
            episodes.
        families: Families of candidates from other distributions that join the pool, by the names
            of their entry points ``neorl.candidates``.
    """

    environment: str = ""
    starts: int = setting(128, low=2, high=MAX_STARTS)
    seed: int = setting(-1, low=0, high=MAX_SEED, also=-1)
    curve_starts: int = setting(8, low=0)
    candidate: str = ""
    policies: tuple[str, ...] = ()
    incumbent: str = ""
    level: float = setting(DEFAULT_LEVEL, above=0.5, below=1)
    episode_margin: float = setting(0.05, low=0, high=1, also=math.inf)
    families: tuple[str, ...] = ()

    @property
    def is_gymnasium(self) -> bool:
        """Whether the environment is one of Gymnasium, which scores policies, and not a plant."""
        return self.environment.startswith("gym:")

    @property
    def incumbent_file(self) -> str:
        """Path of the policy artefact that runs today; empty if it has a name instead."""
        return self.incumbent if Path(self.incumbent).suffix == ARTEFACT else ""

    @property
    def runs_today(self) -> str:
        """The name in tables of today's controller: that of its file, without suffix, if it is one.

        Example:
            >>> EvaluationConfig(incumbent="policies/old.safetensors").runs_today
            'old'
        """
        return Path(self.incumbent).stem if self.incumbent_file else self.incumbent


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """How often the training state is written, and how many of its checkpoints are kept.

    Attributes:
        interval: Number of updates between two checkpoints, a multiple of the chunk; policies are
            validated at the same times. In a run with a Gymnasium environment it is at most a tenth
            of the updates, if the chunk allows it.
        keep: Number of checkpoints kept for each algorithm.
        best: Whether to keep the checkpoint whose policies are nearest to the logged actions of
            held-out episodes, by ``held_out_distance`` and its mean over the seeds, and to judge
            these in place of the last ones. It stops imitation before it repeats the noise of a
            short log; a learner that should leave the logged actions is not better for it.
    """

    interval: int = setting(5_000, low=1)
    keep: int = setting(2, low=1)
    best: bool = False


@dataclasses.dataclass(frozen=True)
class DevicesConfig:
    """Devices used for training. No setting here changes a result, except for rounding.

    Attributes:
        batch: Number of devices that share every batch of a training on a log. With 0 each seed
            uses one device, or all devices of all processes if several processes train.
        memory: Most memory that a training may take, such as ``"16GB"``; one that needs more is
            refused before it begins. If empty, all memory of the machine, its container or the
            device.
        debug_nans: Whether a training that diverges repeats its last chunk operation by operation,
            to name the line of code that gave the first NaN. A copy of the state is made before
            every chunk for this.
    """

    batch: int = setting(0, low=0)
    memory: str = ""
    debug_nans: bool = False


@dataclasses.dataclass(frozen=True)
class OutputConfig:
    """Destination of the results. No setting here changes a result.

    Attributes:
        directory: Folder of the numbered run directories.
        tracking: Whether the runs are also written to the MLflow database in that folder.
    """

    directory: str = "runs"
    tracking: bool = True


@dataclasses.dataclass(frozen=True)
class Config:
    """All inputs of a run except the code.

    Attributes:
        data: Source of the experience.
        penalty: Reward subtracted per unit of each cost, by name of the cost, in training only. If
            empty, the plant's own penalties, which ChemicalReactor-v0 has; required for a file with
            costs.
        limits: Limits of the costs and of the actions that differ from the source's own.
        fallback: Controller that acts if the policy cannot.
        training: Learners to train, and for how long.
        evaluation: Evaluation in the simulator.
        monitors: Monitors that watch while the policy acts.
        supervisor: Conditions under which the fallback takes over and hands back.
        classical: Classical controllers that are fitted to the log and compared.
        retuning: The controller that is retuned in a plant model learned from the log.
        finetune: Online training that continues the learners of a finished run.
        online: How experience is collected if learners are trained on the plant itself.
        devices: Devices used for training.
        checkpoints: How often the state is written.
        output: Destination of the results.
        algorithms: Hyperparameters of every learner, by name.
    """

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    penalty: dict[str, float] = dataclasses.field(default_factory=dict)
    limits: LimitsConfig = dataclasses.field(default_factory=LimitsConfig)
    fallback: FallbackConfig = dataclasses.field(default_factory=FallbackConfig)
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    monitors: MonitorsConfig = dataclasses.field(default_factory=MonitorsConfig)
    supervisor: SupervisorConfig = dataclasses.field(default_factory=SupervisorConfig)
    classical: ClassicalConfig = dataclasses.field(default_factory=ClassicalConfig)
    retuning: RetuningConfig = dataclasses.field(default_factory=RetuningConfig)
    finetune: FineTuningConfig = dataclasses.field(default_factory=FineTuningConfig)
    online: OnlineConfig = dataclasses.field(default_factory=OnlineConfig)
    devices: DevicesConfig = DevicesConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    output: OutputConfig = OutputConfig()
    algorithms: Any = None


@dataclasses.dataclass(frozen=True)
class CandidateConfig:
    """The sections of a configuration that decide which candidates a run has.

    Hyperparameters, limits and everything about the running are not among them, so that a family of
    candidates depends on little.

    Attributes:
        data: Source of the experience.
        training: Learners to train, and with which seeds.
        evaluation: The candidate, today's controller, and given files.
        classical: Classical controllers that are fitted to the log, or declared.
        retuning: The controller that is retuned in a plant model learned from the log.
    """

    data: DataConfig
    training: TrainingConfig
    evaluation: EvaluationConfig
    classical: ClassicalConfig
    retuning: RetuningConfig

    @classmethod
    def of(cls, config: Config) -> "CandidateConfig":
        """Those of a whole configuration."""
        return cls(
            config.data, config.training, config.evaluation, config.classical, config.retuning
        )

    def within(self, config: Config) -> Config:
        """A whole configuration with these sections."""
        sections = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return dataclasses.replace(config, **sections)


def config_type(table: Mapping[str, type]) -> type[Config]:
    """:class:`Config` with one typed section of hyperparameters for every algorithm.

    Args:
        table: Class of every algorithm by name, such as ``neorl_agents.ALGORITHMS``.

    Returns:
        A subclass whose instances have the demo's values by default.
    """
    kinds = dict(_importable(table))
    sections = [
        (name, kind, dataclasses.field(default_factory=_Defaults(kind, _preset(name, kinds))))
        for name, kind in kinds.items()
    ]
    algorithms = dataclasses.make_dataclass("Algorithms", sections, frozen=True)
    algorithms.__doc__ = "Hyperparameters of every learner."
    field = ("algorithms", algorithms, dataclasses.field(default_factory=algorithms))
    config_class = dataclasses.make_dataclass("Config", [field], bases=(Config,), frozen=True)
    config_class.__doc__ = Config.__doc__
    return config_class


def _importable(table: Mapping[str, type]) -> Iterator[tuple[str, type]]:
    """The entries without those of a broken distribution, which affects only its own users."""
    for name in table:
        with contextlib.suppress(InputError):
            yield name, table[name]


def _preset(name: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    """The defaults of a run for one learner that differ from those of its class.

    A variation from another distribution has those of the learner that it varies, except for fields
    that it declares itself: a run that trains both then compares the variation alone.
    """
    kind = kinds[name]
    if name in DEMO_HYPERPARAMETERS or kind.__module__.startswith("neorl_agents."):
        return DEMO_HYPERPARAMETERS.get(name, {})
    declared: set[str] = set()
    for base in kind.__mro__:
        varied = next((other for other, known in kinds.items() if known is base is not kind), "")
        if varied:
            preset = _preset(varied, kinds)
            return {field: value for field, value in preset.items() if field not in declared}
        declared |= set(inspect.get_annotations(base))
    return {}


@dataclasses.dataclass(frozen=True)
class _Defaults:
    kind: type
    values: dict[str, Any]

    def __call__(self) -> Any:
        return update(self.kind(), self.values)


def hyperparameters(config: Config, name: str) -> Any:
    """The algorithm ``name`` with the configured hyperparameters."""
    return getattr(config.algorithms, name)


def batch_sizes(config: Config) -> dict[str, int]:
    """Batch size of every learner that is trained, by its name."""
    return {name: hyperparameters(config, name).batch_size for name in config.training.algorithms}


def config_to_dict(config: Config) -> dict[str, Any]:
    """Nested plain dictionaries, ready for TOML or JSON; only for the algorithms that are trained.

    Args:
        config: A validated configuration.

    Returns:
        One dictionary for each section.
    """
    sections = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name != "algorithms"
    }
    plain = {
        name: dict(value) if name == "penalty" else dataclasses.asdict(value)
        for name, value in sections.items()
    }
    plain["algorithms"] = {
        name: dataclasses.asdict(hyperparameters(config, name))
        for name in config.training.algorithms
    }
    return plain


NOT_HASHED = ("output", "checkpoints", "devices")
"""Sections that do not influence results; devices that share a batch only change rounding."""


def config_hash(config: Config) -> str:
    """SHA-256 of all settings that decide a result: not ``output``, ``checkpoints``, ``devices``.

    Args:
        config: A validated configuration.

    Returns:
        ``"sha256:..."``.
    """
    plain = config_to_dict(config)
    hashed = {name: plain[name] for name in plain if name not in NOT_HASHED}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


T = TypeVar("T")


def load_toml(path: Path, default: T) -> T:
    """Reads a configuration; keys that the file omits keep their defaults.

    Args:
        path: The file.
        default: A frozen dataclass, possibly nested.

    Returns:
        The same type as ``default``.

    Raises:
        InputError: If the file is missing or not TOML, a key is unknown (the closest name is
            suggested) or a value has another type than its field; the message names file and key.
    """
    data = read_toml(path)
    if {"log", "tag"} <= data.keys():
        raise InputError(
            f"{path} describes a log and is no configuration of a run; convert the log once with "
            f"`neorl-envs convert {path}`, and give the dataset file that this writes"
        )
    try:
        _require_learners(path.with_name("run.json"), data)
        return update(default, _with_constraints(data))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _require_learners(record: Path, data: Mapping[str, Any]) -> None:
    """Names where a learner of a run came from, if this Python does not have it."""
    if "algorithms" not in data or not record.is_file():
        return
    origins: dict[str, dict[str, str]] = {}
    with contextlib.suppress(OSError, ValueError):  # a damaged record is named where it is read
        origins = json.loads(record.read_text(encoding="utf-8")).get("origins", {})
    for name, origin in origins.get("algorithm", {}).items():
        if name not in ALGORITHMS:
            raise InputError(
                f"the learner {name} of this run ({origin}) is not installed here; install its "
                "distribution, or in Python call ALGORITHMS.register before this"
            )


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, as they are.

    Raises:
        InputError: If the file is missing or not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is not a TOML file: its brackets are nested too deeply") from None


def _with_constraints(data: dict[str, Any]) -> dict[str, Any]:
    """Moves tables ``[[constraint]]``, as in documents and plant.toml, into the limits."""
    if "constraint" not in data:
        return data
    constraints, limits = data["constraint"], data.get("limits", {})
    if not isinstance(constraints, list) or not isinstance(limits, Mapping):
        raise InputError("write each constraint as [[constraint]], with two brackets")
    rest = {key: value for key, value in data.items() if key != "constraint"}
    return {**rest, "limits": {**limits, "further": [*limits.get("further", []), *constraints]}}


def dump_toml(data: Mapping[str, Any]) -> str:
    """Nested plain dictionaries as TOML text; the inverse of reading."""
    import tomli_w

    return tomli_w.dumps(data)


def update(default: T, data: Mapping[str, Any]) -> T:
    """A dataclass in which the values in ``data`` replace its own.

    Raises:
        InputError: For an unknown key or a value of another type.
    """
    return _BINDER.bound(default, data)


def _why_no_section(where: str, key: str) -> None:
    """Explains why a learner has no section: it cannot be imported, or only a script knew it."""
    if where == "algorithms":
        if key in ALGORITHMS:
            ALGORITHMS.find(key)
        raise InputError(
            f"{unknown_name('key in [algorithms]', key, ALGORITHMS)}. A learner of your own needs "
            "an installed distribution with the entry point neorl.algorithms, or in Python "
            "ALGORITHMS.register before this"
        )


_BINDER = Binder(unknown=_why_no_section)
