"""A log in several files: the same rows, hash, statistics and batches as in one."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from neorl_core import Channel, CostChannel, Spec
from neorl_envs import Dataset, DatasetError, read_dataset, write_dataset
from neorl_envs.datasets import (
    batch_stream,
    data_statistics,
    dataset_from_columns,
    require_content_hash,
    stored_bytes,
    write_manifest,
    write_shards,
)
from neorl_envs.datasets._checks import JoinedColumn
from neorl_envs.inspection import dataset_report

SPEC = Spec(
    (Channel("T", "K", 0, 2e4), Channel("p", "bar", -9, 9)),
    (Channel("u", "%", 0, 100),),
    (CostChannel("heat", "K", 1.0, "step"),),
    60.0,
    400,
)
ROWS = 1000


def log_of(seed: int, names: tuple[str, ...] = ("day", "night"), spec: Spec = SPEC) -> Dataset:
    """Episodes of random lengths with masked rows and every optional column."""
    rng = np.random.default_rng(seed)
    ended = rng.random(ROWS) < 0.05
    ended[-1] = True
    mask = rng.random(ROWS) >= 0.2
    return dataset_from_columns(
        spec,
        obs=1e4 + rng.normal(size=(ROWS, 2)),
        action=rng.uniform(0, 100, (ROWS, 1)),
        reward=rng.normal(size=ROWS),
        cost=rng.exponential(size=(ROWS, 1)),
        next_obs=rng.normal(size=(ROWS, 2)),
        terminated=ended,
        truncated=np.zeros(ROWS),
        mask=mask,
        behaviour=rng.integers(0, len(names), int(ended.sum())),
        behaviour_log_prob=rng.normal(size=ROWS),
        time=60.0 * np.arange(ROWS),
        mode=rng.random((ROWS, 1)) < 0.1,
        setpoint=rng.normal(size=(ROWS, 1)),
        test_signal=rng.normal(size=(ROWS, 1)),
        term=rng.normal(size=(ROWS, 2)),
        attributes={"name": "tank", "behaviours": list(names), "setpoints": ["T [K]"]},
    )


@pytest.fixture(scope="module")
def log() -> Dataset:
    return log_of(0)


@pytest.fixture
def manifest(log: Dataset, tmp_path: Path) -> Path:
    """The log in files of at least 150 rows, and in one beside them."""
    write_dataset(tmp_path / "whole.h5", log)
    return write_shards(tmp_path / "log.shards.json", log, rows=150)


def same(a: Dataset, b: Dataset) -> None:
    columns, others = dict(a.columns()), dict(b.columns())
    assert columns.keys() == others.keys()
    for name, column in columns.items():
        np.testing.assert_array_equal(np.asarray(column), np.asarray(others[name]), err_msg=name)
        assert column.dtype == others[name].dtype
    assert (a.spec, a.content_hash) == (b.spec, b.content_hash)
    assert dict(a.attributes) == dict(b.attributes)


@pytest.mark.parametrize("memory_map", [False, True])
def test_shards_are_the_log(log: Dataset, manifest: Path, memory_map: bool) -> None:
    files = sorted(manifest.parent.glob("log-*.h5"))
    assert len(files) >= 4
    shards = read_dataset(manifest, memory_map=memory_map)
    same(shards, log)
    require_content_hash(shards, str(manifest))
    for shard in map(read_dataset, files):  # each is a log of its own that ends with an episode
        assert (shard.transitions.terminated | shard.transitions.truncated)[-1]
    assert stored_bytes(manifest) == sum(file.stat().st_size for file in files)


def test_statistics_and_report_are_those_of_one_file(log: Dataset, manifest: Path) -> None:
    shards = read_dataset(manifest, memory_map=True)
    assert isinstance(shards.transitions.obs, JoinedColumn)
    some = np.arange(0, log.n_episodes, 3)
    ours, theirs = (jax.tree.leaves(data_statistics(d, episodes=some)) for d in (shards, log))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert dataset_report(shards) == dataset_report(log)
    same(shards.select_episodes(some), log.select_episodes(some))
    np.testing.assert_array_equal(shards.episode_returns(), log.episode_returns())


def test_a_joined_column_reads_like_an_array(log: Dataset) -> None:
    whole = np.asarray(log.transitions.obs)
    column = JoinedColumn([whole[:1], whole[1:400], whole[400:400], whole[400:]])
    rng = np.random.default_rng(1)
    indices: list[Any] = [
        0,
        np.int64(-1),
        slice(None),
        slice(390, 410),
        slice(900, None, -7),
        slice(5, 3),
        rng.integers(-ROWS, ROWS, 50),
        rng.integers(0, ROWS, (4, 5)),
        rng.random(ROWS) < 0.5,
        [3, 401],
        (slice(2, 500), 1),
        (7, 0),
        (np.array([1, 999]), slice(0, 1)),
        np.zeros(0, np.int64),
    ]
    for index in indices:
        np.testing.assert_array_equal(column[index], whole[index], err_msg=str(index))
    np.testing.assert_array_equal(np.asarray(column, np.float64), whole)
    assert (column.shape, column.ndim, column.size) == (whole.shape, 2, whole.size)
    for index in (ROWS, np.array([-ROWS - 1]), np.ones(5, bool)):
        with pytest.raises(IndexError):
            column[index]


def batches(path: Path, n: int, **options: Any) -> list[Any]:
    stream = batch_stream(
        path, ["obs", "reward", "terminated"], batch_size=32, seed=3, block_rows=40, **options
    )
    source = stream.batches(5)
    taken = list(itertools.islice(source, n))
    source.close()
    return jax.tree.leaves(taken)


def test_batches_are_those_of_one_file(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a block begins in one file and ends in another, and few may be open."""
    monkeypatch.setattr("neorl_envs.datasets._stream.OPEN_FILES", 2)
    whole = manifest.parent / "whole.h5"
    for options in ({}, {"shard": (1, 2)}, {"keep": np.arange(ROWS) % 3 > 0}):
        pairs = zip(batches(manifest, 60, **options), batches(whole, 60, **options), strict=True)
        for a, b in pairs:
            np.testing.assert_array_equal(a, b)


