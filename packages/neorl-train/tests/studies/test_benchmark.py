"""A benchmark: its grid, its scores against numbers worked out apart, what failed, and resuming."""

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

from neorl_core import InputError
from neorl_core.infrastructure import head, write_json
from neorl_train import evaluate
from neorl_train._command.main import main
from neorl_train._job.evaluation import write_results
from neorl_train.candidates import Pool
from neorl_train.runs import RunDirectory, create_run
from neorl_train.studies import (
    _benchmark_run,
    _sweep,
    benchmark_plan,
    benchmark_text,
    write_benchmark,
)
from neorl_train.studies._benchmark import PROFILE, PlannedRun, Scale, benchmark_of
from neorl_train.studies._benchmark_run import benchmark_notes

GRID = """
[benchmark]
plants = ["CSTR-v0", "DMSD-v0"]
qualities = ["medium", "expert"]
algorithms = ["bc", "iql"]
seeds = [3, 4]
[training]
updates = 40
chunk = 20
[algorithms.iql]
expectile = 0.8
"""

SCALE = Scale("Line-v0", {"load": 0.5}, random=-40.0, reference=-20.0, best_tuning="hasty")
VALIDATIONS = {0: [-30.0, -24.0, -26.0], 1: [-34.0, -33.0, -22.0]}


def _plan(folder, text=GRID, given=None):
    path = folder / "grid.toml"
    path.write_text(text)
    return benchmark_plan(path, given or {}, folder / "runs")


def test_a_grid_is_every_learner_on_every_log_of_every_plant(tmp_path):
    cells = _plan(tmp_path).cells()
    assert len(cells) == 8
    assert cells[1].values == {
        "data.source": "CSTR-v0",
        "data.quality": "medium",
        "training.algorithms": "iql",
        "training.seeds": [3, 4],
    }
    assert cells[1].config.algorithms.iql.expectile == 0.8
    assert {cell.config.training.updates for cell in cells} == {40}
    apart = _plan(tmp_path, given={"separate_seeds": True}).cells()
    assert len(apart) == 16
    assert apart[1].config.training.seeds == (4,)
    assert benchmark_notes(cells) == []
    (note,) = benchmark_notes(_plan(tmp_path, given={"algorithms": ("bc", "cql")}).cells())
    assert "bc: hidden layers of 64 64, batches of 128; cql: " in note


def test_options_override_the_file_and_the_folder_continues_it(tmp_path):
    plan = _plan(tmp_path, given={"plants": ("CSTR-v0",), "seeds": (7,), "training.updates": 60})
    assert (plan.plants, plan.seeds) == (("CSTR-v0",), (7,))
    plan.write()
    again = benchmark_plan(plan.directory, {})
    assert again.directory == plan.directory
    assert [cell.name for cell in again.cells()] == [cell.name for cell in plan.cells()]
    bare = benchmark_plan(None, {"plants": ("CSTR-v0",)})
    assert bare.algorithms == ("bc", "td3_bc", "iql")
    assert bare.directory == Path("benchmarks/benchmark")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[training]\nupdates = 4\n", r"no section \[benchmark\]"),
        ("[benchmark]\nplants = []\n", "a benchmark needs plants"),
        ("[benchmark]\nplant = ['CSTR-v0']\n", "did you mean 'plants'"),
        ("[benchmark]\nplants = 'CSTR-v0'\n", "benchmark.plants must be a list"),
        ("[benchmark]\nplants = ['CSTR-v1']\n", "did you mean 'CSTR-v0'"),
        ("[benchmark]\nplants = ['CSTR-v0', 'CSTR-v0']\n", "contains a value twice"),
        ("[benchmark]\nplants = ['CSTR-v0']\nseeds = [0.5]\n", "integers, got 0.5"),
        ("[benchmark]\nplants = ['CSTR-v0']\nalgorithms = []\n", "algorithms is empty"),
        ("[benchmark]\nplants = ['CSTR-v0']\nqualities = ['expret']\n", "mean 'expert'"),
        ("[benchmark]\nplants = ['CSTR-v0']\nalgorithms = ['iqll']\n", "did you mean 'iql'"),
        ("[benchmark]\nplants = ['CSTR-v0']\n[data]\nsource = 'x'\n", r"set by \[benchmark\]"),
        ("[benchmark]\nplants = ['CSTR-v0']\n[data]\nconstants = {a = 1.0}\n", "as they are"),
        ("nonsense", "not a TOML file"),
    ],
)
def test_a_bad_grid_is_refused_by_key(tmp_path, text, fault):
    with pytest.raises(InputError, match=fault):
        _plan(tmp_path, text).cells()


