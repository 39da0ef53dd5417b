"""Formats from outside: registered or installed, they are read like the known ones."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import Dataset, DatasetError, read_dataset
from neorl_envs.ingest import READERS, Reader, log_suffixes, register_reader

MARK = b"PLANTLOG"


@dataclasses.dataclass
class Recorded:
    """Reads any file that begins with the mark as one given dataset."""

    dataset: Any
    suffixes: tuple[str, ...] = (".plant",)

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        return first_bytes == MARK

    def read(self, path: Path) -> Dataset:
        if isinstance(self.dataset, Exception):
            raise self.dataset
        return self.dataset


@pytest.fixture
def own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(READERS, "_registered", {})


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / "export.bin"
    path.write_bytes(MARK + b" and more")
    return path


def test_the_known_formats_come_first() -> None:
    assert list(READERS)[:3] == ["neorl", "neorl2", "d4rl"]
    assert all(isinstance(reader, Reader) for reader in READERS.values())
    assert {".h5", ".hdf5", ".npz"} <= set(log_suffixes())


@pytest.mark.usefixtures("own_table")
def test_a_registered_reader_is_asked_for_what_nobody_else_knows(
    toy: Dataset, toy_file: Path, log_file: Path
) -> None:
    with pytest.raises(DatasetError, match="starts with b'PLANTLOG'"):
        read_dataset(log_file)
    register_reader("plantlog", Recorded(toy))
    assert read_dataset(log_file) is toy
    assert read_dataset(toy_file).content_hash == toy.content_hash
    assert ".plant" in log_suffixes()
    (other := log_file.with_suffix(".plant")).write_bytes(b"another log")
    with pytest.raises(DatasetError, match=r"'plantlog' \(registered\) does not recognise it$"):
        read_dataset(other)
    with pytest.raises(DatasetError, match="only the dataset file can be mapped; convert it once"):
        read_dataset(log_file, memory_map=True)


@pytest.mark.usefixtures("own_table")
def test_what_a_reader_returns_is_checked(toy: Dataset, log_file: Path) -> None:
    reader = Recorded(toy)
    register_reader("plantlog", reader)
    reward = np.array(toy.transitions.reward)
    reward[3] = np.nan
    cases = {
        "column 'reward', row 3: expected a finite": dataclasses.replace(
            toy, transitions=toy.transitions._replace(reward=reward)
        ),
        "'episode_starts', row 1: expected 3, got 2": dataclasses.replace(
            toy, episode_starts=np.array([0, 2, 4])
        ),
        r"the reader 'plantlog' \(registered\) returned a dict; expected a Dataset": {},
        r"the reader 'plantlog' \(registered\) failed with KeyError: 'tag'": KeyError("tag"),
        "export.bin: no tag TI-4711": DatasetError("export.bin: no tag TI-4711"),
    }
    for message, answer in cases.items():
        reader.dataset = answer
        with pytest.raises(DatasetError, match=message):
            read_dataset(log_file)


@pytest.mark.usefixtures("own_table")
def test_a_reader_that_is_none_is_refused(toy: Dataset) -> None:
    for wrong, message in (
        (Recorded, r"a reader is an object, got the class; give Recorded\(\)"),
        (object(), "recognises is missing"),
        (Recorded(toy, suffixes=("plant",)), "suffixes must be a tuple of endings"),
    ):
        with pytest.raises(InputError, match=message):
            register_reader("plantlog", wrong)  # pyright: ignore
    with pytest.raises(InputError, match="the reader 'd4rl' exists already"):
        register_reader("d4rl", Recorded(toy))


@pytest.mark.usefixtures("own_table")
def test_a_broken_distribution_harms_only_files_that_nobody_else_reads(
    toy: Dataset, toy_file: Path, log_file: Path, distribution: Any
) -> None:
    distribution("neorl.readers", "broken = no_such_module:READER")
    assert read_dataset(toy_file).content_hash == toy.content_hash
    assert {".h5", ".hdf5", ".npz"} <= set(log_suffixes())
    with pytest.raises(DatasetError, match=r"the reader 'broken' of foreign 0.3 cannot be imp"):
        read_dataset(log_file)
    register_reader("plantlog", Recorded(toy))
    assert read_dataset(log_file) is toy
