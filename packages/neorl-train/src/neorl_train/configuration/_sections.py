"""The configuration of a run: frozen typed dataclasses; the defaults are the demo's."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from neorl_core import InputError
from neorl_core.statistics import DEFAULT_LEVEL
from neorl_train.configuration._classical import ClassicalConfig
from neorl_train.configuration._fallback import FallbackConfig
from neorl_train.configuration._fine_tuning import FineTuningConfig
from neorl_train.configuration._limits import LimitsConfig
from neorl_train.configuration._monitors import MonitorsConfig, SupervisorConfig
from neorl_train.configuration._online import OnlineConfig
from neorl_train.configuration._presets import DEMO_HYPERPARAMETERS
from neorl_train.configuration._retuning import RetuningConfig
from neorl_train.configuration._toml import updated

USUAL_STEPS = 120_000
"""Steps of a log that is collected, where nothing else is said."""
MIXED = "mixed"
"""Quality of a log that is collected, where nothing else is said."""


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the experience comes from.

    Attributes:
        source: Name of an environment, whose log is collected, or the path of a dataset file.
        steps: Least number of steps to collect under the plant's own controllers. The log may hold
            some more rows, because episodes are complete and each controller acts in equally many.
            Of no effect for a file. By default (-1) 120,000, or none where learners are trained on
            the plant itself.
        quality: Behaviour that fills the collected log: ``random`` (uniform actions), ``medium``
            (the plant's first tuning), ``mixed`` (all tunings) or ``expert`` (its reference,
            without operators). Of no effect for a file.
        held_out: Fraction of the episodes that training does not see.
        seed: Seed of the collection and of the split.
        memory: Most memory that the log may take, as ``"2GB"``. One that needs more, about five
            times its file, stays on the disk: batches are read ahead, shuffled by blocks.
        readers: Number of stretches in which a log on the disk is read, each for an equal part of
            every batch. Of several processes, each reads its own stretches where their number
            divides this one.
        constants: Factors on declared constants of a simulated plant, by name, for the same plant
            at another place; its controllers stay as they are.
    """

    source: str = "ChemicalReactor-v0"
    steps: int = -1
    quality: str = MIXED
    held_out: float = 0.1
    seed: int = 0
    memory: str = "8GB"
    readers: int = 1
    constants: dict[str, float] = dataclasses.field(default_factory=dict)

    def recorded(self, on: str) -> "DataConfig":
        """Fills in the number of steps to collect if learners are trained on a log of a plant."""
        usual = 0 if on == "plant" else USUAL_STEPS
        return dataclasses.replace(self, steps=usual) if self.steps == -1 else self


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """What is trained, and for how long.

    Attributes:
        algorithms: Names of the learners, trained one after the other.
        on: What they are trained on: ``"log"``, or ``"plant"`` for the simulated plant itself, from
            nothing. A log is then for monitors, comparison and replay alone.
        seeds: Seeds of the training runs, which are spread over the cores.
        updates: Number of gradient steps per seed: of the critic, or of the policy for behaviour
            cloning.
        chunk: Number of updates in one call of the compiled program; metrics are its means.
    """

    algorithms: tuple[str, ...] = ("bc", "td3_bc", "iql")
    on: Literal["log", "plant"] = "log"
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    updates: int = 30_000
    chunk: int = 500


