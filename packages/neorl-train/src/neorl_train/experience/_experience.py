"""From a source to what is trained on: the log, the declared penalties, the split."""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Spec, Transition
from neorl_core.costs import penalised_reward
from neorl_envs import (
    Dataset,
    DatasetError,
    collect_log,
    environment_names,
    make,
    read_dataset,
    write_dataset,
)
from neorl_envs.datasets import data_statistics, split_episodes
from neorl_train._errors import BadInputError, one_line, unknown_name
from neorl_train.configuration._sections import DEMO_PENALTY, Config, hyperparameters
from neorl_train.training._seeds import TrainingData

CACHE = ".logs"
SUFFIXES = (".h5", ".hdf5", ".npz")


@dataclasses.dataclass(frozen=True)
class Experience:
    """What a run learns from and is judged on.

    Attributes:
        dataset: The whole log, with the plant's own reward.
        held_out: Episodes of it that training does not see, with the plant's own reward.
        training: The rest, with the penalised reward.
    """

    dataset: Dataset
    held_out: Dataset
    training: TrainingData


def is_environment(source: str) -> bool:
    """Whether a source names an environment; otherwise it is the path of a file.

    Raises:
        BadInputError: If it is neither; the nearest environment is named.
    """
    if source in environment_names():
        return True
    if Path(source).exists() or source.endswith(SUFFIXES) or os.sep in source:
        return False
    raise unknown_name("environment (and no such dataset file)", source, environment_names())


