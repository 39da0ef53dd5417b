"""A file may have sections of more learners than a run trains: checked, and said."""

import pytest

from neorl_envs import write_dataset
from neorl_train import InterruptedRunError
from neorl_train._command.main import main


@pytest.fixture
def said(tmp_path, monkeypatch, capsys, make_log):
    """What the command says of a file, up to where training would begin, and its exit code."""

    def stopped(*_, **__):
        raise InterruptedRunError(2, "")

    monkeypatch.setattr("neorl_train._job.stages._train_all", stopped)
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "log.h5", make_log())
    source = ["--data.source", "log.h5", "--output.no-tracking", "--training.algorithms", "bc"]
    small = ["--algorithms.bc.steps.batch-size", "16", "--training.seeds", "0"]

    def run(text):
        (tmp_path / "my.toml").write_text(text)
        code = main(["run", "my.toml", *source, *small])
        return code, capsys.readouterr().err.splitlines()

    return run


def test_settings_of_a_learner_that_is_not_trained_are_named(said):
    code, lines = said("[algorithms.sac_n]\nn_critics = 4\n[algorithms.cql]\nn_samples = 10\n")
    assert code == 130
    assert [line for line in lines if "algorithms." in line] == [
        "algorithms.sac_n has n_critics, but this run does not train sac_n, so the settings "
        "have no effect; add sac_n to training.algorithms to train it too"
    ]


def test_absurd_settings_of_a_learner_that_is_not_trained_are_refused(said, tmp_path):
    code, (line,) = said("[algorithms.sac_n]\nn_critics = 0\n")
    assert code == 2
    assert "algorithms.sac_n.n_critics must be an integer of at least 2, got 0" in line
    assert not (tmp_path / "runs").exists()
