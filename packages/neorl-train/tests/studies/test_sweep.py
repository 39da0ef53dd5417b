"""A grid and a search: which runs they make, how they go on, and what they count."""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from neorl_agents import load_policy
from neorl_core import InputError
from neorl_core.infrastructure.command_line import StoppedError
from neorl_envs import write_dataset
from neorl_train._command.main import main
from neorl_train.runs import create_run, tree_digest
from neorl_train.studies import _search, _sweep, read_sweep

GRID = """
[grid]
training.algorithms = ["td3_bc", "iql", ["bc", "iql"]]
algorithms.iql.expectile = [0.7, 0.9]
[training]
updates = 40
chunk = 20
"""

SEARCH = """
[search]
trials = 7
seed = 3
[search.space]
algorithms.iql.expectile = {low = 0.5, high = 0.9}
algorithms.iql.steps.batch_size = {low = 32, high = 512, log = true}
[training]
algorithms = ["iql"]
"""


def _file(folder, text):
    path = folder / "sweep.toml"
    path.write_text(text)
    return read_sweep(path, folder / "runs")


@pytest.fixture
def ended(monkeypatch):
    """Runs that end at once: what is tested is who is run, not what a run does."""
    made, fails = [], set()

    def run_job(config, reporter, timings, about):
        values = about["sweep"]["values"]
        made.append(values)
        if str(values) in fails:
            raise InputError("no such plant")
        record = {"status": "finished", "error": "", **about}
        create_run(Path(config.output.directory), "", record)

    monkeypatch.setattr(_sweep, "run_job", run_job)
    return made, fails


def test_a_grid_holds_every_combination_once(tmp_path):
    cells = _file(tmp_path, GRID).cells()
    assert [cell.text() for cell in cells] == [
        "training.algorithms td3_bc",
        "training.algorithms iql, algorithms.iql.expectile 0.7",
        "training.algorithms iql, algorithms.iql.expectile 0.9",
        "training.algorithms bc+iql, algorithms.iql.expectile 0.7",
        "training.algorithms bc+iql, algorithms.iql.expectile 0.9",
    ]
    assert cells[1].config.algorithms.iql.expectile == 0.7
    assert cells[3].config.training.algorithms == ("bc", "iql")
    assert {cell.config.training.updates for cell in cells} == {40}


def test_a_sweep_goes_on_and_counts_what_failed(tmp_path, ended):
    made, fails = ended
    cells = _file(tmp_path, GRID).cells()
    fails.add(str(cells[2].values))
    folder = tmp_path / "runs"
    assert len(_sweep.state_of(folder, cells).left) == 5
    failed = _sweep.carry_out(_sweep.state_of(folder, cells[:3]), folder, print_line=lambda _: None)
    assert failed == {cells[2].name: "no such plant"}
    state = _sweep.state_of(folder, cells)
    assert [cell.name for cell in state.left] == [cell.name for cell in cells[3:]]
    assert state.failed == failed
    assert len(state.finished) == 2
    assert _sweep.state_of(folder, cells, retry=True).left[0].name == cells[2].name
    failed_before = create_run(folder, "", {"status": "finished", "sweep": {"cell": cells[2].name}})
    resumed = _sweep.state_of(folder, cells)
    assert resumed.failed == {}
    assert failed_before.path in resumed.finished
    shutil.rmtree(failed_before.path)
    fails.clear()
    again = _sweep.state_of(folder, cells, retry=True)
    assert _sweep.carry_out(again, folder, print_line=lambda _: None) == {}
    assert len(_sweep.state_of(folder, cells).finished) == 5
    assert len(made) == 6


def test_a_run_that_was_stopped_is_resumed(tmp_path, ended, monkeypatch):
    cells = _file(tmp_path, GRID).cells()
    record = {"status": "interrupted", "sweep": {"cell": cells[1].name, "values": {}}}
    run = create_run(tmp_path / "runs", "", record)
    resumed = []
    monkeypatch.setattr(_sweep, "resume_job", lambda run, *_: resumed.append(run.path))
    state = _sweep.state_of(tmp_path / "runs", cells)
    assert len(state.left) == 5
    _sweep.carry_out(state, tmp_path / "runs", print_line=lambda _: None)
    assert resumed == [run.path]


def test_a_process_that_dies_ends_no_other_cell(monkeypatch):
    """The cells of this test are the signals that their processes send to themselves."""
    monkeypatch.setattr(_sweep, "run_cell", signal.raise_signal)
    monkeypatch.setattr(_sweep, "prepare_process", os.getpid)
    outcomes = list(_sweep._process_outcomes([(signal.SIGKILL,), (0,), (0,), (0,)], 2))
    assert outcomes.count(None) == 3
    (lost,) = (outcome for outcome in outcomes if outcome is not None)
    assert (lost.cell, lost.lost) == (signal.SIGKILL, True)