def data_keys(config: Config) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of the collection and of the split."""
    collect, split = jax.random.split(jax.random.key(config.data.seed))
    return collect, split


def declared_penalty(config: Config, names: tuple[str, ...]) -> dict[str, float]:
    """Penalty of every cost, by name: as configured, else as declared for the environment.

    Args:
        config: Validated.
        names: Of the cost channels.

    Raises:
        BadInputError: If a cost has no penalty, or a penalty no cost.
    """
    declared = DEMO_PENALTY.get(config.data.source, {}) | config.penalty
    for name in config.penalty:
        if name not in names:
            raise unknown_name("cost in penalty", name, names)
    missing = [name for name in names if name not in declared]
    if missing:
        raise BadInputError(
            f"penalty.{missing[0]} is not declared; say what one unit of that cost takes off the "
            f"reward, for example `--penalty {missing[0]} 0.5`"
        )
    return {name: declared[name] for name in names}


def log_file(config: Config, run_dataset: Path) -> Path:
    """Where the log of a run lies: in the run, or where the user keeps it."""
    source = config.data.source
    return run_dataset if is_environment(source) else Path(source).absolute()


def collected_log(config: Config, run_dataset: Path, say: Callable[[str], None]) -> None:
    """Puts the environment's log into a run, from the cache of the runs' folder if it is there.

    Args:
        config: Whose source is an environment.
        run_dataset: Destination; kept if it is there.
        say: Told in one line where the log came from.

    Raises:
        OSError: If it cannot be written.
    """
    if run_dataset.exists():
        return
    cached = _cached_log(config)
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        env = make(config.data.source)
        key, _ = data_keys(config)
        write_dataset(cached, collect_log(env, n_steps=config.data.steps, key=key))
    else:
        say(f"log taken from {cached}")
    partial_copy = run_dataset.with_name(f".{run_dataset.name}.partial")
    partial_copy.unlink(missing_ok=True)
    try:
        os.link(cached, partial_copy)
    except OSError:
        shutil.copyfile(cached, partial_copy)
    os.replace(partial_copy, run_dataset)


def whole_log(config: Config, run_dataset: Path, say: Callable[[str], None]) -> Dataset:
    """Reads the log that was collected for a run; a damaged one is collected again, for it can be.

    Args:
        config: Whose source is an environment.
        run_dataset: Where :func:`collected_log` put it.
        say: Told in one line that it was damaged.

    Raises:
        BadInputError: If the new one cannot be read either.
        OSError: If it cannot be written.
    """
    try:
        return read_log(run_dataset)
    except BadInputError as error:
        say(f"{one_line(error)}: collecting it again")
    # The same file under two names: the next run would meet the damage too.
    for damaged in (run_dataset, _cached_log(config)):
        damaged.unlink(missing_ok=True)
    collected_log(config, run_dataset, say)
    return read_log(run_dataset)


def _cached_log(config: Config) -> Path:
    """Its name is a digest of all that the log is a function of, the code included."""
    code = hashlib.sha256()
    for package in ("neorl_core", "neorl_envs"):
        root = Path(str(resources.files(package)))
        for path in sorted(root.rglob("*.py")):
            code.update(path.read_bytes())
    what = {
        "source": config.data.source,
        "steps": config.data.steps,
        "seed": config.data.seed,
        "code": code.hexdigest(),
        "jax": metadata.version("jax"),
    }
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]
    return Path(config.output.directory) / CACHE / f"{name}.h5"


def read_log(path: Path) -> Dataset:
    """Reads a log.

    Raises:
        BadInputError: In one line, if it is missing, damaged or of no known format.
    """
    try:
        return read_dataset(path)
    except DatasetError as error:
        raise BadInputError(one_line(error)) from error


def check_split(config: Config, dataset: Dataset) -> None:
    """Refuses a log of which fewer than two episodes would be held out, or trained on.

    Raises:
        BadInputError: Saying which share would do.
    """
    n = dataset.n_episodes
    held_out = n - min(max(round((1 - config.data.held_out) * n), 1), n - 1)
    if n < 4:
        raise BadInputError(
            f"{config.data.source}: {n} episodes are too few; two must be left to train on and two "
            "to hold out"
        )
    if not 2 <= held_out <= n - 2:
        raise BadInputError(
            f"data.held_out = {config.data.held_out} of {n} episodes is {held_out}; at least two "
            f"must be held out and two left, so choose from {2 / n:.2g} to {1 - 2 / n:.2g}"
        )


def training_rows(config: Config, dataset: Dataset) -> int:
    """Number of rows that training sees: those of the training part that are not masked."""
    _, key = data_keys(config)
    part, _ = split_episodes(dataset, 1 - config.data.held_out, key)
    return int(np.asarray(part.transitions.mask).sum())


def check_batches(config: Config, rows: int) -> None:
    """Refuses a batch of more rows than there are to train on, long before memory runs out.

    Args:
        config: Validated.
        rows: Number of rows that training sees.

    Raises:
        BadInputError: Naming the algorithm and both numbers.
    """
    for name in config.training.algorithms:
        size = hyperparameters(config, name).batch_size
        if size > rows:
            raise BadInputError(
                f"algorithms.{name}.batch_size is {size}, and there are {rows} rows to train on; "
                f"start a run with --algorithms.{name.replace('_', '-')}.batch-size {rows} or less"
            )


def experience(config: Config, dataset: Dataset, penalty: dict[str, float]) -> Experience:
    """Splits a log and takes the declared penalties off the reward of the training part.

    Args:
        config: Validated.
        dataset: The whole log.
        penalty: Of every cost, in the order of the specification.

    Raises:
        BadInputError: If the log cannot be split, every row of the training part is masked, or a
            batch is larger than it.
    """
    _, key = data_keys(config)
    check_split(config, dataset)
    try:
        part, held_out = split_episodes(dataset, 1 - config.data.held_out, key)
        part = _penalised(part, list(penalty.values()))
        statistics = data_statistics(part)
    except ValueError as error:
        raise BadInputError(f"{config.data.source}: {one_line(error)}") from error
    mask = np.asarray(part.transitions.mask)
    check_batches(config, int(mask.sum()))
    rows = jax.tree.map(partial(_rows, mask), part.transitions._replace(mask=None))
    return Experience(dataset, held_out, TrainingData(rows, statistics, part.spec))


def _penalised(dataset: Dataset, prices: list[float]) -> Dataset:
    columns = dataset.transitions
    reward, cost = jnp.asarray(columns.reward), jnp.asarray(columns.cost)
    reward = np.asarray(penalised_reward(reward, cost, jnp.asarray(prices, jnp.float32)))
    return dataclasses.replace(dataset, transitions=columns._replace(reward=reward))


def _rows(mask: np.ndarray, column: np.ndarray) -> np.ndarray:
    return np.asarray(column) if mask.all() else np.asarray(column)[mask]


def probe_observations(rows: Transition, count: int = 64) -> np.ndarray:
    """Observations spread over the log, to prove parity on; the log repeats if it is shorter."""
    positions = np.linspace(0, len(rows.obs) - 1, count).round().astype(np.int64)
    return np.asarray(rows.obs)[positions]


def action_half_range(spec: Spec) -> np.ndarray:
    """Half the range of every action channel, in its unit."""
    return np.array([(c.high - c.low) / 2 for c in spec.action], np.float32)


def plant(source: str) -> Any:
    """The environment of a source, or ``None`` where the source is a file."""
    return make(source) if is_environment(source) else None
