"""Reads a log for replay: a dataset file or a NeoRL-2 archive.

The layout and the rules are those of ``docs/pages/reference/dataset-file.md``; no code of the
package that writes it is used. HDF5 needs the extra ``replay``.
"""

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy._errors import DeployError
from neorl_deploy.shadow._archive import read_archive
from neorl_deploy.shadow._dataset_file import read_dataset_file

NEORL2_KEYS = ("obs", "action", "done", "truncated")
HDF5_MAGIC, ZIP_MAGIC = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"


@dataclasses.dataclass(frozen=True)
class Log:
    """The parts of a log that a replay needs.

    Attributes:
        source: Path of the file, as given.
        obs: Observation before each action, shape ``(row, obs)``, float32.
        action: Action that the plant received, shape ``(row, act)``, float32.
        mask: False for a row that enters no statistic, shape ``(row,)``.
        starts: First row of every episode, ascending.
        obs_channels: Name and unit of each observed channel.
        action_channels: Name and unit of each manipulated channel.
        content_hash: Identity of the data, verified; empty if the format has none.
        attribution: Citation of third-party data; empty if the data are our own.
        dt: Seconds between two rows; NaN if the format does not state it.
        ranges: Lower and upper end of each observed, then each manipulated channel, shape ``(obs +
            act, 2)``; NaN if the format does not state them.
    """

    source: str
    obs: np.ndarray
    action: np.ndarray
    mask: np.ndarray
    starts: np.ndarray
    obs_channels: tuple[tuple[str, str], ...]
    action_channels: tuple[tuple[str, str], ...]
    content_hash: str
    attribution: str
    dt: float
    ranges: np.ndarray


def read_log(path: str | os.PathLike[str]) -> Log:
    """Reads a log; its format is recognised by its content.

    Args:
        path: A dataset file (HDF5), or an ``.npz`` archive of NeoRL-2.

    Returns:
        The log.

    Raises:
        DeployError: If it is missing, of another format or damaged, or the extra ``replay`` is not
            installed; one line.
    """
    path = Path(path)
    try:
        if not path.is_file() and path.exists() and not path.is_dir():
            raise DeployError(f"{path} is not a log but a pipe, a socket or a device")
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise DeployError(f"cannot read the log {path}: {error.strerror}") from error
    if magic.startswith(HDF5_MAGIC):
        return _read_hdf5(path)
    if magic.startswith(ZIP_MAGIC):
        return _read_neorl2(path)
    raise DeployError(
        f"{path} is not a log: expected a dataset file (HDF5) or a NeoRL-2 .npz, got a file that "
        f"starts with {magic!r}; convert a CSV or Parquet file with `neorl-envs convert`"
    )


def _read_hdf5(path: Path) -> Log:
    stored = read_dataset_file(path)
    columns, spec = stored.columns, stored.spec
    log = Log(
        source=str(path),
        obs=columns["obs"],
        action=columns["action"],
        mask=columns["mask"].astype(bool),
        starts=columns["episode_starts"],
        obs_channels=_channels(path, spec, "obs"),
        action_channels=_channels(path, spec, "action"),
        content_hash=stored.content_hash,
        attribution=str(stored.attributes.get("attribution", "")),
        dt=_seconds(path, spec),
        ranges=_ranges(path, spec),
    )
    return _validate(log)


def _read_neorl2(path: Path) -> Log:
    arrays = read_archive(path, NEORL2_KEYS)
    obs, action = (np.asarray(arrays[key], np.float32) for key in ("obs", "action"))
    ended = (arrays["done"] != 0) | (arrays["truncated"] != 0)
    if obs.ndim != 2 or action.ndim != 2 or ended.shape != obs.shape[:1]:
        raise DeployError(f"{path}: the arrays have shapes that do not match")
    log = Log(
        source=str(path),
        obs=obs,
        action=action,
        mask=np.ones(len(obs), bool),
        starts=np.append(0, np.flatnonzero(ended[:-1]) + 1),
        obs_channels=tuple((f"obs_{i}", "?") for i in range(obs.shape[1])),
        action_channels=tuple((f"action_{i}", "?") for i in range(action.shape[1])),
        content_hash="",
        attribution="NeoRL-2 (polixir/NeoRL2), data licensed CC-BY-4.0",
        dt=math.nan,
        ranges=np.full((obs.shape[1] + action.shape[1], 2), np.nan),
    )
    return _validate(log)


def _validate(log: Log) -> Log:
    rows = len(log.obs)
    if rows == 0:
        raise DeployError(f"{log.source} has no rows; a replay needs at least one")
    widths = (rows, len(log.obs_channels)), (rows, len(log.action_channels))
    if (log.obs.shape, log.action.shape) != widths or log.mask.shape != (rows,):
        raise DeployError(
            f"{log.source}: obs {log.obs.shape}, action {log.action.shape} and mask "
            f"{log.mask.shape} do not fit {len(log.obs_channels)} and {len(log.action_channels)} "
            "channels"
        )
    starts = log.starts
    if not (len(starts) and starts[0] == 0 and (np.diff(starts) > 0).all() and starts[-1] < rows):
        raise DeployError(f"{log.source}: the episode starts are not ascending rows from 0")
    return log


def _channels(path: Path, spec: Any, kind: str) -> tuple[tuple[str, str], ...]:
    try:
        channels = tuple((entry["name"], entry["unit"]) for entry in spec[kind])
    except (KeyError, TypeError) as error:
        raise DeployError(f"{path}: attribute 'spec' lists no channels for {kind}") from error
    for channel in channels:
        if not all(isinstance(text, str) for text in channel):
            raise DeployError(f"{path}: attribute 'spec' calls a channel of {kind} {channel}")
    return channels


def _seconds(path: Path, spec: Any) -> float:
    dt = spec.get("dt")
    number = isinstance(dt, int | float) and not isinstance(dt, bool)
    if not (number and 0 < dt < math.inf):
        raise DeployError(f"{path}: attribute 'spec' has a period of {dt!r}, expected seconds")
    return float(dt)


def _ranges(path: Path, spec: Any) -> np.ndarray:
    try:
        ends = [[entry["low"], entry["high"]] for entry in [*spec["obs"], *spec["action"]]]
        return np.array(ends, np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DeployError(f"{path}: attribute 'spec' has a channel without a range") from error
