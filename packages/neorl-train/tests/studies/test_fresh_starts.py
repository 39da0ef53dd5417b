"""A finished run on fresh starts: the same policies by the same rule, with nothing trained."""

import json

import jax
import pytest

from neorl_core.infrastructure import head, write_json
from neorl_envs import collect_log, make, write_dataset
from neorl_train._command.main import main
from neorl_train.candidates import Candidate, Pool

QUICK = [
    "--training.algorithms", "bc",
    "--training.seeds", "0", "1",
    "--training.updates", "20",
    "--training.chunk", "20",
    "--checkpoints.interval", "20",
    "--algorithms.bc.networks.hidden", "8",
    "--data.steps", "1500",
    "--data.held-out", "0.25",
    "--evaluation.starts", "8",
    "--evaluation.seed", "1",
    "--output.no-tracking",
    "--quiet",
]  # fmt: skip


@pytest.mark.nightly
def test_a_run_is_judged_again_and_itself_left_as_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK]) == 0
    run = tmp_path / "runs" / "0001"
    before = {name: (run / name).read_bytes() for name in ("evaluation.json", "verdict.json")}
    capsys.readouterr()
    assert main(["evaluate", "runs/0001"]) == 0
    output = capsys.readouterr().out
    assert "now has 2 evaluations; this one is on starts of seed 2" in output
    assert main(["evaluate", "runs/0001", "--starts", "12", "--candidate", "bc-1"]) == 0
    assert "seed 3" in capsys.readouterr().out
    assert main(["evaluate", "runs/0001", "--seed", "1"]) == 0
    assert {name: (run / name).read_bytes() for name in before} == before
    result = [
        json.loads((run / "evaluations" / number / "evaluation.json").read_text())
        for number in ("0001", "0002", "0003")
    ]
    assert [one["tables"]["n_starts"] for one in result] == [8, 12, 8]
    assert result[1]["tables"]["candidate"] == "bc-1"
    # On its own starts the run finds what it found, and on others something else.
    own = json.loads(before["evaluation.json"])["tables"]["rows"]
    assert result[2]["tables"]["rows"] == own
    assert result[0]["tables"]["rows"] != own
    # Whoever asks for the same again is given it, and so is a run that would be evaluated alike.
    monkeypatch.setattr("neorl_train.studies._fresh_starts._evaluate", None)
    monkeypatch.setattr("neorl_train.judging._evaluate.evaluate", None)
    assert main(["evaluate", "runs/0001", "--seed", "1"]) == 0
    assert len(list((run / "evaluations").iterdir())) == 3
    assert main(["run", *QUICK]) == 0
    other = tmp_path / "runs" / "0002"
    assert {name: (other / name).read_bytes() for name in before} == before
    assert main(["evaluate", "runs/0001", "--candidate", "iql-0"]) == 2
    assert "has no policy iql-0; it has bc-0, bc-1" in capsys.readouterr().err
    assert main(["evaluate", "runs/0001", "--starts", "1"]) == 2
    assert "starts must be at least 2, or 0" in capsys.readouterr().err


@pytest.mark.nightly
def test_policies_of_a_log_are_judged_on_the_simulator_that_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    log = collect_log(make("CSTR-v0"), n_steps=2000, key=jax.random.key(0))
    write_dataset(tmp_path / "log.h5", log)
    costs = [word for channel in log.spec.cost for word in (channel.name, "1")]
    words = ["log.h5", *QUICK, *(["--penalty", *costs] if costs else [])]
    assert main(["run", *words]) == 0
    first = json.loads((tmp_path / "runs/0001/verdict.json").read_text())
    assert main(["evaluate", "runs/0001", "--plant", "CSTR-v0", "--candidate", "bc-0"]) == 0
    assert f"the run itself answered {first['answer']!r}" in capsys.readouterr().out
    tables = json.loads((tmp_path / "runs/0001/evaluations/0001/evaluation.json").read_text())
    assert (tables["tables"]["environment"], tables["tables"]["reference"]) == ("CSTR-v0", "PI")


def test_a_run_on_a_log_asks_for_its_simulator(tmp_path, make_log, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "log.h5", make_log())
    run = tmp_path / "0001"
    run.mkdir()
    (run / "config.toml").write_text("[data]\nsource = 'log.h5'\n")
    write_json(run / "run.json", {**head("run", 1), "status": "finished", "config_hash": ""})
    assert main(["evaluate", str(run)]) == 2
    assert "name the simulator of its plant with --plant, or compare" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--plant", "log.h5"]) == 2
    assert "--plant must name a simulated plant, such as CSTR-v0, got 'log.h5'" in (
        capsys.readouterr().err
    )
    assert main(["evaluate", str(run), "--plant", "CSTR-v0"]) == 2
    assert "the log and its policies have" in capsys.readouterr().err


def test_an_evaluation_that_cannot_be_written_leaves_no_number(
    tmp_path, noisy, monkeypatch, capsys
):
    """Half of one would be counted as an earlier evaluation for ever."""
    run = tmp_path / "0001"
    run.mkdir()
    (run / "config.toml").write_text("[data]\nsource = 'CSTR-v0'\n")
    write_json(run / "run.json", {**head("run", 1), "status": "finished", "config_hash": ""})
    write_json(run / "verdict.json", {"candidate": "good-0", "answer": "deploy"})
    studies = "neorl_train.studies._fresh_starts."
    pool = Pool((Candidate("good", "learner", None, (0,)),))
    monkeypatch.setattr(f"{studies}stored_pool", lambda _: pool)
    monkeypatch.setattr(f"{studies}evaluation_inputs", lambda *_, **__: "")
    monkeypatch.setattr(f"{studies}_evaluate", lambda *_: noisy.evaluation)

    def full(path, *_):
        raise OSError(28, "No space left on device", str(path / "evaluation.json"))

    with monkeypatch.context() as patch:
        patch.setattr(f"{studies}write_results", full)
        assert main(["evaluate", str(run)]) == 2
    assert "evaluation.json: no free disk space to write it; free some" in capsys.readouterr().err
    assert list((run / "evaluations").iterdir()) == []
    assert main(["evaluate", str(run)]) == 0
    assert "2 evaluations" in capsys.readouterr().out


def test_a_run_that_is_not_finished_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "0001"
    run.mkdir()
    (run / "config.toml").write_text("")
    write_json(run / "run.json", {**head("run", 1), "status": "interrupted"})
    assert main(["evaluate", str(run)]) == 2
    assert "is interrupted, not finished" in capsys.readouterr().err
    assert main(["evaluate"]) == 2
    assert "evaluate needs a run, and there is none in" in capsys.readouterr().err
