from neorl_envs import read_dataset
from neorl_train.configuration import DataConfig
from neorl_train.experience import collected_log, complete_log


def test_a_damaged_log_of_an_environment_is_collected_again(tmp_path, monkeypatch, make_log):
    monkeypatch.chdir(tmp_path)
    calls, said = [], []

    def collect(env, controllers, *, plan, n_steps, key):
        calls.append(n_steps)
        return make_log()

    monkeypatch.setattr("neorl_train.experience._log_cache.collect_log", collect)
    of = DataConfig(steps=300), tmp_path
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    collected_log(*of, first, said.append)
    intact = complete_log(*of, first, said.append).content_hash
    assert (len(calls), said) == (1, [])
    data = first.read_bytes()
    first.write_bytes(data[: len(data) * 2 // 3])  # in place: the cached log is the same file
    collected_log(*of, second, said.append)
    assert len(calls) == 1
    assert complete_log(*of, second, said.append).content_hash == intact
    assert len(calls) == 2
    assert any("damaged" in line and line.endswith("collecting it again") for line in said)
    collected_log(*of, tmp_path / "third.h5", said.append)
    assert read_dataset(tmp_path / "third.h5").content_hash == intact
    assert len(calls) == 2
