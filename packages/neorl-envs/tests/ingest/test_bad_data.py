"""Every bad file is refused in one line that names file, column, row, expected and actual."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    arrays = dict.fromkeys(("action", "next_obs", "reward", "done", "truncated"), np.zeros(2))
    np.savez(tmp_path / "log.npz", obs=np.array([None, "x"], dtype=object), **arrays)
    refused(tmp_path / "log.npz", "column 'obs': expected numbers, got Python objects")


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
    if isinstance(value, str):  # of fixed length, as the writer stores it
        kind = h5py.string_dtype("utf-8", len(value.encode()))
        stored = np.array(value.encode(), dtype=kind)
        return lambda file: file.attrs.create(name, stored, dtype=kind)
    return lambda file: file.attrs.__setitem__(name, value)


def link(target: object) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        del file["obs"]
        if target is None:
            file.create_group("obs")
        else:
            file["obs"] = target

    return edit


def unstored(shape: tuple[int, int], **options: Any) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        del file["obs"]
        file.create_dataset("obs", shape, "<f4", **options)

    return edit


LEVEL = {"name": "level", "unit": "m", "low": 0.0, "high": 2.0}
SPEC = {
    "obs": [LEVEL, {"name": "temperature", "unit": "K", "low": 280.0, "high": 400.0}],
    "action": [{"name": "valve", "unit": "%", "low": 0.0, "high": 100.0}],
    "cost": [{"name": "overflow", "unit": "m", "limit": 0.5, "per": "episode"}],
    "dt": 60.0,
    "horizon": 4,
}
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
        r"'behaviour': expected shape \(3,\), one label per episode, got \(2,\)",
    ),
    "short log-densities": (
        replace("behaviour_log_prob", lambda c: c[:2]),
        r"'behaviour_log_prob': expected shape \(8,\), one entry per row, got \(2,\)",
    ),
    "NaN log-density": (set_row("behaviour_log_prob", 3, np.nan), "'behaviour_log_prob', row 3"),
    "older version": (attribute("version", 1), "has version 1 of neorl-dataset, .* reads 2"),
    "version is text": (attribute("version", "abc"), "has version 'abc' of neorl-dataset"),
    "version is a fraction": (attribute("version", 1.5), "'version': expected text of fixed"),
    "version is an array": (attribute("version", np.arange(3)), r"int64 of shape \(3,\)"),
    "another format": (attribute("format", "neorl-run"), "has format 'neorl-run', expected"),
    "format of variable length": (
        lambda file: file.attrs.__setitem__("format", "neorl-dataset"),
        "'format': expected text of fixed length or an integer, got object",
    ),
    "no spec": (lambda file: file.attrs.__delitem__("spec"), "'spec': expected text, got none"),
    "attributes are a list": (attribute("attributes", "[]"), "must be a JSON object, got list"),
    "attributes without an end": (attribute("attributes", "[" * 10**5), "must be JSON of the"),
    "behaviours are no list": (
        attribute("attributes", json.dumps({"behaviours": 3})),
        "'behaviours': expected a list of names, got int",
    ),
    "a name is a number": (
        attribute("spec", json.dumps(SPEC).replace('"level"', "5")),
        "the name of a channel of 'obs': expected text, got 5",
    ),
    "no unit": (
        attribute("spec", json.dumps(SPEC).replace('"m"', "null", 1)),
        "the unit of a channel of 'obs': expected text, got None",
    ),
    "a period in words": (
        attribute("spec", json.dumps({**SPEC, "dt": "60"})),
        "dt must be a number, got '60'",
    ),
    "a range beyond numbers": (
        attribute("spec", json.dumps(SPEC).replace("400.0", "1" + "0" * 400)),
        "published layout: .* too large",
    ),
    "soft link": (link(h5py.SoftLink("/next_obs")), "numbers in this file, got a link"),
    "external link": (link(h5py.ExternalLink("other.h5", "/obs")), "in this file, got a link"),
    "group": (link(None), "column 'obs': expected an array, got a group"),
    "rows that are not stored": (
        unstored((3 * 10**8, 2), chunks=(1024, 2)),
        r"'obs': \(300000000, 2\) numbers are declared and not stored",
    ),
    "rows beyond the file": (unstored((10**12, 2)), "numbers are declared and not stored"),
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


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.h5")
    refused(tmp_path / "pipe.h5", "expected a file, got a pipe")


def test_archives_that_declare_more_than_they_hold(toy_npz: Path) -> None:
    """A header of an array that claims a terabyte, in a few kilobytes."""
    with zipfile.ZipFile(toy_npz) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["obs.npy"] = members["obs.npy"].replace(b"(8, 2)", b"(9999999999, 2)".ljust(6))
    with zipfile.ZipFile(toy_npz, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    refused(toy_npz, "column 'obs'|cannot read it")


def test_complex_numbers_are_refused(toy_npz: Path) -> None:
    with np.load(toy_npz) as archive:
        arrays = dict(archive)
    np.savez(toy_npz, **{**arrays, "reward": arrays["reward"] + 1j})
    refused(toy_npz, "column 'reward': expected numbers, got complex64")


def test_no_flipped_bit_of_the_headers_escapes(toy_file: Path) -> None:
    """Every header byte has a checksum; what is harmless gives the very same data."""
    content = toy_file.read_bytes()
    whole = read_dataset(toy_file)
    with h5py.File(toy_file) as file:
        ends = [file[name].id.get_offset() for name in file]
        stored = [range(o, o + file[n].nbytes) for n, o in zip(file, ends, strict=True) if o]
    heads = [i for i in range(len(content)) if not any(i in part for part in stored)]
    random = np.random.default_rng(5)
    for byte in random.choice(heads, 150, replace=False):
        damaged = bytearray(content)
        damaged[byte] ^= 1 << int(random.integers(8))
        toy_file.write_bytes(damaged)
        message = ""
        try:
            back = read_dataset(toy_file)
        except DatasetError as error:
            message = str(error)
        else:
            assert (back.content_hash, back.spec) == (whole.content_hash, whole.spec)
        assert not message or (message.startswith(str(toy_file)) and "\n" not in message)
