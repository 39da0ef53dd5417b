"""Recorded data in other people's layouts, read by stated rules."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from neorl_core import Channel, Spec
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset, dataset_from_columns

NEORL2_KEYS = ("obs", "action", "next_obs", "reward", "done", "truncated")
D4RL_KEYS = ("observations", "actions", "rewards", "terminals")
NEORL2_ATTRIBUTION = (
    "NeoRL-2 (polixir/NeoRL2), data licensed CC-BY-4.0; converted from the published .npz file"
)


def read_neorl2(path: Path) -> Dataset:
    """Reads an ``.npz`` file of NeoRL-2.

    Rules: ``done`` is the terminal flag and nothing else; ``truncated`` is the time limit; both
    end an episode, and so does the end of the file. ``next_obs`` is kept as stored. There is no
    cost channel. ``index``, where present, is ignored: the flags say the same.

    Raises:
        DatasetError: If the file is damaged, a key is missing or a column does not fit.
    """
    arrays = _load_npz(path)
    missing = [key for key in NEORL2_KEYS if key not in arrays]
    if missing:
        raise DatasetError(
            f"{path}: expected the keys of NeoRL-2 {list(NEORL2_KEYS)}, got {sorted(arrays)}; "
            f"'{missing[0]}' is missing"
        )
    terminated = _flag(path, "done", arrays["done"], arrays["reward"])
    truncated = _flag(path, "truncated", arrays["truncated"], arrays["reward"])
    return _inferred(
        str(path),
        {key: arrays[key] for key in ("obs", "action", "next_obs", "reward")},
        terminated,
        truncated,
        attributes={
            "name": path.stem,
            "attribution": NEORL2_ATTRIBUTION,
            "provenance": {"format": "NeoRL-2 npz", "file": path.name},
        },
    )


def is_d4rl(file: h5py.File) -> bool:
    """Whether the file has the flat arrays of D4RL."""
    return all(key in file for key in D4RL_KEYS)


def read_d4rl(file: h5py.File, source: str) -> Dataset:
    """Reads the flat arrays of D4RL.

    Rules: ``terminals`` is terminated, ``timeouts`` (false where absent) is truncated. Where the
    file has no ``next_observations``, the next row's observation takes its place; the last row of
    an episode then has none: its own observation stands in, and it is masked unless terminal.

    Raises:
        DatasetError: If a column does not fit.
    """
    arrays = {key: np.asarray(file[key]) for key in (*D4RL_KEYS, "timeouts") if key in file}
    terminated = _flag(source, "terminals", arrays["terminals"], arrays["rewards"])
    timeouts = arrays.get("timeouts", np.zeros(terminated.shape))
    truncated = _flag(source, "timeouts", timeouts, arrays["rewards"])
    obs = arrays["observations"]
    mask = None
    _check_rows(source, "observations", obs, terminated)
    if "next_observations" in file:
        next_obs = np.asarray(file["next_observations"])
    else:
        ended = terminated | truncated
        ended[-1:] = True
        next_obs = np.where(ended[:, None], obs, np.roll(obs, -1, axis=0))
        mask = ~ended | terminated
    return _inferred(
        source,
        {
            "obs": obs,
            "action": arrays["actions"],
            "next_obs": next_obs,
            "reward": arrays["rewards"],
        },
        terminated,
        truncated,
        mask=mask,
        attributes={
            "name": Path(source).stem,
            "provenance": {"format": "D4RL", "file": Path(source).name},
        },
    )


def _check_rows(source: str, name: str, column: np.ndarray, like: np.ndarray) -> None:
    if column.ndim != 2 or len(column) != len(like):
        raise DatasetError(
            f"{source}: column '{name}': expected {len(like)} rows of two axes, got shape "
            f"{column.shape}"
        )


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        pickled = "allow_pickle" in reason
        advice = "save numbers" if pickled else "the file is truncated or damaged, copy it again"
        reason = "it holds Python objects" if pickled else f"cannot read it: {reason}"
        raise DatasetError(
            f"{path}: expected a complete .npz of plain arrays, {reason}; {advice}"
        ) from error


def _flag(source: Any, name: str, column: np.ndarray, reward: np.ndarray) -> np.ndarray:
    if column.shape != reward.shape:
        raise DatasetError(
            f"{source}: column '{name}': expected shape {reward.shape} like the reward, "
            f"got {column.shape}"
        )
    wrong = np.argwhere((column != 0) & (column != 1))
    if wrong.size:
        where = tuple(int(i) for i in wrong[0])
        raise DatasetError(
            f"{source}: column '{name}', row {where[0]}: expected 0 or 1, got {column[where]}"
        )
    return column.astype(np.bool_)


def _inferred(
    source: str,
    columns: Mapping[str, np.ndarray],
    terminated: np.ndarray,
    truncated: np.ndarray,
    *,
    attributes: dict[str, Any],
    mask: np.ndarray | None = None,
) -> Dataset:
    """A dataset whose specification is what the numbers show: unknown names and units."""
    for name, rank in (("obs", 2), ("action", 2), ("next_obs", 2), ("reward", 1)):
        if columns[name].ndim != rank:
            raise DatasetError(
                f"{source}: column '{name}': expected {rank} axes, got shape {columns[name].shape}"
            )
    if len(columns["reward"]) == 0:
        raise DatasetError(f"{source}: the dataset is empty; expected at least one row, got 0")
    ended = np.flatnonzero(terminated | truncated)
    bounds = np.concatenate([[-1], ended, [len(terminated) - 1]])
    spec = Spec(
        obs=_channels("obs", columns["obs"]),
        action=_action_channels(columns["action"]),
        cost=(),
        dt=1.0,
        horizon=max(1, int(np.diff(bounds).max())),
    )
    return dataset_from_columns(
        spec,
        obs=columns["obs"],
        action=columns["action"],
        reward=columns["reward"],
        next_obs=columns["next_obs"],
        terminated=terminated,
        truncated=truncated,
        mask=mask,
        attributes={
            **attributes,
            "inferred": "channel names, units ('?'), ranges, period (1 s) and horizon",
        },
        source=source,
    )


def _channels(prefix: str, column: np.ndarray) -> tuple[Channel, ...]:
    """Ranges from the data; a constant channel gets half its size, at least 0.5, to each side."""
    channels = []
    for index in range(column.shape[1]):
        values = column[:, index][np.isfinite(column[:, index])]
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        margin = max(0.5, abs(low) / 2) if low == high else 0.0
        channels.append(Channel(f"{prefix}_{index}", "?", low - margin, high + margin))
    return tuple(channels)


def _action_channels(column: np.ndarray) -> tuple[Channel, ...]:
    """[-1, 1], the action space that these collections declare, where the data lie inside."""
    if np.abs(column).max(initial=0.0) <= 1.0:
        return tuple(Channel(f"action_{i}", "?", -1.0, 1.0) for i in range(column.shape[1]))
    return _channels("action", column)
