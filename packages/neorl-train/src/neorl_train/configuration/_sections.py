"""The configuration of a run: frozen, typed, without optional fields, with the demo's values."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from neorl_train._errors import BadInputError, unknown_name


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the experience comes from.

    Attributes:
        source: Name of an environment, whose log is collected, or the path of a dataset file.
        steps: Least number of steps to collect; of no effect for a file.
        held_out: Share of the episodes that training does not see.
        seed: Of the collection and of the split.
    """

    source: str = "ChemicalReactor-v0"
    steps: int = 120_000
    held_out: float = 0.1
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """What is trained, and for how long.

    Attributes:
        algorithms: Names of the learners, trained one after the other.
        seeds: One training run each, spread over the cores.
        updates: Gradient steps of the critic (of the policy for behaviour cloning) per seed.
        block: Updates in one call of the compiled program; metrics are means over a block.
    """

    algorithms: tuple[str, ...] = ("bc", "td3_bc", "iql")
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    updates: int = 30_000
    block: int = 500


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation in the simulator, where there is one.

    Attributes:
        starts: Number of common starts that every policy is evaluated on.
        seed: Of the starts.
        curve_starts: Number of other starts on which policies are followed while they train; zero
            follows them on held-out rows alone.
        candidate: The algorithm whose policy is handed over; its first seed is taken.
    """

    starts: int = 128
    seed: int = 1
    curve_starts: int = 8
    candidate: str = "iql"


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """How often the training state is written, and how much of it is kept.

    Attributes:
        interval: Updates between two checkpoints; a whole number of blocks.
        keep: Number of checkpoints kept for each algorithm.
    """

    interval: int = 5_000
    keep: int = 2


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
        data: Where the experience comes from.
        penalty: Reward taken off per unit of each cost, by name of the cost, in training only.
            Empty takes the plant's own, which ChemicalReactor-v0 has; a file with costs needs it.
        training: What is trained, and for how long.
        evaluation: Evaluation in the simulator.
        checkpoints: How often the state is written.
        output: Where results go.
        algorithms: Hyperparameters of every learner, by name.
    """

    data: DataConfig = DataConfig()
    penalty: dict[str, float] = dataclasses.field(default_factory=dict)
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    output: OutputConfig = OutputConfig()
    algorithms: Any = None


DEMO_HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "bc": {"hidden": (64, 64), "batch_size": 128},
    "td3_bc": {
        "hidden": (64, 64),
        "batch_size": 128,
        "alpha": 0.5,
        "critic_learning_rate": 1e-3,
        "target_rate": 0.02,
    },
    "iql": {
        "hidden": (64, 64),
        "batch_size": 128,
        "advantage_scale": "std",
        "value_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "target_rate": 0.02,
        "decay_updates": 30_000,
    },
}
"""Where the defaults of a run differ from those of the algorithms, which are the papers'."""

DEMO_PENALTY: dict[str, dict[str, float]] = {
    "ChemicalReactor-v0": {"temperature": 0.75, "pressure": 2.5},
}
"""Declared penalties per unit of cost, by environment: the default where none is configured."""


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
        for name, kind in table.items()
    ]
    algorithms = dataclasses.make_dataclass("Algorithms", sections, frozen=True)
    algorithms.__doc__ = "Hyperparameters of every learner."
    field = ("algorithms", algorithms, dataclasses.field(default_factory=algorithms))
    made = dataclasses.make_dataclass("Config", [field], bases=(Config,), frozen=True)
    made.__doc__ = Config.__doc__
    return made


@dataclasses.dataclass(frozen=True)
class _Defaults:
    kind: type
    values: dict[str, Any]

    def __call__(self) -> Any:
        return self.kind(**self.values)


def hyperparameters(config: Config, name: str) -> Any:
    """The algorithm ``name`` with the configured hyperparameters."""
    return getattr(config.algorithms, name)


