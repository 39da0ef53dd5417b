"""A log that is collected file after file: the rows of the log at once, also after a stop."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from neorl_envs import Dataset, DatasetError, collect_log, make, read_dataset
from neorl_envs.datasets import require_content_hash
from neorl_envs.recording import _collect, collect_shards

STEPS, ROWS = 1900, 500


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Any:
    """Blocks of 4 episodes, so that a file is a few hundred rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_collect, "EPISODES_A_BLOCK", 4)
        yield


@pytest.fixture(scope="module")
def at_once() -> Dataset:
    return collect_log(make("CSTR-v0"), n_steps=STEPS, key=jax.random.key(3))


def collected(path: Path, **options: Any) -> Path:
    given = {"n_steps": STEPS, "rows": ROWS, "key": jax.random.key(3), **options}
    return collect_shards(path, make("CSTR-v0"), **given)


class StoppedError(Exception):
    """In place of a kill."""


def stopped_after(n_files: int) -> Any:
    messages: list[str] = []

    def say(line: str) -> None:
        messages.append(line)
        if len(messages) == n_files:
            raise StoppedError

    return say


def test_it_is_the_log_that_is_collected_at_once(at_once: Dataset, tmp_path: Path) -> None:
    path = collected(tmp_path / "log.shards.json")
    log = read_dataset(path)
    assert log.content_hash == at_once.content_hash
    assert len(list(tmp_path.glob("log-*.h5"))) >= 3
    for name, column in at_once.columns():
        np.testing.assert_array_equal(dict(log.columns())[name], column, err_msg=name)
    assert log.attributes["provenance"] == at_once.attributes["provenance"]
    ours, theirs = (d.attributes["excitation"] for d in (log, at_once))
    assert ours.keys() == theirs.keys()
    for a, b in zip(ours["channels"], theirs["channels"], strict=True):
        assert a.keys() == b.keys()
        for name, value in b.items():
            assert a[name] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-5))
    assert ours["setpoint_fraction_of_steps"] == pytest.approx(theirs["setpoint_fraction_of_steps"])


def test_what_was_complete_is_kept(at_once: Dataset, tmp_path: Path) -> None:
    """Stopped after every file in turn, and once more before the manifest is complete."""
    path = tmp_path / "log.shards.json"
    with pytest.raises(StoppedError):
        collected(path, say=stopped_after(1))
    first = tmp_path / "log-00000.h5"
    written = first.stat().st_mtime_ns
    with pytest.raises(
        DatasetError, match=r"not complete: \d+ rows in 1 files so far; run the com"
    ):
        read_dataset(path)
    (tmp_path / "log-00001.h5").write_bytes(b"half a file")  # not in the manifest yet
    with pytest.raises(StoppedError):
        collected(path, say=stopped_after(3))  # the first line says where it goes on
    messages: list[str] = []
    collected(path, say=messages.append)
    assert messages[0].endswith("in 3 files")
    assert first.stat().st_mtime_ns == written
    log = read_dataset(path, memory_map=True)
    require_content_hash(log, str(path))
    assert log.content_hash == at_once.content_hash
    with pytest.raises(DatasetError, match="a complete log exists there"):
        collected(path)


def test_another_log_does_not_go_on_there(tmp_path: Path) -> None:
    path = tmp_path / "log.shards.json"
    with pytest.raises(StoppedError):
        collected(path, say=stopped_after(1))
    with pytest.raises(
        DatasetError, match=r"started there with spread = 0\.15, but this call asks for 0\.2"
    ):
        collected(path, spread=0.2)
    with pytest.raises(DatasetError, match="key = "):
        collected(path, key=jax.random.key(4))
    document = json.loads(path.read_text())
    document["shards"][0]["content_hash"] = "sha256:0"
    path.write_text(json.dumps(document))
    with pytest.raises(DatasetError, match=r"log-00000\.h5: it is not the file that"):
        collected(path)
    path.write_text("{}")
    with pytest.raises(DatasetError, match="this file is not a manifest; choose another path"):
        collected(path)
    with pytest.raises(ValueError, match="rows of a file must be at least 1, got 0"):
        collected(path, rows=0)


def test_the_command_collects_and_goes_on(command: Any, at_once: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "log.shards.json"
    words = ["collect", "CSTR-v0", "--steps", str(STEPS), "--seed", "3", "--out", str(path)]
    assert at_once.content_hash in command(*words, "--shard-rows", ROWS)
    for wrong, message in (
        ([*words, "--shard-rows", str(ROWS)], "exists; choose another --out"),
        (words, "names a manifest: give --shard-rows as well"),
        ([*words, "--shard-rows", "-1"], "--shard-rows must be an integer of at least 0, got -1"),
        ([*words[:-1], str(tmp_path / "a.h5"), "--shard-rows", "9"], "ends with .shards.json"),
    ):
        assert message in command.refused(*wrong)
    command(*words, "--shard-rows", ROWS, "--overwrite")
