"""Reads and writes the HDF5 layout of Minari: one group per episode, and a metadata file."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from neorl_core.infrastructure import replacing, write_json
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import is_hdf5, open_hdf5
from neorl_envs.datasets._nested import flatten_columns
from neorl_envs.ingest._inferred import (
    DESCRIPTION,
    description_of,
    extras_of,
    inferred_dataset,
    read_array,
    read_flag,
    read_tree,
)
from neorl_envs.ingest._rollouts import Rollout, check_rollout, join_rows, rollouts_of

EPISODE = re.compile(r"episode_(\d+)")
MAIN, METADATA = "main_data.hdf5", "metadata.json"
ROW_EXTRAS = (
    "cost",
    "mask",
    "behaviour_log_prob",
    "requested",
    "time",
    "mode",
    "setpoint",
    "test_signal",
    "term",
)


class MinariReader:
    """Reads ``main_data.hdf5`` of a Minari dataset, and ``metadata.json`` if it is in the folder.

    ``terminations`` is read as terminated and ``truncations`` as truncated; an episode that ends
    with neither is truncated at its last row. ``observations`` has one row more than ``actions``:
    the observation after the last step. The entry ``cost`` of ``infos`` is read as the cost, with
    one row per step, or one more if the first belongs to the reset. Nested spaces become channels
    with dotted names. The ranges of actions are those of the action space in the metadata.
    """

    suffixes = (".hdf5",)

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether the file is HDF5 and contains only episodes."""
        return is_hdf5(path, first_bytes, _has_episodes_alone)

    def read(self, path: Path) -> Dataset:
        """Reads a file; a ``DatasetError`` naming the episode and the inconsistent field."""
        source = str(path)
        metadata = _metadata(path.with_name(METADATA))
        with open_hdf5(path) as file:
            if not _has_episodes_alone(file):
                raise DatasetError(
                    f"{source}: expected groups episode_0, episode_1, ..., got others"
                )
            names = sorted(map(str, file), key=lambda name: int(name.removeprefix("episode_")))
            episodes = [_episode(file, name, source) for name in names]
        rollouts = [rollout for rollout, _, _ in episodes]
        channel_names = episodes[0][2]
        for name, episode in zip(names, episodes, strict=True):
            if episode[2] != channel_names:
                raise DatasetError(f"{source}: {name}: other channels than in {names[0]}")
        extras = _join([extra for _, extra, _ in episodes], names, source)
        ends = np.cumsum([len(rollout.rewards) for rollout in rollouts]) - 1
        columns = {
            field: join_rows([getattr(r, field) for r in rollouts], field, source)
            for field in ("terminations", "truncations", "actions", "rewards")
        }
        terminated = read_flag(source, "terminations", columns["terminations"], columns["rewards"])
        truncated = read_flag(source, "truncations", columns["truncations"], columns["rewards"])
        truncated[ends] |= ~terminated[ends]
        return inferred_dataset(
            source,
            {
                "obs": join_rows([r.observations[:-1] for r in rollouts], "observations", source),
                "next_obs": np.concatenate([r.observations[1:] for r in rollouts]),
                "action": columns["actions"],
                "reward": columns["rewards"],
            },
            terminated,
            truncated,
            extras=extras,
            description=_text(metadata, DESCRIPTION),
            names=channel_names,
            action_range=_action_range(metadata),
            attributes={
                "name": _text(metadata, "dataset_id") or path.stem,
                "provenance": {"format": "Minari", "file": path.name},
            },
        )


def minari_file(path: Path) -> Path:
    """The data file if the path is the folder of a Minari dataset, otherwise the path itself."""
    for inside in (MAIN, f"data/{MAIN}"):
        if path.is_dir() and (path / inside).is_file():
            return path / inside
    return path


