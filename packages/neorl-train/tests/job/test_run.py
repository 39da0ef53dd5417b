"""The Python face: a run as an object, its results readable, its mistakes answered in one line."""

import dataclasses
import errno
import re
from pathlib import Path

import jax.numpy as jnp
import pytest

from neorl_agents.testing import sized
from neorl_core import InputError
from neorl_envs import write_dataset
from neorl_train import Run, configure, resume, start, train
from neorl_train.judging import read_evaluation, read_verdict
from neorl_train.pages import fit_lines, plot_episode, print_summary
from neorl_train.runs import tree_digest
from neorl_train.training import Plan

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, make_log):
    """A run on a log, started from Python."""
    here = tmp_path_factory.mktemp("face")
    write_dataset(here / "log.h5", make_log())
    config = configure(
        data={"source": here / "log.h5"},
        training={"algorithms": ["bc"], "seeds": [0], "updates": 2, "chunk": 1},
        checkpoints={"interval": 1},
        output={"directory": str(here / "runs"), "tracking": False},
        algorithms={"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_train._job.run.prepare_process", lambda: None)
        return start(config, quiet=True)


def test_the_readme_shows_the_way_in_ten_lines():
    first, *_ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in first.splitlines() if line]) <= 10
    for word in ("read_dataset", "start", "evaluation", "verdict", "plot", "export_run"):
        assert word in first


def test_a_run_says_what_it_is_in_one_line(finished):
    assert repr(finished) == f"Run({finished.path}: bc, seeds 0, finished, cannot tell)"
    assert repr(Run(str(finished.path))) == repr(finished)
    assert finished.report.is_file()
    assert finished.record["status"] == "finished"
    assert finished.config.evaluation.candidate == "bc"


def test_results_are_readable_by_path_and_by_print(finished):
    assert repr(read_verdict(str(finished.path))) == repr(finished.verdict)
    assert repr(finished.verdict).startswith("CANNOT TELL  Cannot tell whether bc-0 is better")
    assert repr(read_evaluation(str(finished.path))) == repr(finished.evaluation)
    title, heads, log, *fits = repr(finished.evaluation).splitlines()
    assert title == "the log's own episodes; no policy was run: mean [95 % interval]"
    assert heads.split(maxsplit=1) == ["policy", "return, reward"]
    assert re.match(r"log +\S+\s\[\S+\s\S+\]$", log)
    assert [fit.split(",")[0] for fit in fits] == [
        f"{name} on held-out rows" for name in ("mean action", "linear feedback", "bc-0")
    ]


def test_the_terminal_says_how_far_actions_are_from_those_of_a_log(finished, capsys):
    """Without a simulator there is nothing else to compare the learners by."""
    print_summary(finished.path)
    output = capsys.readouterr().out.splitlines()
    fits = repr(finished.evaluation).splitlines()[3:]
    assert [line for line in output if "on held-out rows" in line] == fits
    (fit,) = (fit for fit in finished.evaluation.imitation if fit.policy == "bc-0")
    groups = {"bc-1": "bc", "pid": "pid", "iql-3": "iql", "iql-4": "iql"}
    others = [dataclasses.replace(fit, policy=name, group=of) for name, of in groups.items()]
    more = dataclasses.replace(finished.evaluation, imitation=(fit, *others))
    assert [line.split()[0] for line in fit_lines(more)] == ["bc-0", "pid", "iql-3"]


def test_simulated_results_and_their_verdict_are_aligned_text(noisy):
    lines = repr(noisy.evaluation).splitlines()
    assert lines[0] == "Line-v0, 100 common starts: mean [95 % interval]"
    assert "gain over steady" in lines[1]
    assert "load (limit 30 m per episode)" in lines[1]
    assert "peak (limit 2 m per step)" in lines[1]
    assert len({len(line) for line in lines[1:]}) == 1
    names = [re.split(r"\s{2,}", line)[0] for line in lines[2:]]
    assert {"good-0 + guard", "steady", "log"} <= {*names}
    assert repr(noisy.verdict).splitlines()[0].startswith("DEPLOY  good-0 behind its guard may be")
    assert len(repr(noisy.verdict).splitlines()) == 1 + len(noisy.verdict.clauses)