@pytest.fixture(scope="module")
def entries(tmp_path_factory, noisy):
    """Three runs of two tasks: one learner finished on both, one failed on the second."""
    folder = tmp_path_factory.mktemp("entries")
    collected = []
    for number, (quality, learner, error) in enumerate(
        [
            ("mixed", "good", ""),
            ("mixed", "bad", ""),
            ("expert", "good", ""),
            ("expert", "bad", "bad diverged: loss is nan"),
        ]
    ):
        seeds = (0, 1) if learner == "good" else (0,)
        path = folder / f"{number:04d}"
        path.mkdir()
        (path / "config.toml").write_text("")
        status = {"status": "failed" if error else "finished", "error": error}
        write_json(path / "run.json", {**head("run", 1), **status})
        write_results(path, noisy.evaluation, noisy.verdict)
        with (path / "metrics.jsonl").open("w") as file:
            for seed, values in VALIDATIONS.items():
                for step, value in enumerate(values, start=1):
                    metrics = {"plant_return": value, "plant_cost_load": 2.0, "plant_cost_peak": 9}
                    line = {"kind": "validation", "algorithm": learner, "seed": seed}
                    file.write(json.dumps({**line, "step": 10 * step, "metrics": metrics}) + "\n")
        collected.append(
            PlannedRun(("Line-v0", quality), learner, seeds, RunDirectory(path), error)
        )
    return tuple(collected)


@pytest.fixture(scope="module")
def benchmark(entries, noisy):
    controllers = {entry.task: noisy.evaluation for entry in entries}
    return benchmark_of(entries, controllers, {"Line-v0": SCALE}, level=0.95, curve_starts=5)


def _score(episodes):
    return 100 * (episodes.returns - 0.5 * episodes.cost_sum[:, 0] + 40) / 20


def test_rows_hold_what_the_episodes_say(benchmark, noisy):
    results = {(one.name, one.guarded): one.episodes for one in noisy.evaluation.results}
    row = next(row for row in benchmark.rows if row.policy == "good")
    each = [_score(results[name, True]) for name in ("good-0", "good-1")]
    np.testing.assert_allclose(row.each_seed, np.mean(each, axis=1), rtol=1e-6)
    np.testing.assert_allclose(row.last.value, np.mean(each), rtol=1e-6)
    assert row.last.low < row.last.value < row.last.high
    steady = results["steady", False].returns
    np.testing.assert_allclose(
        row.gain.value,
        np.mean([results[n, True].returns - steady for n in ("good-0", "good-1")]),
        rtol=1e-5,
    )
    broken = [results[name, True].violated.mean(axis=0) for name in ("good-0", "good-1")]
    assert row.over == np.max(broken)
    controller = next(row for row in benchmark.rows if row.policy == "hasty")
    np.testing.assert_allclose(
        controller.last.value, _score(results["hasty", False]).mean(), rtol=1e-6
    )
    assert [row.policy for row in benchmark.rows].count("logged behaviour") == 2


def test_best_and_last_on_the_way_are_those_of_each_seed(benchmark):
    row = next(row for row in benchmark.rows if row.policy == "good")
    scores = [[100 * (value - 0.5 * 2.0 + 40) / 20 for value in VALIDATIONS[s]] for s in (0, 1)]
    best, last = np.max(scores, axis=1), np.asarray(scores)[:, -1]
    for actual, values in ((row.best, best), (row.last_there, last)):
        np.testing.assert_allclose(actual.value, values.mean())
        low, high = stats.t.interval(0.95, 1, values.mean(), stats.sem(values))
        np.testing.assert_allclose([actual.low, actual.high], [low, high], rtol=1e-6)
    assert benchmark.online == 3 * 5
    assert "15 episodes on the plant per seed" in benchmark_text(benchmark)
    (curve, *_) = benchmark.learning
    assert curve.steps == (10, 20, 30)
    np.testing.assert_allclose([one.value for one in curve.score], np.mean(scores, axis=0))


def test_a_benchmark_whose_runs_were_stopped_ends_in_an_error(
    benchmark, tmp_path, monkeypatch, capsys
):
    stopped = dataclasses.replace(benchmark, runs={"finished": 0, "failed": 0, "left": 1})
    monkeypatch.setattr(
        "neorl_train.studies._benchmark_run.carry_out_benchmark",
        lambda *_, **__: (stopped, [tmp_path / "table.md"]),
    )
    words = ["benchmark", "--plants", "CSTR-v0", "--qualities", "mixed", "--algorithms", "bc"]
    assert main([*words, "--output", str(tmp_path), "--json"]) == 2
    assert "1 of 1 runs were stopped before they ended" in capsys.readouterr().err