def _metadata(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: cannot read the metadata: {error}") from error
    if not isinstance(value, dict):
        raise DatasetError(f"{path}: the metadata must be a JSON object")
    return value


def _text(metadata: dict[str, Any], name: str) -> str:
    value = metadata.get(name, "")
    return value if isinstance(value, str) else ""


def _action_range(metadata: dict[str, Any]) -> tuple[np.ndarray, np.ndarray] | None:
    try:
        space = json.loads(_text(metadata, "action_space") or "{}")
        return np.asarray(space["low"], np.float64), np.asarray(space["high"], np.float64)
    except (ValueError, KeyError, TypeError, RecursionError):  # none, or a nested one
        return None


def _has_episodes_alone(file: h5py.File) -> bool:
    names = list(map(str, file))
    return bool(names) and all(map(EPISODE.fullmatch, names))


def _episode(
    file: h5py.File, name: str, source: str
) -> tuple[Rollout, dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    """The rollout, extra columns, and names of nested channels of one episode."""
    where = f"{source}: {name}"
    group = file[name]
    if not isinstance(group, h5py.Group):
        raise DatasetError(f"{where}: expected a group, got an array")
    columns, names = {}, {}
    for field in ("observations", "actions", "rewards", "terminations", "truncations"):
        if field not in group:
            raise DatasetError(f"{where}: field '{field}' is missing")
        columns[field], names[field] = _column(group, field, where)
    n = np.size(columns["rewards"])
    extras = dict(_infos(group, n, where))
    rollout = Rollout(**columns, costs=np.zeros((n, 0)))
    check_rollout(rollout, where)
    return rollout, extras, {"obs": names["observations"], "action": names["actions"]}


def _column(group: h5py.Group, field: str, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    tree = read_tree(group, field, where)
    if isinstance(tree, dict):
        return flatten_columns(tree, source=f"{where}: field '{field}'")
    if field in ("observations", "actions") and tree.ndim == 1:
        return tree[:, None], ()
    return tree, ()


def _infos(group: h5py.Group, n: int, where: str) -> Iterator[tuple[str, np.ndarray]]:
    """Costs and this project's own columns in the information of the steps."""
    infos = group["infos"] if isinstance(group.get("infos", getlink=True), h5py.HardLink) else None
    if not isinstance(infos, h5py.Group):
        return
    for name in ROW_EXTRAS:
        if name in infos:
            column = read_array(infos, name, f"{where}: infos")
            if np.ndim(column) == 0 or len(column) not in (n, n + 1):
                raise DatasetError(
                    f"{where}: infos: '{name}': expected {n} or {n + 1} rows, got shape "
                    f"{column.shape}"
                )
            yield name, column[len(column) - n :]


def _join(
    parts: list[dict[str, np.ndarray]], names: list[str], source: str
) -> dict[str, np.ndarray]:
    for name, part in zip(names, parts, strict=True):
        if set(part) != set(parts[0]):
            raise DatasetError(
                f"{source}: {name}: infos hold {sorted(part)}, those of {names[0]} "
                f"{sorted(parts[0])}"
            )
    return {
        key: join_rows([part[key] for part in parts], f"infos/{key}", source) for key in parts[0]
    }


def write_minari(
    folder: str | os.PathLike[str], dataset: Dataset, *, dataset_id: str = "neorl/log-v0"
) -> Path:
    """Writes a dataset in Minari's layout: ``data/main_data.hdf5`` and ``data/metadata.json``.

    Args:
        folder: Folder of the dataset, created if necessary; existing files are replaced.
        dataset: The dataset. Costs, mask and optional columns of rows are written to ``infos``, and
            the specification to the metadata; :func:`neorl_envs.read_dataset` restores them.
        dataset_id: Minari's identifier of the dataset.

    Returns:
        The folder.

    Raises:
        DatasetError: If the observation after a step differs from the one before the next step.
    """
    folder = Path(folder)
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    extras = {n: c for n, c in extras_of(dataset).items() if n in ROW_EXTRAS}
    with (
        replacing(data / MAIN) as temporary,
        h5py.File(temporary, "w", libver=("v108", "v110"), track_order=True) as file,
    ):
        for index, rollout in enumerate(rollouts_of(dataset)):
            rows = slice(dataset.episode_starts[index], dataset.episode_ends[index])
            _write_episode(file, index, rollout, {n: c[rows] for n, c in extras.items()})
    write_json(data / METADATA, _metadata_of(dataset, dataset_id))
    return folder


def _write_episode(
    file: h5py.File, index: int, rollout: Rollout, extras: dict[str, np.ndarray]
) -> None:
    group = file.create_group(f"episode_{index}")
    group.attrs["id"], group.attrs["total_steps"] = index, len(rollout.rewards)
    for name in ("observations", "actions", "rewards", "terminations", "truncations"):
        group.create_dataset(name, data=getattr(rollout, name))
    infos = group.create_group("infos")
    for name, column in extras.items():
        # One row more, because the reset has information too.
        infos.create_dataset(name, data=np.concatenate([np.zeros_like(column[:1]), column]))


def _metadata_of(dataset: Dataset, dataset_id: str) -> dict[str, Any]:
    spec = dataset.spec
    return {
        "total_episodes": dataset.n_episodes,
        "total_steps": dataset.n_rows,
        "data_format": "hdf5",
        "observation_space": _box(spec.obs),
        "action_space": _box(spec.action),
        "dataset_id": dataset_id,
        DESCRIPTION: description_of(dataset),
    }


def _box(channels: Any) -> str:
    low, high = ([getattr(c, end) for c in channels] for end in ("low", "high"))
    box = {"type": "Box", "dtype": "float32", "shape": [len(low)], "low": low, "high": high}
    return json.dumps(box)
