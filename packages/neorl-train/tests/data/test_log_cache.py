import os

import pytest

from neorl_core import InputError
from neorl_envs import make, read_dataset
from neorl_train._job.stages import require_memory_for_log
from neorl_train.configuration import DataConfig
from neorl_train.data import collected_log, complete_log


def test_a_damaged_log_of_an_environment_is_collected_again(tmp_path, monkeypatch, make_log):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calls, collected = [], []

    def collect(env, controllers, *, plan, n_steps, key):
        calls.append(n_steps)
        return make_log()

    monkeypatch.setattr("neorl_train.data._source.collect_log", collect)
    of = (DataConfig(steps=300),)
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    collected_log(*of, first, collected.append)
    intact = complete_log(*of, first, collected.append).content_hash
    assert (len(calls), collected) == (1, [])
    data = first.read_bytes()
    first.write_bytes(data[: len(data) * 2 // 3])  # in place: the cached log is the same file
    collected_log(*of, second, collected.append)
    assert len(calls) == 1
    assert complete_log(*of, second, collected.append).content_hash == intact
    assert len(calls) == 2
    assert any("damaged" in line and line.endswith("collecting it again") for line in collected)
    collected_log(*of, tmp_path / "third.h5", collected.append)
    assert read_dataset(tmp_path / "third.h5").content_hash == intact
    assert len(calls) == 2


def test_the_cache_keeps_what_was_used_last_and_may_be_missing(tmp_path, monkeypatch, make_log):
    log, calls, messages = make_log(), [], []

    def collect(env, controllers, *, plan, n_steps, key):
        calls.append(n_steps)
        return log

    monkeypatch.setattr("neorl_train.data._source.collect_log", collect)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    logs = tmp_path / "cache" / "neorl" / "logs"
    for number, steps in enumerate((300, 400)):
        collected_log(DataConfig(steps=steps), tmp_path / f"{number}.h5", messages.append)
    size = (tmp_path / "0.h5").stat().st_size
    for number, path in enumerate(sorted(logs.iterdir(), key=lambda path: path.stat().st_mtime)):
        os.utime(path, (number, number))
    collected_log(DataConfig(steps=300), tmp_path / "again.h5", messages.append)  # the oldest, used
    monkeypatch.setattr("neorl_train.data._source.MAX_BYTES", 2.5 * size)
    collected_log(DataConfig(steps=500), tmp_path / "2.h5", messages.append)
    assert len(list(logs.iterdir())) == 2
    collected_log(DataConfig(steps=300), tmp_path / "kept.h5", messages.append)
    assert calls == [300, 400, 500]
    assert (tmp_path / "1.h5").stat().st_size == size  # a run keeps what the cache gave away
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    collected_log(DataConfig(steps=600), tmp_path / "3.h5", messages.append)
    assert read_dataset(tmp_path / "3.h5").content_hash == log.content_hash


def test_a_log_that_no_memory_holds_is_refused_before_it_is_collected():
    spec = make("CSTR-v0").spec
    require_memory_for_log("CSTR-v0", spec, 1000)
    with pytest.raises(InputError, match=r"steps of CSTR-v0 take .* PB of memory, .*--shard-rows"):
        require_memory_for_log("CSTR-v0", spec, 10**15)