COMMON_STARTS = 1
"""Seed of the starts of what is compared across runs: the cells of a sweep or a benchmark."""


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation in the simulator, where there is one.

    Attributes:
        starts: Number of paired episodes (common random numbers) that every policy is evaluated in.
        seed: Seed of the starts; -1 derives it from all other settings of the run, so that runs
            with other settings meet other starts and equal runs meet the same.
        curve_starts: Number of other starts on which policies are followed while they train; zero
            follows them on held-out rows alone.
        candidate: What is handed over: an algorithm, of which it is the first seed; ``"retuned"``,
            the retuned controller; or ``"best"``, chosen from all of them without the plant. Empty
            takes the best where a controller is retuned, else the last of the trained algorithms.
        incumbent: Tuning of the plant that runs today, which the candidate must beat; empty takes
            the retuned controller, else the first tuning of the plant.
        level: Confidence level of every interval, whose ends the verdict compares; in (0.5, 1).
        episode_margin: Largest part of the episodes by which the upper bound of those over a cost's
            limit may exceed the part of the incumbent; ``inf`` demands nothing of single episodes.
    """

    starts: int = 128
    seed: int = -1
    curve_starts: int = 8
    candidate: str = ""
    incumbent: str = ""
    level: float = DEFAULT_LEVEL
    episode_margin: float = 0.05


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """How often the training state is written, and how much of it is kept.

    Attributes:
        interval: Number of updates between two checkpoints, a multiple of the chunk; the policies
            are validated as often.
        keep: Number of checkpoints kept for each algorithm.
    """

    interval: int = 5_000
    keep: int = 2


@dataclasses.dataclass(frozen=True)
class DevicesConfig:
    """Devices that train. Nothing here changes a result, but for rounding.

    Attributes:
        batch: Number of devices that share every batch of a training on a log. 0 takes one device
            for each seed, or all devices of all processes where several processes train.
        memory: Most memory that a training may take, as ``"16GB"``; one that needs more is refused
            before it begins. Empty takes what the machine, its container or the device has.
    """

    batch: int = 0
    memory: str = ""


@dataclasses.dataclass(frozen=True)
class OutputConfig:
    """Where results go. Nothing here changes a result.

    Attributes:
        directory: Folder of the numbered run directories.
        tracking: Whether the runs are also written to the MLflow database of that folder.
    """

    directory: str = "runs"
    tracking: bool = True


@dataclasses.dataclass(frozen=True)
class Config:
    """All that a run is a function of, besides the code.

    Attributes:
        data: Source of the experience.
        penalty: Reward taken off per unit of each cost, by name of the cost, in training only.
            Empty takes the plant's own, which ChemicalReactor-v0 has; a file with costs needs it.
        limits: Limits of the costs and of the actions, where they are not the source's own.
        fallback: Controller that acts where the policy cannot.
        training: Learners to train, and for how long.
        evaluation: Evaluation in the simulator.
        monitors: Monitors that watch while the policy acts.
        supervisor: When the fallback takes over, and when it hands back.
        classical: Classical controllers that are fitted on the log and compared.
        retuning: The controller that is retuned in a plant model learned from the log.
        finetune: Training that goes on online, of the learners of a finished run.
        online: How experience is collected where learners are trained on the plant itself.
        devices: Devices that train.
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


def config_type(table: Mapping[str, type]) -> type[Config]:
    """:class:`Config` with one typed section of hyperparameters for every algorithm.

    Args:
        table: Class of every algorithm by name, such as ``neorl_agents.ALGORITHMS``.

    Returns:
        A subclass whose instances have the demo's values unless told otherwise.
    """
    sections = [
        (
            name,
            kind,
            dataclasses.field(default_factory=_Defaults(kind, DEMO_HYPERPARAMETERS.get(name, {}))),
        )
        for name, kind in _importable(table)
    ]
    algorithms = dataclasses.make_dataclass("Algorithms", sections, frozen=True)
    algorithms.__doc__ = "Hyperparameters of every learner."
    field = ("algorithms", algorithms, dataclasses.field(default_factory=algorithms))
    config_class = dataclasses.make_dataclass("Config", [field], bases=(Config,), frozen=True)
    config_class.__doc__ = Config.__doc__
    return config_class


def _importable(table: Mapping[str, type]) -> Iterator[tuple[str, type]]:
    """The entries without those of a broken distribution, which harms only who asks for it."""
    for name in table:
        with contextlib.suppress(InputError):
            yield name, table[name]


@dataclasses.dataclass(frozen=True)
class _Defaults:
    kind: type
    values: dict[str, Any]

    def __call__(self) -> Any:
        return updated(self.kind(), self.values)


def hyperparameters(config: Config, name: str) -> Any:
    """The algorithm ``name`` with the configured hyperparameters."""
    return getattr(config.algorithms, name)


def batch_sizes(config: Config) -> dict[str, int]:
    """Rows of a batch of every learner that is trained, by its name."""
    return {name: hyperparameters(config, name).batch_size for name in config.training.algorithms}


def config_to_dict(config: Config) -> dict[str, Any]:
    """Plain nested dictionaries, ready for TOML or JSON; only the algorithms that are trained.

    Args:
        config: Validated.

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
        name: _plain_fields(hyperparameters(config, name)) for name in config.training.algorithms
    }
    return plain


def _plain_fields(settings: Any) -> dict[str, Any]:
    plain = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        plain[field.name] = _plain_fields(value) if dataclasses.is_dataclass(value) else value
    return plain


UNDECISIVE = ("output", "checkpoints", "devices")
"""Sections that decide no result; devices round otherwise where they share a batch."""


def config_hash(config: Config) -> str:
    """SHA-256 over all that decides a result: not ``output``, ``checkpoints`` and ``devices``.

    Args:
        config: Validated.

    Returns:
        ``"sha256:..."``.
    """
    plain = config_to_dict(config)
    decisive = {name: plain[name] for name in plain if name not in UNDECISIVE}
    # Runs of before there was a choice keep their hash.
    usual = {"quality": MIXED, "readers": 1}
    decisive["data"] = {
        name: v for name, v in plain["data"].items() if name not in usual or usual[name] != v
    }
    text = json.dumps(decisive, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
