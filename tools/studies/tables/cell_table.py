"""One table of results a log, as JSON lines: settings once, the cells that name them, a digest.

A line is one of

- ``{"kind": "settings", "id": ID, "shared": {...}}``: what several cells have in common, such as
  learner, hyperparameters, updates and log; ``ID`` are the first digits of the SHA-256 of it;
- ``{"kind": "cell", "settings": ID, "own": {...}}``: seed and results of one run;
- ``{"kind": "also", "name": NAME, "value": ...}``: what is of no cell, such as the scores of the
  plant's controllers;
- ``{"kind": "digest", "sha256": ..., "cells": N}``, the last one: of all lines before it.

So a table is one file that a person can read and compare by lines, and one that was cut short or
changed by hand is noticed.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax

from neorl_core.infrastructure import write_text

SHARED = ("plant", "algorithm", "learner", "way", "updates", "hyperparameters", "settings", "data")
LOCKS = Path(__file__).resolve().parents[3] / "build" / "locks"


class CellTable(NamedTuple):
    """What a table holds.

    Attributes:
        cells: One entry a run, its settings among its own fields, in the order of the file.
        also: What is of no cell, by name.
    """

    cells: list[dict[str, Any]]
    also: dict[str, Any]


def made_on() -> dict[str, str]:
    """The accelerator that a cell was made on; nothing on a processor, where most were made."""
    device = jax.devices()[0]
    return {} if device.platform == "cpu" else {"device": device.device_kind}


def read_table(path: Path) -> CellTable:
    """The table of a file; empty where there is none.

    Raises:
        ValueError: If the file is not what was written: a line is missing or was changed.
    """
    if not path.is_file():
        return CellTable([], {})
    lines = path.read_text().splitlines(keepends=True)
    last = json.loads(lines[-1]) if lines else {}
    if last.get("sha256") != _sha256("".join(lines[:-1])):
        raise ValueError(f"{path}: its last line is not the digest of the lines before it")
    shared: dict[str, dict[str, Any]] = {}
    table = CellTable([], {})
    for line in map(json.loads, lines[:-1]):
        if line["kind"] == "settings":
            shared[line["id"]] = line["shared"]
        elif line["kind"] == "cell":
            table.cells.append(shared[line["settings"]] | line["own"])
        else:
            table.also[line["name"]] = line["value"]
    return table


def write_table(path: Path, cells: Sequence[Mapping[str, Any]], also: Mapping[str, Any]) -> None:
    """Writes a table whole: settings before the first cell that names them."""
    lines, known = [], set()
    for cell in cells:
        shared = {name: cell[name] for name in SHARED if name in cell}
        own = {name: value for name, value in cell.items() if name not in shared}
        settings = _sha256(json.dumps(shared, sort_keys=True))[:12]
        if settings not in known:
            known.add(settings)
            lines.append({"kind": "settings", "id": settings, "shared": shared})
        lines.append({"kind": "cell", "settings": settings, "own": own})
    lines += [{"kind": "also", "name": name, "value": value} for name, value in also.items()]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    digest = {"kind": "digest", "sha256": _sha256(text), "cells": len(cells)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, f"{text}{json.dumps(digest)}\n")


def add_cell(path: Path, cell: Mapping[str, Any], order: Sequence[str]) -> None:
    """Adds one cell to a table, which other processes may be adding to as well.

    Args:
        path: The file.
        cell: Settings and results of one run.
        order: Fields by which the cells of a table are sorted.
    """
    with _locked(path):
        table = read_table(path)
        cells = sorted([*table.cells, cell], key=lambda one: [one[name] for name in order])
        write_table(path, cells, table.also)


def add_also(path: Path, name: str, value: Any) -> None:
    """Adds what is of no cell, or replaces it."""
    with _locked(path):
        table = read_table(path)
        write_table(path, table.cells, {**table.also, name: value})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time changes a table; the system takes the lock back when one ends."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    with (LOCKS / f"{path.parent.name}-{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
