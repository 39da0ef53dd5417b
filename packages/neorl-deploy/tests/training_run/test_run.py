"""A run read without the training stack: the newest one, the chosen policy, the log."""

import json

import pytest

from neorl_deploy import DeployError
from neorl_deploy.training_run import log_of, newest_bundle, newest_run, read_run


def test_a_policy_is_chosen_by_name_file_or_path(run_directory):
    for given in ("iql-1", "iql-1.safetensors", "policies/iql-1.safetensors"):
        run = read_run(run_directory, given)
        assert run.candidate == run_directory / "policies/iql-1.safetensors"
        assert run.answer == "cannot tell"
    assert read_run(run_directory, "iql-0").answer == "deploy"


def test_the_newest_of_everything(tmp_path, run_directory):
    with pytest.raises(DeployError, match="no finished run"):
        newest_run(tmp_path / "nowhere")
    runs = run_directory.parent
    (runs / "0002").mkdir()
    (runs / "notes").mkdir()
    assert newest_run(runs) == run_directory
    with pytest.raises(DeployError, match="no bundle under"):
        newest_bundle(runs)
    (run_directory / "policy.bundle").mkdir()
    assert newest_bundle(runs) == run_directory / "policy.bundle"
    assert log_of(run_directory / "policy.bundle") == (run_directory / "dataset.h5").resolve()


def test_the_log_may_lie_elsewhere(run_directory, tmp_path):
    bundle = run_directory / "policy.bundle"
    (run_directory / "dataset.h5").rename(tmp_path / "july.h5")
    path = run_directory / "run.json"
    record = {**json.loads(path.read_text()), "dataset": {"file": str(tmp_path / "july.h5")}}
    path.write_text(json.dumps(record))
    assert log_of(bundle) == tmp_path / "july.h5"
    (tmp_path / "july.h5").unlink()
    with pytest.raises(DeployError, match="which no longer exists; name a log"):
        log_of(bundle)
    with pytest.raises(DeployError, match="there is no log beside"):
        log_of(tmp_path / "elsewhere" / "plant.bundle")
