"""The dataset file: round trips, the published layout, mapping, and atomic writes."""

import dataclasses
import hashlib
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from neorl_core import Spec, spec_to_dict
from neorl_envs import Dataset, DatasetError, read_dataset, write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.datasets._file import DTYPES, OPTIONAL_DTYPES, map_checked, set_text


def same(ours: Dataset, theirs: Dataset) -> None:
    assert ours.spec == theirs.spec
    assert ours.attributes == theirs.attributes
    assert ours.content_hash == theirs.content_hash
    columns = dict(theirs.columns())
    assert [name for name, _ in ours.columns()] == list(columns)
    for name, column in ours.columns():
        assert column.dtype == columns[name].dtype, name
        np.testing.assert_array_equal(column, columns[name], err_msg=name)


@pytest.mark.parametrize("memory_map", [False, True])
def test_a_file_gives_back_what_was_written(toy: Dataset, toy_file: Path, memory_map: bool) -> None:
    back = read_dataset(toy_file, memory_map=memory_map)
    same(back, toy)
    rows: Any = back.transitions
    assert isinstance(rows.obs, np.memmap) == memory_map
    if memory_map:
        assert not rows.obs.flags.writeable
        # A gather of random rows, as training makes.
        np.testing.assert_array_equal(rows.terminated[[7, 2]], [False, True])


@pytest.mark.parametrize("memory_map", [False, True])
def test_a_log_without_costs_and_without_a_trip_is_valid(
    toy_spec: Spec, toy_columns: dict, tmp_path: Path, memory_map: bool
) -> None:
    del toy_columns["cost"]
    toy_columns["terminated"] = np.zeros(8, np.bool_)
    spec = dataclasses.replace(toy_spec, cost=())
    dataset = dataset_from_columns(spec, **toy_columns)
    path = write_dataset(tmp_path / "quiet.h5", dataset)
    back = read_dataset(path, memory_map=memory_map)
    same(back, dataset)
    assert back.transitions.cost is not None
    assert back.transitions.cost.shape == (8, 0)
    assert back.n_episodes == 1
    assert write_dataset(tmp_path / "again.h5", back).stat().st_size > 0


def test_the_layout_is_the_published_one(toy: Dataset, toy_file: Path) -> None:
    """A second reader, from the page alone: h5py, json, hashlib."""
    with h5py.File(toy_file) as file:
        assert file.attrs["format"] == b"neorl-dataset"
        assert file.attrs["version"] == 2
        spec = json.loads(file.attrs["spec"])
        assert json.loads(file.attrs["attributes"])["behaviours"] == ["a", "b"]
        assert set(file) == {*DTYPES, *OPTIONAL_DTYPES}
        digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode())
        for name in (*DTYPES, *OPTIONAL_DTYPES):
            column = file[name]
            assert column.chunks is None
            assert column.compression is None
            assert column.dtype.str == {**DTYPES, **OPTIONAL_DTYPES}[name]
            digest.update(f"{name} {column.dtype.str} {list(column.shape)}\n".encode())
            digest.update(column[()].tobytes())
        assert file.attrs["content_hash"].decode() == f"sha256:{digest.hexdigest()}"
    assert spec == json.loads(json.dumps(spec_to_dict(toy.spec)))


def test_the_page_lists_every_column(request: pytest.FixtureRequest) -> None:
    page = request.config.rootpath / "docs" / "pages" / "reference" / "dataset-file.md"
    if not page.is_file():
        pytest.skip("no documentation beside the installed package")
    text = page.read_text()
    kinds = {
        "<f4": "float32",
        "<f8": "float64",
        "|u1": "uint8, 0 or 1",
        "<i8": "int64",
        "<i4": "int32",
    }
    for name, code in DTYPES.items():
        assert f"| `{name}` | {kinds[code]} |" in text
    for name, code in OPTIONAL_DTYPES.items():
        assert f"| `{name}` (optional) | {kinds[code]} |" in text


def test_many_channels_fit_into_the_attributes(toy_spec: Spec, tmp_path: Path) -> None:
    channels = tuple(
        dataclasses.replace(toy_spec.obs[0], name=f"measurement {i}") for i in range(1500)
    )
    obs = np.zeros((2, 1500), np.float32)
    dataset = dataset_from_columns(
        dataclasses.replace(toy_spec, obs=channels, cost=()),
        obs=obs,
        action=np.zeros((2, 1)),
        reward=np.zeros(2),
        next_obs=obs,
        terminated=np.zeros(2, np.bool_),
        truncated=np.zeros(2, np.bool_),
    )
    assert len(json.dumps(spec_to_dict(dataset.spec))) > 65_536
    path = write_dataset(tmp_path / "wide.h5", dataset)
    same(read_dataset(path), dataset)
    with h5py.File(path) as file:  # a map of it is aligned
        assert file["obs"].id.get_offset() % 64 == file["next_obs"].id.get_offset() % 64 == 0


