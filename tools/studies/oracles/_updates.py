"""The rows, batches and noise on which the updates of others are recorded, and stand-ins.

`corl_updates.py` and `published_jax_updates.py` run the code of others from here;
`packages/neorl-agents/tests/algorithms/test_recorded_updates.py` runs ours on the same numbers.
Only NumPy is imported.
"""

import importlib
import importlib.machinery
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

FIXTURES = Path(__file__).resolve().parents[3] / "packages/neorl-agents/tests/algorithms/fixtures"
OBS, ACT, HIDDEN, BATCH, UPDATES, ROWS = 5, 2, 12, 32, 100, 160
NOISE = 4099


def draw_log() -> dict[str, np.ndarray]:
    """A log in physical units with actions in [-1, 1], and what is drawn from it.

    Some rows end an episode, others break off. No action is nearer to a bound than 0.02: what our
    learners clip there (``MARGIN``) others do not.
    """
    rng = np.random.default_rng(1)
    mean, std = rng.normal(size=OBS) * 3, rng.uniform(0.5, 2, size=OBS)
    ends = rng.uniform(size=(2, ROWS)) < 0.1
    action = np.clip(rng.normal(size=(ROWS, ACT)), -0.98, 0.98)
    rows = {
        "obs": mean + std * rng.normal(size=(ROWS, OBS)),
        "action": action,
        "reward": rng.normal(size=ROWS),
        "next_obs": mean + std * rng.normal(size=(ROWS, OBS)),
        "next_action": np.roll(action, -1, axis=0),
        "mc_return": 3 * rng.normal(size=ROWS),
        "normal": rng.normal(size=NOISE),
        "uniform": rng.uniform(-1, 1, size=NOISE),
    }
    # Short in the file and the same number in both precisions.
    rows = {name: values.astype(np.float32) for name, values in rows.items()}
    chosen = rng.integers(ROWS, size=(2 * UPDATES, BATCH)).astype(np.uint8)
    ends = {"terminated": ends[0], "truncated": ends[1] & ~ends[0]}
    return rows | ends | {"chosen": chosen}


def noise(table: np.ndarray, call: int, number: int, shape: tuple[int, ...]) -> np.ndarray:
    """Draw ``number`` of a call: entries of the table from a place of its own on."""
    start = 1543 * call + 389 * number
    indices = (start + np.arange(np.prod(shape))) % len(table)
    return table[indices].reshape(shape).astype(np.float64)


def stub_modules(*names: str) -> None:
    """Modules that the code of others imports and this run does not need."""
    for name in names:
        module = MagicMock(name=name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module


def imported(folder: Path, name: str) -> Any:
    """A module of a checkout, which must be the commit that is meant."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def save(path: Path, log: dict[str, Any], cases: dict[str, dict[str, Any]], origin: str) -> None:
    """One compressed file: the log, and of every case its arrays end to end.

    A case's parts are ``before`` (float32), ``after`` and ``loss`` (float64); names and shapes of
    what lies in them are in ``names``, in order.
    """
    packed = {f"log/{name}": np.asarray(array) for name, array in log.items()}
    names: dict[str, Any] = {}
    for case, arrays in cases.items():
        for part, dtype in (("before", np.float32), ("after", np.float64), ("loss", np.float64)):
            inside = {name: x for name, x in arrays.items() if name.startswith(part + "/")}
            flat = [np.ravel(x).astype(dtype) for x in inside.values()]
            packed[f"{case}/{part}"] = np.concatenate(flat)
            names[f"{case}/{part}"] = {
                name.removeprefix(part + "/"): np.shape(x) for name, x in inside.items()
            }
    np.savez_compressed(path, origin=np.array(origin), names=np.array(json.dumps(names)), **packed)
    print(f"{path.stat().st_size / 1024:.0f} KiB in {path}: {origin}")
