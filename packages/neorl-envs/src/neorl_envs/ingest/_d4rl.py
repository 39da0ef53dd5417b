"""Reads and writes HDF5 files in the layout of D4RL, with flat or nested arrays."""

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from neorl_core.infrastructure import replacing
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset, as_stored
from neorl_envs.datasets._file import (
    attribute,
    is_hdf5,
    open_hdf5,
    set_text,
)
from neorl_envs.datasets._nested import flatten_columns
from neorl_envs.ingest._inferred import (
    COLUMNS,
    DESCRIPTION,
    description_of,
    extras_of,
    inferred_dataset,
    read_array,
    read_flag,
    read_tree,
)

KEYS = ("observations", "actions", "rewards", "terminals")


class D4RLReader:
    """Reads files in the layout of D4RL.

    ``terminals`` is read as terminated, and ``timeouts`` (false if absent) as truncated. If the
    file has no ``next_observations``, the observation of the next row is used. The last row of an
    episode then repeats its own observation, and is masked unless it is terminal. If
    ``observations`` or ``actions`` is a group (a dictionary of arrays, as for robots with several
    sensors), every array in it becomes channels with dotted names: ``arm.angle.0``. ``costs``,
    which datasets for safe control have, contains a single cost or one column per cost.
    """

    suffixes = (".h5", ".hdf5")

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether the file is HDF5 with the keys of D4RL."""
        return is_hdf5(path, first_bytes, lambda file: all(key in file for key in KEYS))

    def read(self, path: Path) -> Dataset:
        """Reads a file; units, ranges, period, horizon and names of flat channels are inferred.

        Raises a ``DatasetError`` if the file is damaged or its columns are inconsistent.
        """
        source = str(path)
        with open_hdf5(path) as file:
            obs, obs_names = _column(file, "observations", source)
            action, action_names = _column(file, "actions", source)
            reward = read_array(file, "rewards", source)
            terminals = read_array(file, "terminals", source)
            terminated = read_flag(source, "terminals", terminals, reward)
            timeouts = np.zeros(reward.shape)
            if "timeouts" in file:
                timeouts = read_array(file, "timeouts", source)
            truncated = read_flag(source, "timeouts", timeouts, reward)
            _check_rows(source, "observations", obs, terminated)
            mask = None
            extras = {n: read_array(file, n, source) for n in COLUMNS if n in file}
            if "cost" not in extras and "costs" in file:
                extras["cost"] = read_array(file, "costs", source)
            described = attribute(file, DESCRIPTION) if DESCRIPTION in file.attrs else ""
            if "next_observations" in file:
                next_obs, next_names = _column(file, "next_observations", source)
                _check_same_channels(source, obs_names, next_names)
            else:
                ended = terminated | truncated
                ended[-1:] = True
                next_obs = np.where(ended[:, None], obs, np.roll(obs, -1, axis=0))
                mask = ~ended | terminated
        return inferred_dataset(
            source,
            {"obs": obs, "action": action, "next_obs": next_obs, "reward": reward},
            terminated,
            truncated,
            mask=mask,
            extras=extras,
            description=str(described),
            names={"obs": obs_names, "action": action_names},
            attributes={
                "name": path.stem,
                "provenance": {"format": "D4RL", "file": path.name},
            },
        )


def _column(file: h5py.File, name: str, source: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """A column and the names of its channels; a plain array has no names."""
    tree = read_tree(file, name, source)
    if isinstance(tree, dict):
        return flatten_columns(tree, source=f"{source}: column '{name}'")
    return tree, ()


def _check_same_channels(source: str, now: tuple[str, ...], after: tuple[str, ...]) -> None:
    if now != after:
        differing = sorted(set(now) ^ set(after)) or ["their order"]
        raise DatasetError(
            f"{source}: column 'next_observations': expected the channels of 'observations', they "
            f"differ in {differing[0]}"
        )


def _check_rows(source: str, name: str, column: np.ndarray, like: np.ndarray) -> None:
    if column.ndim != 2 or len(column) != len(like):
        raise DatasetError(
            f"{source}: column '{name}': expected {len(like)} rows of two axes, got shape "
            f"{column.shape}"
        )


def write_d4rl(path: str | os.PathLike[str], dataset: Dataset) -> Path:
    """Writes a dataset in the layout of D4RL, completely or not at all.

    Args:
        path: The HDF5 file; an existing file is replaced.
        dataset: The dataset. Costs are written as ``costs``. Mask, optional columns and the
            specification are stored in addition to the arrays of the format, and are restored by
            :func:`neorl_envs.read_dataset`.

    Returns:
        The path of the file.
    """
    path, rows = Path(path), dataset.transitions
    arrays: dict[str, Any] = {
        "observations": rows.obs,
        "actions": rows.action,
        "rewards": rows.reward,
        "next_observations": rows.next_obs,
        "terminals": rows.terminated,
        "timeouts": rows.truncated,
        **extras_of(dataset),
    }
    if "cost" in arrays:
        arrays["costs"] = arrays.pop("cost")
    with (
        replacing(path) as temporary,
        h5py.File(temporary, "w", libver=("v108", "v110")) as file,
    ):
        set_text(file, DESCRIPTION, description_of(dataset))
        for name, column in arrays.items():
            flag = np.asarray(column).dtype == np.bool_
            file.create_dataset(name, data=column if flag else as_stored(np.asarray(column)))
    return path
