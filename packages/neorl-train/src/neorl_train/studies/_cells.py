"""The cells of a sweep: one configuration for every combination of the varied values."""

import dataclasses
import itertools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_train.configuration._sections import (
    PAIRED_STARTS_SEED,
    Config,
    config_hash,
    config_to_dict,
)
from neorl_train.configuration._validation import configure

GRID, SEARCH, SPACE = "grid", "search", "space"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One configuration of a sweep.

    Attributes:
        values: Varied values, by dotted name.
        config: The configuration, checked as far as it can be without the data.
        name: Digest of everything that determines the result; equal cells have equal names in any
            file.
    """

    values: dict[str, Any]
    config: Config
    name: str

    def text(self) -> str:
        """The varied settings as text."""
        return ", ".join(f"{name} {_word(value)}" for name, value in self.values.items())


@dataclasses.dataclass(frozen=True)
class Search:
    """A search instead of a grid.

    Attributes:
        space: Settings to sample, by dotted name: a list of choices, or ``low`` and ``high``, with
            ``log = true`` for a logarithmic scale.
        trials: Number of configurations to try.
        seed: Seed of the sampling.
        batch: Number of configurations sampled at once; 1 samples as many as there are processes.
    """

    space: dict[str, Any]
    trials: int = 20
    seed: int = 0
    batch: int = 1


@dataclasses.dataclass(frozen=True)
class SweepFile:
    """Settings that a sweep varies.

    Attributes:
        base: Sections of the configuration that all cells share.
        grid: Values by dotted name; empty for a search.
        search: How values are sampled; ``None`` for a grid.
        directory: Folder for results.
    """

    base: dict[str, Any]
    grid: dict[str, list[Any]]
    search: Search | None
    directory: Path

    def cells(self) -> list[Cell]:
        """Every combination of the grid once; hyperparameters of untrained learners are left out.

        Raises:
            InputError: If a combination is not a valid configuration; the message names the value.
        """
        cells: dict[str, Cell] = {}
        for values in itertools.product(*self.grid.values()):
            cell = self.cell(dict(zip(self.grid, values, strict=True)))
            cells.setdefault(cell.name, cell)
        return list(cells.values())

    def cell(self, values: Mapping[str, Any]) -> Cell:
        """Makes one configuration.

        Raises:
            InputError: If it is not a valid configuration; the message names the values.
        """
        merged = _nest(self.base)
        for name, value in values.items():
            *sections, key = name.split(".")
            part = merged
            for section in sections:
                part = part.setdefault(section, {})
            part[key] = (
                [value] if name == "training.algorithms" and isinstance(value, str) else value
            )
        merged["evaluation"] = {"seed": PAIRED_STARTS_SEED, **merged.get("evaluation", {})}
        merged["output"] = {**merged.get("output", {}), "directory": str(self.directory.absolute())}
        text = ", ".join(f"{name} = {_word(value)}" for name, value in values.items())
        try:
            config = configure(**merged)
        except InputError as error:
            raise InputError(f"with {text}: {error}") from error
        trained = config.training.algorithms
        used_values = {
            name: value
            for name, value in values.items()
            if not name.startswith("algorithms.") or name.split(".")[1] in trained
        }
        return Cell(used_values, config, config_hash(config).partition(":")[2][:12])


def read_sweep(path: Path, directory: Path | None = None) -> SweepFile:
    """Reads a sweep: the sections of a run's configuration, and a grid or a search.

    Args:
        path: TOML file.
        directory: Folder for results; by default ``sweeps/NAME``, named after the file.

    Returns:
        The sweep.

    Raises:
        InputError: If the file is missing or not TOML, has neither or both of ``[grid]`` and
            ``[search]``, or a varied setting has neither a list of values nor a range; the message
            names the key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    if (GRID in content) == (SEARCH in content):
        raise InputError(
            f"{path} needs either a section [grid], such as `training.algorithms = ['bc', 'iql']` "
            "below it, or a section [search]"
        )
    base = {name: value for name, value in content.items() if name not in (GRID, SEARCH)}
    directory = Path("sweeps") / path.stem if directory is None else directory
    grid: dict[str, list[Any]] = {}
    search = None
    if GRID in content:
        for name, value in _leaves(content[GRID], "", stop=lambda _: False):
            if not isinstance(value, list) or not value:
                raise InputError(f"{path}: grid.{name} must be a list of values, got {value!r}")
            grid[name] = value
        if not grid:
            raise InputError(
                f"{path}: [grid] contains no setting to vary; give at least one list of values"
            )
    else:
        search = _search(content[SEARCH], path)
    return SweepFile(base, grid, search, directory)


def _search(section: Any, path: Path) -> Search:
    known = [field.name for field in dataclasses.fields(Search)]
    for name in section:
        if name not in known:
            raise unknown_name(f"key in [search] of {path}", name, known)
    if not isinstance(section.get(SPACE), Mapping) or not section[SPACE]:
        raise InputError(
            f"{path}: [search.space] must name the settings to vary, each with its bounds"
        )
    space = dict(_leaves(section[SPACE], "", stop=_is_range))
    for name, value in space.items():
        _check_domain(f"{path}: search.space.{name}", value)
    counts = {name: section[name] for name in ("trials", "seed", "batch") if name in section}
    for name, value in counts.items():
        minimum = 0 if name == "seed" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise InputError(
                f"{path}: search.{name} must be an integer of at least {minimum}, got {value!r}"
            )
    return Search(space, **counts)


def _check_domain(name: str, value: Any) -> None:
    if isinstance(value, list) and value:
        return
    if not isinstance(value, Mapping) or not _is_range(value) or value["low"] >= value["high"]:
        raise InputError(
            f"{name} must be a list of choices or a table such as {{ low = 0.5, high = 0.9 }} "
            f"with low below high, got {value!r}"
        )
    if value.get("log") and value["low"] <= 0:
        raise InputError(f"{name} has log = true, so low must be above 0, got {value['low']!r}")


def _is_range(value: Any) -> bool:
    return isinstance(value, Mapping) and {"low", "high"} <= set(value) <= {"low", "high", "log"}


def _leaves(value: Mapping[str, Any], where: str, *, stop: Any) -> Iterator[tuple[str, Any]]:
    for name, entry in value.items():
        dotted = f"{where}.{name}" if where else name
        if isinstance(entry, Mapping) and not stop(entry):
            yield from _leaves(entry, dotted, stop=stop)
        else:
            yield dotted, entry


def _nest(value: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _nest(entry) if isinstance(entry, Mapping) else entry for k, entry in value.items()}


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def plain(cell: Cell) -> dict[str, Any]:
    """The configuration of a cell as sections from which another process can rebuild it."""
    return config_to_dict(cell.config)
