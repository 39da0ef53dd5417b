"""Reads and writes the ``.npz`` files of NeoRL-2."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core.infrastructure import replacing
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.ingest._extras import COLUMNS, DESCRIPTION, description_of, extras_of
from neorl_envs.ingest._inferred import inferred_dataset, read_flag
from neorl_envs.ingest._npz import ZIP_MAGIC, load_npz, npz_names

KEYS = ("obs", "action", "next_obs", "reward", "done", "truncated")
ATTRIBUTION = (
    "NeoRL-2 (polixir/NeoRL2), data licensed CC-BY-4.0; converted from the published .npz file"
)


class NeoRL2Reader:
    """Reads an ``.npz`` file of NeoRL-2.

    ``done`` is read as terminated, and ``truncated`` as the time limit. Both end an episode, as
    does the end of the file. ``next_obs`` is used as stored. ``cost``, which the published files do
    not have, contains one column per cost. ``index`` is ignored if present, because the flags
    contain the same information.
    """

    suffixes = (".npz",)

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether the file is an archive with the keys of NeoRL-2."""
        return first_bytes.startswith(ZIP_MAGIC) and set(KEYS) <= npz_names(path)

    def read(self, path: Path) -> Dataset:
        """Reads a file; names, units, ranges, period and horizon are inferred.

        Raises a ``DatasetError`` if the file is damaged, a key is missing or columns are
        inconsistent.
        """
        arrays = load_npz(path, KEYS, "the keys of NeoRL-2", (*COLUMNS, DESCRIPTION))
        text = arrays.pop(DESCRIPTION, np.zeros(0, np.uint8))
        terminated = read_flag(path, "done", arrays["done"], arrays["reward"])
        truncated = read_flag(path, "truncated", arrays["truncated"], arrays["reward"])
        return inferred_dataset(
            str(path),
            {key: arrays[key] for key in ("obs", "action", "next_obs", "reward")},
            terminated,
            truncated,
            extras={name: arrays[name] for name in COLUMNS if name in arrays},
            description=text.astype(np.uint8).tobytes().decode("utf-8", "replace"),
            attributes={
                "name": path.stem,
                "attribution": ATTRIBUTION,
                "provenance": {"format": "NeoRL-2 npz", "file": path.name},
            },
        )


def write_neorl2(path: str | os.PathLike[str], dataset: Dataset) -> Path:
    """Writes a dataset in the layout of NeoRL-2, completely or not at all.

    Args:
        path: The ``.npz`` file; an existing file is replaced.
        dataset: The dataset. Costs, mask, optional columns and the specification are stored in
            addition to the arrays of the format; :func:`neorl_envs.read_dataset` restores them.

    Returns:
        The path of the file.
    """
    path, rows = Path(path), dataset.transitions
    arrays: dict[str, Any] = {key: getattr(rows, key) for key in ("obs", "action", "next_obs")}
    arrays["reward"] = rows.reward
    arrays["done"], arrays["truncated"] = (
        np.asarray(flag, np.float32) for flag in (rows.terminated, rows.truncated)
    )
    arrays["index"] = dataset.episode_starts
    arrays |= extras_of(dataset)
    arrays[DESCRIPTION] = np.frombuffer(description_of(dataset).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path