def test_after_a_signal_no_further_cell_begins(monkeypatch):
    """The signal arrives while the second of eleven cells runs, which ends a little later."""
    begun, released = [], threading.Event()

    def in_process(job):
        begun.append(job[0])
        assert job[0] == "first" or released.wait(60)
        return _sweep.Outcome(job[0], "")

    monkeypatch.setattr(_sweep, "_in_process", in_process)
    outcomes = _sweep._process_outcomes([("first",), ("second",), *[("later",)] * 9], 1)
    assert next(outcomes).cell == "first"
    while len(begun) < 2:
        time.sleep(0.01)
    threading.Timer(0.2, released.set).start()
    with pytest.raises(StoppedError):
        outcomes.throw(StoppedError(signal.SIGTERM))
    assert begun == ["first", "second"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[training]\nupdates = 10\n", r"needs either a section \[grid\]"),
        ("[grid]\n", "contains no setting to vary"),
        ("[grid]\ntraining.updates = 5\n", "grid.training.updates must be a list of values"),
        ("[grid]\ntraining.updats = [5]\n", "with training.updats = 5: .*updates"),
        ("[search]\ntrails = 5\n", "trials"),
        ("[search]\ntrials = 5\n", r"\[search.space\] must name"),
        ("[search]\n[search.space]\nx.y = {low = 2, high = 1}\n", "low below high"),
        ("[search]\n[search.space]\nx.y = {low = 0, high = 1, log = true}\n", "above 0"),
        ("[search]\ntrials = 0\n[search.space]\nx.y = [1]\n", "integer of at least 1"),
        ("nonsense", "not a TOML file"),
    ],
)
def test_a_bad_file_is_refused_by_key(tmp_path, text, fault):
    with pytest.raises(InputError, match=fault):
        _file(tmp_path, text).cells()


def test_a_search_that_was_stopped_draws_what_it_would_have_drawn(tmp_path, ended):
    def value(run):
        values = json.loads((run.path / "run.json").read_text())["sweep"]["values"]
        if stop and len(calls) == stop[0]:
            raise KeyboardInterrupt
        calls.append(values)
        return -((values["algorithms.iql.expectile"] - 0.8) ** 2)

    def searched(folder):
        sweep = _file(folder, SEARCH)
        assert sweep.search is not None
        cells = _search.search(sweep, sweep.search, value, print_line=lambda _: None)
        return [cell.values for cell in cells], _search.best_trial(sweep.directory, sweep.search)

    calls, stop = [], []
    whole, best = searched(_folder(tmp_path, "whole"))
    assert len(whole) == 7
    assert best is not None
    assert best[0] == max(whole, key=lambda v: -((v["algorithms.iql.expectile"] - 0.8) ** 2))
    assert all(32 <= values["algorithms.iql.steps.batch_size"] <= 512 for values in whole)
    calls, stop = [], [4]
    with pytest.raises(KeyboardInterrupt):
        searched(_folder(tmp_path, "stopped"))
    stop.clear()
    assert searched(tmp_path / "stopped")[0] == whole
    changed = _file(tmp_path / "stopped", SEARCH.replace("0.9", "0.95"))
    assert changed.search is not None
    with pytest.raises(InputError, match="another space"):
        _search.search(changed, changed.search, value)


def test_a_search_does_not_take_the_value_of_the_learners_beside_one_that_diverged(
    tmp_path, monkeypatch
):
    """The largest expectiles, which would be best, diverge beside a sound learner."""

    def run_job(config, reporter, timings, about):
        wild = about["sweep"]["values"]["algorithms.iql.expectile"] > 0.7
        diverged = {"iql": {"error": "IQL diverged"}} if wild else {}
        record = {"status": "finished", "error": "", "diverged": diverged, **about}
        create_run(Path(config.output.directory), "", record)

    def value(run):
        assert not run.record()["diverged"]
        return run.record()["sweep"]["values"]["algorithms.iql.expectile"]

    monkeypatch.setattr(_sweep, "run_job", run_job)
    sweep, lines = _file(tmp_path, SEARCH), []
    assert sweep.search is not None
    cells = _search.search(sweep, sweep.search, value, print_line=lines.append)
    tried = [cell.values["algorithms.iql.expectile"] for cell in cells]
    assert min(tried) <= 0.7 < max(tried)
    best = _search.best_trial(sweep.directory, sweep.search)
    assert best is not None
    assert best[1] == max(number for number in tried if number <= 0.7)
    failed = [line for line in lines if line.endswith(": failed: iql diverged")]
    assert len(failed) == sum(number > 0.7 for number in tried)