def test_a_seed_that_failed_counts_as_the_worst_of_its_task(benchmark, noisy):
    assert benchmark.runs == {"finished": 3, "failed": 1, "left": 0}
    row = next(r for r in benchmark.rows if (r.policy, r.quality) == ("bad", "expert"))
    assert (row.seeds, row.failed, row.last) == (0, 1, None)
    text = benchmark_text(benchmark)
    assert "failed: Line-v0, expert log, bad, seeds 0: bad diverged: loss is nan" in text
    results = {(one.name, one.guarded): one.episodes for one in noisy.evaluation.results}
    plain = [
        _score(e).mean() for (n, g), e in results.items() if not g and n in ("steady", "hasty")
    ]
    learned = [_score(results[name, True]).mean() for name in ("good-0", "good-1")]
    behaviour = _score(results["logged behaviour", False]).mean()
    recorded = _score(results["log", False]).mean()
    worst = min([0.0, *plain, *learned, behaviour, recorded])
    bad = next(one for one in benchmark.overall if one.policy == "bad")
    assert (bad.failed, bad.tasks, bad.best) == (1, 2, None)
    own = _score(results["bad-0", True]).mean()
    np.testing.assert_allclose(bad.last.value, (own + worst) / 2, rtol=1e-6)
    good = next(one for one in benchmark.overall if one.policy == "good")
    every = np.tile(learned, 2)
    np.testing.assert_allclose(good.last.value, stats.trim_mean(every, 0.25), rtol=1e-6)
    above = [np.mean(every > threshold) for threshold in PROFILE]
    np.testing.assert_allclose(good.profile, above, atol=1e-6)
    assert {"first tuning", "reference"} < {one.policy for one in benchmark.overall}


def test_a_run_that_is_left_is_counted_and_its_learner_not_averaged(entries, noisy):
    *others, failed = entries
    left = [*others, dataclasses.replace(failed, run=None, error="")]
    controllers = {entry.task: noisy.evaluation for entry in left}
    result = benchmark_of(left, controllers, {"Line-v0": SCALE}, level=0.95, curve_starts=5)
    assert result.runs == {"finished": 3, "failed": 0, "left": 1}
    assert next(one for one in result.overall if one.policy == "bad").tasks == 1


def test_every_format_and_the_page_hold_every_row(benchmark, tmp_path):
    files = {path.suffix: path for path in write_benchmark(tmp_path, benchmark)}
    assert set(files) - {".png"} == {".txt", ".md", ".tex", ".csv", ".json", ".html"}
    rows = list(csv.DictReader(files[".csv"].read_text().splitlines()))
    assert len(rows) == len(benchmark.rows)
    assert float(rows[0]["score_last"]) == benchmark.rows[0].last.value
    plain = json.loads(files[".json"].read_text())
    assert len(plain["rows"]) == len(benchmark.rows)
    assert plain["runs"]["failed"] == 1
    for suffix in (".txt", ".md", ".tex"):
        assert files[suffix].read_text().count("logged behaviour") == 3, suffix
    html = files[".html"].read_text()
    assert html.count("logged behaviour") >= 3
    assert "bad diverged" in html
    if ".png" in files:
        assert files[".png"].read_bytes().startswith(b"\x89PNG")
        assert html.count("<svg") == 4


def test_controllers_alone_have_the_episodes_of_an_evaluation(toy, noisy):
    plant = toy.Line(noise=toy.NOISE)
    today = Pool(incumbent="steady")
    result = evaluate(plant, today, key=jax.random.key(3), n_starts=100)
    plain = {one.name: one.episodes for one in noisy.evaluation.results if not one.guarded}
    for one in result.results:
        assert not one.guarded
        np.testing.assert_allclose(one.episodes.returns, plain[one.name].returns, rtol=1e-5)
    assert result.tables.reference == "steady"
    with pytest.raises(ValueError, match="hasty is already the name"):
        evaluate(plant, today, controllers={"hasty": toy.proportional(0.1)})


@pytest.fixture
def ended(monkeypatch, noisy):
    """Runs that end at once: what is tested is who is run."""
    made = []

    def run_job(config, reporter, timings, about):
        made.append((config.data.quality, *config.training.algorithms))
        record = {"status": "finished", "error": "", **about}
        run = create_run(Path(config.output.directory), "", record)
        learner = config.training.algorithms[0]
        renamed = tuple(
            dataclasses.replace(one, group=learner if one.group == "good" else one.group)
            for one in noisy.evaluation.results
        )
        write_results(
            run.path, dataclasses.replace(noisy.evaluation, results=renamed), noisy.verdict
        )

    monkeypatch.setattr(_sweep, "run_job", run_job)
    monkeypatch.setattr(
        _benchmark_run, "plant_baselines", lambda *_, **__: (noisy.evaluation, True)
    )
    monkeypatch.setattr(_benchmark_run, "scale_from", lambda _: SCALE)
    return made