def validate(config: Config) -> None:
    """Checks every value that can be checked without the data.

    Args:
        config: As loaded.

    Raises:
        BadInputError: Naming the first bad field, what it is and what it must be.
    """
    training, data = config.training, config.data
    known = [field.name for field in dataclasses.fields(config.algorithms)]
    _require(bool(data.source), "data.source must name an environment or a dataset file")
    _require(data.steps >= 1, f"data.steps must be at least 1, got {data.steps}")
    _require(0 < data.held_out < 1, f"data.held_out must be in (0, 1), got {data.held_out}")
    _require(bool(training.algorithms), f"training.algorithms is empty; known: {', '.join(known)}")
    for name in training.algorithms:
        if name not in known:
            raise unknown_name("algorithm", name, known)
    _require_distinct("training.algorithms", training.algorithms)
    _require(bool(training.seeds), "training.seeds is empty; give at least one whole number")
    _require_distinct("training.seeds", training.seeds)
    for name, seeds in (
        ("training.seeds", training.seeds),
        ("data.seed", (data.seed,)),
        ("evaluation.seed", (config.evaluation.seed,)),
    ):
        fine = all(0 <= seed < 2**31 for seed in seeds)
        _require(fine, f"{name} must be from 0 to 2^31 - 1, got {', '.join(map(str, seeds))}")
    for name in training.algorithms:
        _validate_algorithm(name, hyperparameters(config, name), training.block)
    _validate_counts(config)
    if config.evaluation.candidate not in training.algorithms:
        raise BadInputError(
            f"evaluation.candidate is {config.evaluation.candidate!r}, which is not trained; "
            "choose one of training.algorithms with --evaluation.candidate: "
            f"{', '.join(training.algorithms)}"
        )
    for name, value in config.penalty.items():
        _require(
            math.isfinite(value) and value >= 0,
            f"penalty.{name} must be finite and not negative, got {value}",
        )


def _validate_algorithm(name: str, algorithm: Any, block: int) -> None:
    try:
        algorithm.validate()
    except ValueError as error:
        fault = str(error).removeprefix(f"{type(algorithm).__name__}.")
        raise BadInputError(f"algorithms.{name}.{fault}") from error
    per_update = algorithm.batches_per_update
    _require(
        block % per_update == 0,
        f"training.block must be a multiple of {per_update}, the critic steps of one update of "
        f"{name}, got {block}",
    )


def _validate_counts(config: Config) -> None:
    training, interval = config.training, config.checkpoints.interval
    _require(1 <= training.block <= 100_000, f"training.block must be 1..100000: {training.block}")
    for name, value in (("training.updates", training.updates), ("checkpoints.interval", interval)):
        _require(
            value >= 1 and value % training.block == 0,
            f"{name} must be a positive multiple of training.block = {training.block}, got {value}",
        )
    _require(training.updates < 2**31, f"training.updates must be below 2^31: {training.updates}")
    _require(
        config.checkpoints.keep >= 1,
        f"checkpoints.keep must be at least 1, got {config.checkpoints.keep}",
    )
    _require(
        config.evaluation.starts >= 2,
        f"evaluation.starts must be at least 2, got {config.evaluation.starts}",
    )
    _require(
        config.evaluation.curve_starts >= 0,
        f"evaluation.curve_starts must not be negative, got {config.evaluation.curve_starts}",
    )


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


def _plain_fields(algorithm: Any) -> dict[str, Any]:
    return {field.name: getattr(algorithm, field.name) for field in dataclasses.fields(algorithm)}


def config_hash(config: Config) -> str:
    """SHA-256 over everything that decides a result: all but ``output`` and ``checkpoints``.

    Args:
        config: Validated.

    Returns:
        ``"sha256:..."``.
    """
    plain = config_to_dict(config)
    decisive = {name: plain[name] for name in plain if name not in ("output", "checkpoints")}
    text = json.dumps(decisive, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _require(fine: bool, message: str) -> None:
    if not fine:
        raise BadInputError(message)


def _require_distinct(name: str, values: tuple) -> None:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    _require(not repeated, f"{name} names {', '.join(repeated)} twice")