BATCH = """
[search]
trials = 7
seed = 3
batch = 3
[search.space]
algorithms.iql.expectile = {low = 0.5, high = 0.9}
[training]
algorithms = ["iql"]
"""


def test_a_batch_of_a_search_is_trained_by_one_program(tmp_path, monkeypatch, ended):
    """Seven trials in batches of three, without a stop and with one after any number of them."""
    groups, calls, stop = [], [], []

    def train_runs_together(jobs, reporter):
        groups.append(len(jobs))
        for job in jobs:
            record = {"status": "interrupted", "error": "", **job.extra}
            create_run(Path(job.config.output.directory), "", record)
        return {}

    def value(run):
        if stop and len(calls) == stop[0]:
            raise KeyboardInterrupt
        calls.append(run.path)
        values = json.loads((run.path / "run.json").read_text())["sweep"]["values"]
        return -((values["algorithms.iql.expectile"] - 0.8) ** 2)

    def searched(folder):
        sweep = _file(folder, BATCH)
        assert sweep.search is not None
        cells = _search.search(sweep, sweep.search, value, print_line=lambda _: None)
        return [cell.values for cell in cells]

    monkeypatch.setattr(_sweep, "train_runs_together", train_runs_together)
    monkeypatch.setattr(
        _sweep, "resume_job", lambda run, *_: run.update_record(status="finished", resume="")
    )
    whole = searched(_folder(tmp_path, "whole"))
    assert groups == [3, 3]
    assert len(ended[0]) == 1  # the last trial is alone
    assert len({str(values) for values in whole}) == 7
    for number in (1, 3, 5):
        calls, stop = [], [number]
        folder = _folder(tmp_path, str(number))
        with pytest.raises(KeyboardInterrupt):
            searched(folder)
        stop.clear()
        assert searched(folder) == whole
    other = _file(folder, BATCH.replace("batch = 3", "batch = 2"))
    assert other.search is not None
    with pytest.raises(InputError, match="another space, with another seed or batch"):
        _search.search(other, other.search, value)
    with pytest.raises(InputError, match=r"search\.batch must be an integer of at least 1, got 0"):
        _file(folder, BATCH.replace("batch = 3", "batch = 0"))


def _folder(parent, name):
    (parent / name).mkdir()
    return parent / name


@pytest.mark.nightly
def test_a_search_prefers_settings_by_the_plant_model(tmp_path, capsys):
    """Cloning with a rate of 1e-9 has learned nothing; the plant itself is never asked."""
    (tmp_path / "sweep.toml").write_text(
        """
        [search]
        trials = 4
        [search.space]
        algorithms.bc.learning_rate = [1e-9, 1e-2]
        [data]
        source = "CSTR-v0"
        steps = 8000
        [training]
        algorithms = ["bc"]
        seeds = [0]
        updates = 500
        chunk = 100
        [checkpoints]
        interval = 500
        [evaluation]
        starts = 64
        [output]
        tracking = false
        """
    )
    given = ["sweep", str(tmp_path / "sweep.toml"), "--output", str(tmp_path / "runs")]
    assert main(given) == 0
    output = capsys.readouterr().out
    values = {}
    for line in output.splitlines():
        if line.startswith("trial "):
            words = line.split(": ")
            values.setdefault(words[1], set()).add(words[2])
    rates = {words: [float(one.split()[0]) for one in result] for words, result in values.items()}
    assert all(len(result) == 1 for result in rates.values()), "equal settings have equal values"
    assert "--algorithms.bc.learning_rate 0.01" in output
    best = rates["algorithms.bc.learning_rate 0.01"][0]
    assert best == max(one for result in rates.values() for one in result)
    assert main([*given, "--retry"]) == 2
    assert "--retry applies only to a grid" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_grid_on_a_log_and_in_processes_ends_in_the_same_tables(tmp_path, make_log, capsys):
    write_dataset(tmp_path / "log.h5", make_log(0, 40, 12))
    (tmp_path / "sweep.toml").write_text(
        f"""
        [grid]
        training.algorithms = ["bc", "iql"]
        [data]
        source = "{tmp_path / "log.h5"}"
        [training]
        seeds = [0, 1]
        updates = 40
        chunk = 20
        [checkpoints]
        interval = 20
        [output]
        tracking = false
        """
    )
    for name, words in (("one", []), ("two", ["--processes", "2"])):
        given = ["sweep", str(tmp_path / "sweep.toml"), "--output", str(tmp_path / name), *words]
        assert main(given) == 0
        assert "failed runs: 0" in capsys.readouterr().out
    rows = [json.loads((tmp_path / n / "table.json").read_text())["rows"] for n in ("one", "two")]
    learned = [{r["policy"]: r["explained"] for r in one if r["role"] == "learner"} for one in rows]
    assert set(learned[0]) == {"bc", "iql"}
    assert learned[0] == learned[1]


