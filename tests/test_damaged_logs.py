"""Damaged dataset files: both readers refuse the same ones, in one line, and neither falls over."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from neorl_core import Channel, InputError, Spec
from neorl_deploy import DeployError
from neorl_deploy.shadow import read_log
from neorl_envs import read_dataset, write_dataset
from neorl_envs.datasets import dataset_from_columns


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file with every optional column, as bytes."""
    spec = Spec((Channel("level", "m", 0, 2),), (Channel("valve", "%", 0, 100),), (), 10, 5)
    rows = np.arange(10.0)[:, None]
    log = dataset_from_columns(
        spec,
        obs=rows / 8,
        action=rows,
        reward=rows[:, 0],
        next_obs=rows / 8,
        terminated=np.arange(10) == 4,
        truncated=np.zeros(10),
        behaviour=[0, 1],
        behaviour_log_prob=rows[:, 0],
        time=10 * rows[:, 0],
        mode=rows > 5,
        setpoint=rows,
        test_signal=0 * rows,
        term=np.hstack([rows, rows]),
        attributes={"behaviours": ["a", "b"]},
    )
    path = write_dataset(tmp_path_factory.mktemp("log") / "log.h5", log)
    return path.read_bytes()


def answers(path: Path) -> tuple[str, str]:
    """What each reader says: a content hash, or the one line of its refusal."""
    collected = []
    for read, kind in ((read_dataset, InputError), (read_log, DeployError)):
        try:
            collected.append(read(path).content_hash)
        except kind as error:
            collected.append(str(error))
    return collected[0], collected[1]


def test_flipped_bits(content: bytes, tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    path = tmp_path / "log.h5"
    path.write_bytes(content)
    whole = answers(path)
    assert whole[0] == whole[1]
    refused = 0
    for byte in random.integers(0, len(content), 250):
        damaged = bytearray(content)
        damaged[byte] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        ours, theirs = answers(path)
        assert (ours in whole) == (theirs in whole), (byte, ours, theirs)
        assert "\n" not in ours + theirs
        refused += ours not in whole
    assert refused > 50


def replace(name: str, column: Any, **options: Any) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **({"data": column} if column is not None else {}), **options)

    return edit


def link(target: Any) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        del file["obs"]
        file["obs"] = target

    return edit


def text(name: str, value: Any) -> Callable[[h5py.File], None]:
    value = np.bytes_(value.encode()) if isinstance(value, str) else value
    return lambda file: file.attrs.__setitem__(name, value)


DAMAGE = {
    "version 1": text("version", 1),
    "version 2.5": text("version", 2.5),
    "versions": text("version", np.arange(2)),
    "no version": lambda file: file.attrs.__delitem__("version"),
    "another format": text("format", "neorl-run"),
    "format of variable length": lambda file: file.attrs.__setitem__("format", "neorl-dataset"),
    "no specification": lambda file: file.attrs.__delitem__("spec"),
    "an open bracket": text("spec", "{"),
    "nesting": text("attributes", "[" * 10**5),
    "attributes are a list": text("attributes", json.dumps([1])),
    "not UTF-8": text("attributes", np.bytes_(b"\xff\xfe{}")),
    "a period in words": text("spec", json.dumps({"dt": "x"})),
    "another hash": text("content_hash", "sha256:0"),
    "no reward": lambda file: file.__delitem__("reward"),
    "doubles": replace("reward", np.zeros(10)),
    "text": replace("reward", np.array([b"x"] * 10)),
    "short": replace("obs", np.zeros((9, 1), "<f4")),
    "a flag of seven": replace("mask", np.full(10, 7, "|u1")),
    "a soft link": link(h5py.SoftLink("/next_obs")),
    "a link to itself": link(h5py.SoftLink("/obs")),
    "a link out of the file": link(h5py.ExternalLink("other.h5", "/obs")),
    "numbers elsewhere": replace(
        "obs", None, shape=(10, 1), dtype="<f4", external=[("raw", 0, 40)]
    ),
    "a billion rows": replace("obs", None, shape=(10**9, 1), dtype="<f4", chunks=(1024, 1)),
    "a million million rows": replace("obs", None, shape=(10**12, 1), dtype="<f4"),
    "no space at all": replace("obs", h5py.Empty("<f4")),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_refused_by_both(content: bytes, tmp_path: Path, case: str) -> None:
    path = tmp_path / "log.h5"
    path.write_bytes(content)
    with h5py.File(path, "r+") as file:
        DAMAGE[case](file)
    for message in answers(path):
        assert not message.startswith("sha256:")
        assert "log.h5" in message
        assert "\n" not in message


def test_a_pipe_is_refused_by_both(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.h5")
    for message in answers(tmp_path / "log.h5"):
        assert "a pipe" in message


def test_archives_are_refused_by_both(tmp_path: Path) -> None:
    zeros = np.zeros((4, 1), np.float32)
    good = {
        **dict.fromkeys(("obs", "action", "next_obs"), zeros),
        **dict.fromkeys(("reward", "done", "truncated"), zeros[:, 0]),
    }
    damage = {
        "complex": {"obs": zeros + 1j},
        "text": {"action": np.array([["x"]] * 4)},
        "dates": {"obs": np.zeros((4, 1), "datetime64[s]")},
        "records": {"obs": np.zeros(4, [("a", "<f4")])},
        "objects": {"obs": np.array([[None]] * 4, object)},
    }
    path = tmp_path / "log.npz"
    np.savez(path, **good)
    read_log(path)
    read_dataset(path)
    for name, change in damage.items():
        np.savez(path, **{**good, **change})
        for message in answers(path):
            assert "log.npz" in message, name
            assert "\n" not in message