@pytest.mark.parametrize("options", [{"chunks": (4, 2)}, {"compression": "gzip"}])
def test_chunked_files_are_read_and_not_mapped(toy: Dataset, toy_file: Path, options: dict) -> None:
    with h5py.File(toy_file, "r+") as file:
        obs = file["obs"][()]
        del file["obs"]
        file.create_dataset("obs", data=obs, **options)
    same(read_dataset(toy_file), toy)
    message = r"column 'obs': expected a contiguous column, got a .* one.*write_dataset\(new"
    with pytest.raises(DatasetError, match=message):
        read_dataset(toy_file, memory_map=True)
    # The hint works.
    converted = write_dataset(toy_file.with_name("flat.h5"), read_dataset(toy_file))
    same(read_dataset(converted, memory_map=True), toy)


def test_an_invalid_dataset_is_not_written(toy: Dataset, tmp_path: Path) -> None:
    reward = np.array(toy.transitions.reward)
    reward[2] = np.nan
    bad = dataclasses.replace(toy, transitions=toy.transitions._replace(reward=reward))
    with pytest.raises(DatasetError, match=r"bad\.h5: column 'reward', row 2"):
        write_dataset(tmp_path / "bad.h5", bad)
    with pytest.raises(DatasetError, match="column 'episode_starts', row 1: expected 3, got 2"):
        write_dataset(
            tmp_path / "bad.h5", dataclasses.replace(toy, episode_starts=np.array([0, 2, 4]))
        )
    with pytest.raises(DatasetError, match="'behaviour', row 1: expected an index into the 2"):
        write_dataset(tmp_path / "bad.h5", dataclasses.replace(toy, behaviour=np.int32([0, 2, 1])))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_file(toy: Dataset, toy_file: Path) -> None:
    before = toy_file.read_bytes()
    unwritable = dataclasses.replace(toy, attributes={**toy.attributes, "x": object()})
    with pytest.raises(DatasetError, match="attributes must be what JSON can hold"):
        write_dataset(toy_file, unwritable)
    assert toy_file.read_bytes() == before
    assert [path.name for path in toy_file.parent.iterdir()] == [toy_file.name]


FULL_DISK = """
import resource, sys
from pathlib import Path
from neorl_envs import read_dataset, write_dataset
dataset = read_dataset(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    write_dataset(sys.argv[2], dataset)
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [0, 500, 3000])
def test_a_full_disk_leaves_the_old_file_and_says_so(toy_file: Path, limit: int) -> None:
    assert toy_file.stat().st_size > 3000
    target = toy_file.with_name("target.h5")
    target.write_bytes(b"old")
    command = [sys.executable, "-c", FULL_DISK, str(toy_file), str(target), str(limit)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "target.h5: cannot write the dataset" in completed.stdout
    assert "nothing was written" in completed.stdout
    assert len(completed.stdout.splitlines()) == 1
    assert completed.stderr == ""
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in target.parent.iterdir()) == ["target.h5", "toy.h5"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit


def test_reading_twice_in_another_order_of_attributes_gives_the_same_hash(toy_file: Path) -> None:
    with h5py.File(toy_file, "r+") as file:
        spec = json.loads(file.attrs["spec"])
        set_text(file, "spec", json.dumps(dict(reversed(spec.items()))))
    read_dataset(toy_file)


@pytest.mark.parametrize("period", [60, True, np.float32(60), np.int64(60)])
def test_what_is_written_is_read_whatever_kind_of_number_the_period_is(
    toy_spec: Spec, toy_columns: dict, tmp_path: Path, period: Any
) -> None:
    low = dataclasses.replace(toy_spec.obs[0], low=-0.0)
    spec = dataclasses.replace(toy_spec, dt=period, obs=(low, toy_spec.obs[1]))
    dataset = dataset_from_columns(spec, **toy_columns)
    back = read_dataset(write_dataset(tmp_path / "log.h5", dataset))
    same(back, dataset)
    equal = dataclasses.replace(toy_spec, dt=float(period))
    assert back.spec == equal
    assert dataset_from_columns(equal, **toy_columns).content_hash == dataset.content_hash


def test_units_must_be_text_to_be_written(toy: Dataset, tmp_path: Path) -> None:
    odd: Any = dataclasses.replace(toy.spec.obs[0], unit=None)
    spec = dataclasses.replace(toy.spec, obs=(odd, toy.spec.obs[1]))
    with pytest.raises(DatasetError, match="the unit of a channel of 'obs': expected text"):
        write_dataset(tmp_path / "log.h5", dataclasses.replace(toy, spec=spec))


def test_an_inspected_file_is_mapped_and_hashed_nevertheless(toy: Dataset, toy_file: Path) -> None:
    same(map_checked(toy_file), toy)
    assert isinstance(map_checked(toy_file).transitions.obs, np.memmap)
    with h5py.File(toy_file, "r+") as file:
        file["reward"][3] += 1
    with pytest.raises(DatasetError, match="do not match the recorded content hash"):
        map_checked(toy_file)
