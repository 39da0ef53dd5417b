"""Writes a dataset file piece by piece, for data that does not fit into memory."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from neorl_core import Spec
from neorl_envs.datasets._checks import DatasetError, check_spec
from neorl_envs.datasets._dataset import content_digest
from neorl_envs.datasets._file import (
    DTYPES,
    OPTIONAL_DTYPES,
    header,
    map_unchecked,
    new_file,
    replacing_dataset,
    set_text,
)

NO_HASH = "sha256:" + "0" * 64


def write_pieces(
    path: Path,
    spec: Spec,
    attributes: Mapping[str, Any],
    flags: Mapping[str, np.ndarray],
    pieces: Iterable[Mapping[str, np.ndarray]],
    *,
    source: str,
    behaviour: np.ndarray | None = None,
) -> Path:
    """Writes a dataset completely or not at all, without holding all rows in memory.

    ``flags`` are those of all rows, ``pieces`` the other columns except ``next_action``;
    ``behaviour`` is, for every episode, an index in the attribute ``behaviours``.
    """
    check_spec(spec, source)
    texts = header(source, spec, attributes, NO_HASH)
    with replacing_dataset(path) as temporary:
        _write(temporary, texts, dict(flags), pieces, behaviour)
        try:
            digest = content_digest(map_unchecked(temporary))
        except DatasetError as error:
            raise DatasetError(str(error).replace(str(temporary), source)) from error
        with h5py.File(temporary, "r+", libver=("v108", "v110")) as file:
            set_text(file, "content_hash", digest)
    return path


def _write(
    path: Path,
    texts: Mapping[str, Any],
    flags: dict[str, np.ndarray],
    pieces: Iterable[Mapping[str, np.ndarray]],
    behaviour: np.ndarray | None,
) -> None:
    n_rows = len(flags["mask"])
    flags["truncated"] = flags["truncated"].copy()
    flags["truncated"][-1] |= not flags["terminated"][-1]
    ended = flags["terminated"] | flags["truncated"]
    starts = np.append(0, np.flatnonzero(ended)[:-1] + 1).astype("<i8")
    with new_file(path, texts) as file:
        for name, column in (*flags.items(), ("episode_starts", starts)):
            file.create_dataset(name, data=column.astype(DTYPES[name]))
        if behaviour is not None:
            file.create_dataset("behaviour", data=behaviour.astype(OPTIONAL_DTYPES["behaviour"]))
        _fill(file, n_rows, ended, pieces)


def _fill(
    file: h5py.File, n_rows: int, ended: np.ndarray, pieces: Iterable[Mapping[str, np.ndarray]]
) -> None:
    columns: dict[str, Any] = {}
    row = 0
    for piece in pieces:
        stop = row + len(piece["reward"])
        for name, values in {**piece, "next_action": piece["action"]}.items():
            if name not in columns:
                code = {**DTYPES, **OPTIONAL_DTYPES}[name]
                shape = (n_rows, *values.shape[1:])
                columns[name] = file.create_dataset(name, shape, code, fillvalue=0)
            if name == "next_action":
                continue
            with np.errstate(over="ignore"):  # the checks report an overflow
                columns[name][row:stop] = values.astype(columns[name].dtype)
        follows = piece["action"].astype(np.float32)
        first = max(row - 1, 0)
        follows = follows[first + 1 - row :]
        follows[ended[first : first + len(follows)]] = 0
        columns["next_action"][first : first + len(follows)] = follows
        row = stop
    assert row == n_rows
    columns["next_action"][n_rows - 1] = 0