def test_what_has_finished_is_not_trained_again(tmp_path, ended, capsys):
    (tmp_path / "grid.toml").write_text(GRID.replace(', "DMSD-v0"', ""))
    given = ["benchmark", str(tmp_path / "grid.toml"), "--output", str(tmp_path / "runs")]
    assert main([*given, "--algorithms", "bc"]) == 0
    assert len(ended) == 2
    assert main(given) == 0
    assert ended[2:] == [("medium", "iql"), ("expert", "iql")]
    assert "4 runs in" in capsys.readouterr().out
    assert main(["benchmark", str(tmp_path / "runs"), "--json"]) == 0
    assert len(ended) == 4
    plain = json.loads(capsys.readouterr().out)
    assert plain["runs"] == {"finished": 4, "failed": 0, "left": 0}


def test_two_commands_in_one_folder_are_refused(tmp_path, ended, capsys):
    (tmp_path / "grid.toml").write_text(GRID)
    with _sweep.one_command(tmp_path / "runs"):
        code = main(["benchmark", str(tmp_path / "grid.toml"), "--output", str(tmp_path / "runs")])
    assert code == 2
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    assert ended == []


KILLED = """
[benchmark]
plants = ["CSTR-v0"]
algorithms = ["bc", "iql"]
seeds = [0, 1]
[data]
steps = 4000
[training]
updates = 200
chunk = 100
[checkpoints]
interval = 100
[evaluation]
starts = 16
curve_starts = 4
[output]
tracking = false
"""


@pytest.mark.nightly
def test_a_benchmark_that_is_killed_goes_on_to_the_same_numbers(tmp_path):
    (tmp_path / "grid.toml").write_text(KILLED)
    command = [sys.executable, "-m", "neorl_train", "benchmark", "grid.toml", "--output"]
    process = subprocess.Popen(
        [*command, "killed"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as raised:
        for line in raised:
            if line.startswith("[1/2]"):
                break
        time.sleep(1)
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    first = (tmp_path / "killed/0001/run.json").stat().st_mtime_ns
    for folder in ("killed", "whole"):
        done = subprocess.run([*command, folder], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed/0001/run.json").stat().st_mtime_ns == first
    result = [
        json.loads((tmp_path / f / "benchmark.json").read_text()) for f in ("killed", "whole")
    ]
    assert result[0]["rows"] == result[1]["rows"]
    assert result[0]["runs"] == {"finished": 2, "failed": 0, "left": 0}
    assert {row["policy"] for row in result[0]["rows"]} > {"bc", "iql", "PI", "random actions"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["CSTR-v9"], "unknown plant or log 'CSTR-v9'; did you mean 'CSTR-v0'?"),
        (["missing.h5"], "missing.h5: there is no such file"),
        (["CSTR-v0", "--output", "table.pdf"], "unknown ending of table.pdf: '.pdf'"),
        (["CSTR-v0", "--output", "new/table.md"], "there is no folder new; create it first"),
    ],
)
def test_baselines_refuse_before_anything_is_run(tmp_path, monkeypatch, capsys, words, fault):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_train.studies._benchmark_run.evaluate", None)
    assert main(["baselines", *words]) == 2
    assert fault in capsys.readouterr().err


def test_baselines_are_kept_and_a_log_has_its_controllers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["baselines", "DMSD-v0", "--starts", "16"]
    assert main([*given, "--output", "table.csv"]) == 0
    first = capsys.readouterr().out
    assert "stored in" in first
    with monkeypatch.context() as patch:
        patch.setattr("neorl_train.studies._benchmark_run.evaluate", None)
        assert main(given) == 0
    again = capsys.readouterr().out
    assert again.strip() == first.partition("stored in")[0].strip()
    rows = list(csv.DictReader(Path("table.csv").read_text().splitlines()))
    assert [row["policy"] for row in rows][-1] == "logged behaviour"
    from neorl_envs import collect_log, make, write_dataset

    log = collect_log(make("DMSD-v0"), n_steps=4000, key=jax.random.key(0))
    write_dataset(Path("log.h5"), log)
    words = ["--starts", "16", "--controllers", "pid_imitation", "--json"]
    words += ["--classical.manipulated", "x1", "force1", "x2", "force2"]
    words += ["--classical.setpoint-channel", "x1", "target1", "x2", "target2"]
    assert main(["baselines", "log.h5", *words]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert {"pid_imitation", "log"} <= {row["policy"] for row in plain["rows"]}
