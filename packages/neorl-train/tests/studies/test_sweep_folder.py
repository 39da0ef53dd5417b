"""What a sweep says of a folder that holds more than its own runs."""

import errno
import json
import os

from neorl_core import InputError
from neorl_train._command.main import main
from neorl_train.runs import create_run, numbered_runs
from neorl_train.studies import _sweep, read_sweep

GRID = """
[grid]
training.algorithms = ["td3_bc", "bc"]
"""

SEARCH = """
[search]
trials = 3
[search.space]
algorithms.iql.expectile = {low = 0.5, high = 0.9}
[training]
algorithms = ["iql"]
"""


def refused(*_):
    raise InputError("no such plant")


def test_runs_of_another_sweep_in_the_folder_and_settings_that_failed_are_named(
    tmp_path, monkeypatch, capsys
):
    path, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    path.write_text(GRID)
    other = create_run(folder, "", {"status": "finished", "sweep": {"cell": "another"}})
    cells = read_sweep(path, folder).cells()
    monkeypatch.setattr(_sweep, "run_job", refused)
    words = ["sweep", str(path), "--output", str(folder), "--no-together"]
    assert main(words) == 2
    said, refusal = capsys.readouterr()
    assert "failed: training.algorithms td3_bc: no such plant" in said
    assert f"1 further run in {folder} has other settings and is not in these tables" in said
    assert "none of 2 runs has finished; their reasons are listed above" in refusal
    assert other.path not in _sweep.state_of(folder, cells).finished
    assert _sweep.state_of(folder, cells).others == 1


def printed(capsys):
    return json.loads(capsys.readouterr().out)


def test_a_sweep_prints_one_document_of_json_whatever_came_of_it(tmp_path, monkeypatch, capsys):
    path, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    path.write_text(GRID)
    monkeypatch.setattr(_sweep, "run_job", refused)
    words = ["sweep", str(path), "--output", str(folder), "--no-together", "--json"]
    assert main([*words, "--dry-run"]) == 0
    plan = printed(capsys)
    assert (plan["format"], plan["finished"]) == ("neorl-sweep-plan", 0)
    assert plan["runs"] == [{"training.algorithms": "td3_bc"}, {"training.algorithms": "bc"}]
    assert main(words) == 2
    failed = [f"training.algorithms {name}: no such plant" for name in ("td3_bc", "bc")]
    document = printed(capsys)
    assert (document["rows"], document["failed"]) == ([], failed)
    path.write_text(SEARCH)
    assert main([*words, "--dry-run"]) == 0
    plan = printed(capsys)
    assert (plan["trials"], list(plan["space"])) == (3, ["algorithms.iql.expectile"])


def test_a_full_disk_leaves_its_runs_to_the_same_command(tmp_path, monkeypatch, capsys):
    path, folder, free = tmp_path / "sweep.toml", tmp_path / "runs", []
    path.write_text(GRID)

    def run_job(config, reporter, timings, extra):
        if not free:
            raise InputError("no free disk space") from OSError(errno.ENOSPC, "no space")
        create_run(folder, "", {"status": "finished", "error": "", **extra})

    monkeypatch.setattr(_sweep, "run_job", run_job)
    words = ["sweep", str(path), "--output", str(folder), "--no-together", "--json"]
    assert main(words) == 2
    output = capsys.readouterr()
    assert json.loads(output.out)["failed"] == []
    assert "2 of 2 runs were stopped before they ended; give the same command" in output.err
    free.append(True)
    cells = read_sweep(path, folder).cells()
    left = _sweep.state_of(folder, cells)
    assert len(left.left) == 2
    assert _sweep.carry_out(left, folder, print_line=lambda _: None) == {}
    assert len(_sweep.state_of(folder, cells).finished) == 2


def test_a_benchmark_names_its_runs_as_json(tmp_path, capsys):
    folder = tmp_path / "runs"
    words = ["benchmark", "--plants", "CSTR-v0", "--algorithms", "bc", "--output", str(folder)]
    assert main([*words, "--dry-run", "--json"]) == 0
    plan = printed(capsys)
    assert (plan["format"], plan["folder"]) == ("neorl-benchmark-plan", str(folder))
    assert [run["training.algorithms"] for run in plan["runs"]] == ["bc"]


def test_a_second_command_in_the_folder_is_refused(tmp_path, monkeypatch, capsys):
    path, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    path.write_text(GRID)
    monkeypatch.setattr(_sweep, "run_job", refused)
    with _sweep.one_command(folder):
        assert main(["sweep", str(path), "--output", str(folder), "--no-together"]) == 2
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    assert numbered_runs(folder) == []