def test_existing_files_make_one_log(tmp_path: Path) -> None:
    """Behaviours are matched by name; what the files do not share stays in them."""
    first = log_of(1)
    second = log_of(2, ("night", "trial"))
    second = dataclasses.replace(second, attributes={**second.attributes, "name": "tank, June"})
    (tmp_path / "june").mkdir()
    files = [
        write_dataset(tmp_path / "may.h5", first),
        write_dataset(tmp_path / "june" / "log.h5", second),
    ]
    path = write_manifest(tmp_path / "all.shards.json", files)
    log = read_dataset(path)
    assert (log.n_rows, log.n_episodes) == (2 * ROWS, first.n_episodes + second.n_episodes)
    assert log.attributes == {"behaviours": ["day", "night", "trial"], "setpoints": ["T [K]"]}
    acted = [log.attributes["behaviours"][i] for i in np.asarray(log.behaviour)]
    assert acted == [d.attributes["behaviours"][i] for d in (first, second) for i in d.behaviour]
    assert log.content_hash == write_and_read(tmp_path / "one.h5", log).content_hash
    moved = tmp_path / "elsewhere"  # paths are relative to the manifest
    shutil.copytree(tmp_path, moved)
    same(read_dataset(moved / "all.shards.json", memory_map=True), log)


def write_and_read(path: Path, log: Dataset) -> Dataset:
    return read_dataset(write_dataset(path, log))