TOGETHER = """
[grid]
training.algorithms = ["bc", "iql"]
algorithms.iql.expectile = [0.7, 0.9]
algorithms.iql.steps.batch_size = [16, 32]
algorithms.bc.learning_rate = [1e-3, 1e-2, 1e30]
[data]
source = "{log}"
[training]
seeds = [0, 1]
updates = 40
chunk = 20
[checkpoints]
interval = 20
[output]
tracking = false
"""


def test_what_differs_in_numbers_alone_is_trained_by_one_program(tmp_path, monkeypatch, ended):
    """Three rates of cloning, and two expectiles for each of two sizes of a batch."""
    groups = []

    def train_runs_together(jobs, reporter):
        groups.append([job.extra["sweep"]["values"] for job in jobs])
        for job in jobs:
            status = "failed" if job is jobs[0] else "interrupted"
            create_run(tmp_path / "runs", "", {"status": status, "error": "diverged", **job.extra})
        return {jobs[0].name: "diverged"}

    resumed = []
    monkeypatch.setattr(_sweep, "train_runs_together", train_runs_together)
    monkeypatch.setattr(_sweep, "resume_job", lambda run, *_: resumed.append(run.path))
    cells = _file(tmp_path, TOGETHER.format(log=tmp_path / "log.h5")).cells()
    folder = tmp_path / "runs"
    state = _sweep.state_of(folder, cells)
    failed = _sweep.carry_out(state, folder, together=True, print_line=lambda _: None)
    assert sorted(map(len, groups)) == [2, 2, 3]
    assert all(
        "algorithms.iql.steps.batch_size" in v or len(group) == 3 for group in groups for v in group
    )
    assert len(failed) == 3
    assert len(resumed) == 4
    assert ended[0] == []
    # Processes of their own, as asked for, share nothing.
    groups.clear()
    monkeypatch.setattr(_sweep, "_process_outcomes", lambda jobs, n: iter(()))
    _sweep.carry_out(state, folder, together=True, processes=2, print_line=lambda _: None)
    assert groups == []


@pytest.mark.nightly
def test_runs_trained_together_leave_what_separate_runs_leave(tmp_path, make_log, capsys):
    write_dataset(tmp_path / "log.h5", make_log(0, 40, 12))
    (tmp_path / "sweep.toml").write_text(TOGETHER.format(log=tmp_path / "log.h5"))
    left = {}
    for name in ("together", "no-together"):
        given = ["sweep", str(tmp_path / "sweep.toml"), "--output", str(tmp_path / name)]
        assert main([*given, f"--{name}"]) == 0
        assert "failed runs: 1" in capsys.readouterr().out
        left[name] = {
            json.loads((run / "run.json").read_text())["sweep"]["cell"]: (
                {file.name: tree_digest(load_policy(file).policy) for file in _policies(run)},
                [_without_clock(line) for line in (run / "metrics.jsonl").read_text().splitlines()],
                json.loads((run / "run.json").read_text())["status"],
                json.loads((run / "run.json").read_text())["error"].partition(";")[0],
            )
            for run in (tmp_path / name).iterdir()
            if (run / "run.json").exists()
        }
    assert left["together"].keys() == left["no-together"].keys()
    assert sum(len(result[0]) for result in left["together"].values()) == 2 * 6
    for cell, result in left["together"].items():
        assert result == left["no-together"][cell]
    tables = [(tmp_path / name / "table.csv").read_text().splitlines() for name in left]
    # The runs have other numbers, since groups are trained in another order.
    rows = [sorted(line.partition(",")[2] for line in table) for table in tables]
    assert rows[0] == rows[1]


def _policies(run):
    return [file for name in ("bc", "iql") for file in run.glob(f"policies/{name}-*")]


def _without_clock(line):
    return {name: value for name, value in json.loads(line).items() if name != "time"}


def test_a_damaged_list_of_failures_is_named(tmp_path, ended):
    cells = _file(tmp_path, GRID).cells()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / _sweep.REFUSED).write_text("{")
    with pytest.raises(InputError, match=r"refused\.json is damaged"):
        _sweep.state_of(tmp_path / "runs", cells)
