"""Every bad file is refused in one line that names file, column, row, expected and actual."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from neorl_envs import DatasetError, read_dataset


def refused(path: Path, message: str) -> None:
    before = sorted(path.parent.iterdir())
    with pytest.raises(DatasetError, match=message) as caught:
        read_dataset(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert sorted(path.parent.iterdir()) == before


FILES = {
    "missing": (None, "no such file; give the path of a dataset"),
    "empty": (b"", r"the file is empty \(0 bytes\)"),
    "text": (b"time,tag,value\n", "expected an HDF5 dataset file or a NeoRL-2 .npz, got a file"),
    "zip": (b"PK\x03\x04nothing", "expected a complete .npz of plain arrays, cannot read it"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "expected an HDF5 file, cannot open it"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_no_dataset(tmp_path: Path, case: str) -> None:
    content, message = FILES[case]
    path = tmp_path / "log.bin"
    if content is not None:
        path.write_bytes(content)
    refused(path, message)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", obs=np.array([None, "x"], dtype=object))
    refused(tmp_path / "log.npz", "it holds Python objects; save numbers")


def test_a_folder_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "cannot read it: Is a directory")


@pytest.mark.parametrize("fraction", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("suffix", ["h5", "npz"])
def test_a_truncated_file(toy_file: Path, toy_npz: Path, fraction: float, suffix: str) -> None:
    path = toy_file if suffix == "h5" else toy_npz
    content = path.read_bytes()
    path.write_bytes(content[: int(fraction * len(content))])
    refused(path, "truncated or damaged")


@pytest.mark.parametrize("memory_map", [False, True])
def test_a_flipped_byte(toy_file: Path, memory_map: bool) -> None:
    with h5py.File(toy_file) as file:
        offset = file["reward"].id.get_offset()
    content = bytearray(toy_file.read_bytes())
    content[offset] ^= 1
    toy_file.write_bytes(content)
    if memory_map:  # not read through: documented
        read_dataset(toy_file, memory_map=True)
    else:
        refused(toy_file, "do not match the recorded content hash: expected sha256:.*, got sha256")


def replace(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        column = change(file[name][()])
        del file[name]
        file.create_dataset(name, data=column)

    return edit


def set_row(name: str, row: int, value: float) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        file[name][row] = value

    return edit


def drop(name: str) -> Callable[[h5py.File], None]:
    return lambda file: file.__delitem__(name)


def attribute(name: str, value: object) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.__setitem__(name, value)


SHAPE = r"column '{}': expected shape {}, got {}"
EDITS = {
    "no terminated": (
        drop("terminated"),
        "expected column 'terminated', got only .*a log without a single trip is valid",
    ),
    "no reward": (drop("reward"), "expected column 'reward', got only"),
    "short obs": (replace("obs", lambda c: c[:5]), r"'obs': expected shape \(8, 2\), got \(5, 2\)"),
    "wide action": (
        replace("action", lambda c: np.hstack([c, c])),
        r"'action': expected shape \(8, 1\), got \(8, 2\)",
    ),
    "reward of rank two": (
        replace("reward", lambda c: c[:, None]),
        r"'reward': expected shape \(8,\), got \(8, 1\)",
    ),
    "no cost": (replace("cost", lambda c: c[:, :0]), r"'cost': expected shape \(8, 1\)"),
    "doubles": (
        replace("reward", lambda c: c.astype(np.float64)),
        "'reward': expected numbers of type <f4, got <f8; write it with write_dataset",
    ),
    "empty": (
        lambda file: [replace(name, lambda c: c[:0])(file) for name in list(file)],
        "the dataset is empty; expected at least one row, got 0",
    ),
    "NaN reward": (set_row("reward", 6, np.nan), "'reward', row 6: expected a finite number, got"),
    "infinite obs": (set_row("obs", 1, np.inf), "'obs', row 1, channel 0: expected a finite"),
    "flag of two": (set_row("terminated", 4, 2), "'terminated', row 4: expected 0 or 1, got 2"),
    "open end": (set_row("truncated", 7, 0), "'truncated', row 7: expected the last row to be"),
    "unmarked end of an episode": (set_row("terminated", 3, 0), "expected 2 episodes .*, got 3"),
    "late start": (set_row("episode_starts", 2, 5), "'episode_starts', row 2: expected 4, got 5"),
    "action across an episode boundary": (
        set_row("next_action", 2, 35.0),
        r"'next_action', row 2: expected \[0.0\] .* got \[35.0\]",
    ),
    "unknown behaviour": (set_row("behaviour", 1, 7), "'behaviour', row 1: expected an index"),
    "short labels": (
        replace("behaviour", lambda c: c[:2]),
        r"'behaviour': expected shape \(3,\), one label an episode, got \(2,\)",
    ),
    "short log-densities": (
        replace("behaviour_log_prob", lambda c: c[:2]),
        r"'behaviour_log_prob': expected shape \(8,\), got \(2,\)",
    ),
    "NaN log-density": (set_row("behaviour_log_prob", 3, np.nan), "'behaviour_log_prob', row 3"),
    "newer version": (attribute("version", 2), "has version 2 of neorl-dataset, .* reads 1"),
    "no spec": (lambda file: file.attrs.__delitem__("spec"), "attribute: 'spec'.* write_dataset"),
    "spec is no JSON": (attribute("spec", "{"), "must be JSON of the published layout"),
    "spec lacks a field": (attribute("spec", json.dumps({"dt": 1})), "a spec has the fields"),
}


@pytest.mark.parametrize("case", EDITS)
def test_columns_and_attributes_that_do_not_fit(toy_file: Path, case: str) -> None:
    edit, message = EDITS[case]
    with h5py.File(toy_file, "r+") as file:
        edit(file)
    refused(toy_file, message)


def test_hdf5_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        file["temperature"] = np.zeros(3)
    refused(path, r"expected the columns of a dataset file .* or of D4RL, got \['temperature'\]")