def test_the_candidate_acts(finished):
    policy = finished.policy()
    _, action = policy(policy.initial_carry(), jnp.zeros(2), None)
    assert action.shape == (1,)
    assert jnp.isfinite(action).all()
    assert tree_digest(finished.policy("bc-0")) == tree_digest(policy)


def test_pictures_are_drawn_and_written(finished, noisy, tmp_path):
    pytest.importorskip("matplotlib")
    figure = finished.plot(tmp_path / "curves.svg")
    assert figure.axes
    assert (tmp_path / "curves.svg").stat().st_size > 1000
    finished.plot(tmp_path / "curves")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="there was no simulator"):
        finished.plot(what="episode")
    with pytest.raises(InputError, match="unknown figure 'lerning'; did you mean 'learning'"):
        finished.plot(what="lerning")
    assert len(plot_episode(noisy.evaluation).axes) > 2
    with pytest.raises(InputError, match="'longest' was stored; stored episodes: typical"):
        plot_episode(noisy.evaluation, "longest")


def test_a_picture_that_cannot_be_written_leaves_the_last_one(finished, tmp_path, monkeypatch):
    figures = pytest.importorskip("matplotlib.figure")

    def full_disk(figure, path, **_):
        path.write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(figures.Figure, "savefig", full_disk)
    (tmp_path / "curves.svg").write_bytes(b"the last one")
    with pytest.raises(OSError, match="No space left on device"):
        finished.plot(tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_bytes() == b"the last one"
    assert [path.name for path in tmp_path.iterdir()] == ["curves.svg"]


def test_a_finished_run_is_resumed_by_object_or_path(finished, monkeypatch):
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    assert resume(finished, quiet=True).path == finished.path
    assert resume(str(finished.path), quiet=True).path == finished.path


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such run directory"):
        Run(str(tmp_path / "0001"))


def test_a_configuration_in_python_is_as_strict_as_a_file(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('[training]\nseeds = [3]\nalgorithms = ["bc"]\n')
    config = configure(str(file), data={"steps": 7})
    assert (config.training.seeds, config.data.steps) == ((3,), 7)
    with pytest.raises(InputError, match=r"unknown key in \[training\] 'seed'.*'seeds'"):
        configure(training={"seed": [0]})
    with pytest.raises(InputError, match="unknown key 'traning'; did you mean 'train"):
        configure(traning={})
    with pytest.raises(InputError, match="training must be a table, got 3"):
        configure(training=3)
    with pytest.raises(InputError, match=r"data.held_out must be a number in \(0, 1\)"):
        configure(data={"held_out": 2.0})


def test_a_log_is_trained_on_without_a_watcher(make_line, make_log):
    trained = train(make_line(), make_log(), seeds=(3, 4), plan=Plan(4, 2, 2))
    assert repr(trained) == "Trained(Line, seeds 3, 4, 4 updates)"
    policies = trained.pool("line").policies
    assert list(policies) == ["line-3", "line-4"]
    assert trained.policies == list(policies.values())


def test_what_cannot_be_trained_is_refused_at_once(make_line, make_log):
    log = make_log()
    with pytest.raises(InputError, match=r"Plan.chunk must be a multiple of 2"):
        train(make_line(), log, plan=Plan(3, 3, 3))
    with pytest.raises(InputError, match=r"learning_rate must be a number above 0, got -1"):
        train(make_line(learning_rate=-1.0), log, plan=Plan(2, 2, 2))
    with pytest.raises(InputError, match="batches of 500 rows, and there are 120"):
        train(sized(make_line(), batch_size=500), log, plan=Plan(2, 2, 2))
    with pytest.raises(ValueError, match=r"Plan.updates must be a positive multiple of chunk = 2"):
        Plan(3, 2, 2)