def edited(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _missing(path: Path) -> None:
    (path.parent / "log-00001.h5").unlink()


def _another(path: Path) -> None:
    write_dataset(path.parent / "log-00001.h5", log_of(9))


def _flipped(path: Path) -> None:
    file = path.parent / "log-00001.h5"
    at = file.read_bytes().find(log_of(0).transitions.reward[200:210].tobytes())
    assert at > 0
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(np.float32(7).tobytes())


def _of_another_spec(path: Path) -> None:
    spec = dataclasses.replace(SPEC, obs=(SPEC.obs[0], Channel("p", "kPa", -9, 9)))
    other = write_dataset(path.parent / "log-00001.h5", log_of(9, spec=spec))
    digest = read_dataset(other).content_hash
    edited(path, lambda d: d["shards"][1].update(content_hash=digest, rows=ROWS))


def _swapped(path: Path) -> None:
    edited(path, lambda d: d["shards"].reverse())


def _empty(path: Path) -> None:
    edited(path, lambda d: d.update(shards=[]))


def _twice(path: Path) -> None:
    edited(path, lambda d: d["shards"].append(d["shards"][1]))


def _copied(path: Path) -> None:
    shutil.copy(path.parent / "log-00001.h5", path.parent / "copy.h5")
    edited(path, lambda d: d["shards"].append({**d["shards"][1], "file": "copy.h5"}))


def _cut(path: Path) -> None:
    path.write_text(path.read_text()[:600])


def _newer(path: Path) -> None:
    edited(path, lambda d: d.update(version=2))


def _unfinished(path: Path) -> None:
    edited(path, lambda d: d.update(request={"seed": 0}))


def _misspelt(path: Path) -> None:
    edited(path, lambda d: d["shards"][0].update(row=3))


BAD = {
    "missing": (_missing, r"log-00001\.h5: the shard is missing that .*log\.shards\.json names"),
    "another": (_another, r"log-00001\.h5: it is not the file that .* names: expected content ha"),
    "flipped": (_flipped, r"log-00001\.h5: the columns do not match the recorded content hash"),
    "spec": (_of_another_spec, r"log-00001\.h5: its specification differs from .*log-00000\.h5: "
             r"the unit of obs 1 is 'kPa', expected 'bar'"),
    "swapped": (_swapped, r"log\.shards\.json: the shards together do not have .* another order"),
    "empty": (_empty, "names no file; expected at least one shard"),
    "twice": (_twice, r"log-00001\.h5 is named twice"),
    "copied": (_copied, r"copy\.h5 holds the same rows as log-00001\.h5"),
    "cut": (_cut, r"log\.shards\.json: expected a manifest as JSON"),
    "newer": (_newer, "has version 2 of neorl-shards, this version of neorl reads 1"),
    "unfinished": (_unfinished, "the log is not complete: 1000 rows in . files so far"),
    "misspelt": (_misspelt, r"log\.shards\.json: .*row"),
}  # fmt: skip


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("case", BAD)
def test_what_is_no_log_is_refused(manifest: Path, case: str, memory_map: bool) -> None:
    damage, message = BAD[case]
    damage(manifest)
    with pytest.raises(DatasetError, match=message) as error:
        require_content_hash(read_dataset(manifest, memory_map=memory_map), str(manifest))
    assert "\n" not in str(error.value)


def test_files_that_do_not_go_together_make_no_manifest(tmp_path: Path) -> None:
    a = write_dataset(tmp_path / "a.h5", log_of(1))
    bare = dataclasses.replace(log_of(2), setpoint=None)
    b = write_dataset(tmp_path / "b.h5", bare)
    named = dataclasses.replace(
        log_of(3), attributes={**log_of(3).attributes, "setpoints": ["p [bar]"]}
    )
    c = write_dataset(tmp_path / "c.h5", named)
    out = tmp_path / "x.shards.json"
    for files, message in (
        ([], "expected at least one file"),
        ([a, a], r"a\.h5 is named twice"),
        ([a, b], r"b\.h5: it has no column 'setpoint', and .*a\.h5 has one"),
        ([a, c], r"c\.h5: attribute 'setpoints' is"),
        ([a, tmp_path / "d.h5"], r"d\.h5: no such file"),
    ):
        with pytest.raises(DatasetError, match=message):
            write_manifest(out, files)
        assert not out.exists()
    with pytest.raises(DatasetError, match="rows of a shard must be 1 or more, got 0"):
        write_shards(out, log_of(1), rows=0)


def test_the_command_splits_and_joins(command: Any, log: Dataset, tmp_path: Path) -> None:
    whole, split = write_dataset(tmp_path / "log.h5", log), tmp_path / "split.shards.json"
    assert log.content_hash in command("shard", whole, "--rows", "300", "--out", split)
    files = sorted(map(str, tmp_path.glob("split-*.h5")))
    joined = tmp_path / "joined.shards.json"
    command("shard", *files, "--out", joined)
    same(read_dataset(joined), log)
    reports = []
    for path in (whole, joined):
        reports.append(json.loads(command("inspect", path, "--json")))
    assert reports[0] == reports[1]
    for words, message in (
        (["shard", str(whole), "--out", str(tmp_path / "m.json")], "ends with .shards.json"),
        (["shard", str(whole), "--out", str(split)], "exists"),
        (["shard", *files, "--rows", "9", "--out", str(tmp_path / "m.shards.json")], "splits one"),
    ):
        assert message in command.refused(*words)
