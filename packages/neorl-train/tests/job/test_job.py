"""The main job from a log, or an environment, to a verdict; and every kind of bad log."""

import contextlib
import dataclasses
import errno
import json
import re
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

from neorl_agents import load_policy
from neorl_core import InputError
from neorl_envs import read_dataset, write_dataset
from neorl_safety.constraints import constraints_from_dict
from neorl_train import InterruptedRunError
from neorl_train._command.main import main
from neorl_train._job import resolution
from neorl_train.runs import read_records

QUICK = [
    "--training.algorithms", "bc", "iql",
    "--training.seeds", "3", "5",
    "--training.updates", "40",
    "--training.chunk", "20",
    "--checkpoints.interval", "20",
    "--algorithms.bc.steps.batch-size", "16",
    "--algorithms.iql.steps.batch-size", "16",
    "--algorithms.bc.networks.hidden", "8",
    "--algorithms.iql.networks.hidden", "8",
    "--output.no-tracking",
    "--quiet",
]  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _read(run, name):
    return json.loads((run / name).read_text())


def _check_files(run, environment):
    record = _read(run, "run.json")
    assert record["status"] == "finished"
    assert record["error"] == ""
    assert record["execution_mode"].startswith("one program per seed")
    assert record["timings"]["moments"]["end of the first chunk"] > 0
    names = {path.name for path in (run / "policies").iterdir()}
    assert names == {
        *(f"{name}-{seed}.safetensors" for name in ("bc", "iql") for seed in (3, 5)),
        "fallback.safetensors",
    }
    artefact = load_policy(run / "policies" / "iql-3.safetensors")
    assert len(artefact.parity_obs) >= 32
    assert artefact.metadata["dataset_hash"] == record["dataset"]["content_hash"]
    assert artefact.metadata["hyperparameters"]["networks"]["hidden"] == [8]
    assert record["policies"]["iql-3.safetensors"] == artefact.digest
    assert constraints_from_dict(_read(run, "constraints.json")).n_action == artefact.spec.n_action
    assert _read(run, "verdict.json")["artefact"] == "policies/iql-3.safetensors"
    assert (run / "report.html").stat().st_size > 1000
    chunks = [line for line in read_records(run / "metrics.jsonl") if line["kind"] == "chunk"]
    steps = [(n["algorithm"], n["seed"], n["step"]) for n in chunks]
    assert steps == [(n, s, k) for n in ("bc", "iql") for k in (20, 40) for s in (3, 5)]
    validations = [
        line for line in read_records(run / "metrics.jsonl") if line["kind"] == "validation"
    ]
    assert len(validations) == 8
    assert all(("plant_return" in line["metrics"]) == environment for line in validations)


@pytest.mark.nightly
def test_an_environment_is_logged_learned_judged_and_reported(here, capsys):
    words = [
        "run",
        *QUICK,
        "--data.steps",
        "1500",
        "--data.held-out",
        "0.25",
        "--evaluation.starts",
        "4",
        "--evaluation.level",
        "0.9",
    ]
    # Notes such as the number of rows are not for those who ask for quiet.
    assert main([word for word in words if word != "--quiet"]) == 0
    run = here / "runs" / "0001"
    _check_files(run, environment=True)
    output, progress = capsys.readouterr()
    rows = read_dataset(run / "dataset.h5").n_rows
    assert rows > 1500
    assert f"dataset.h5: {rows} rows for data.steps 1500, because every episode" in progress
    assert output.rstrip().splitlines()[-1].endswith(str(run / "report.html"))
    assert _read(run, "evaluation.json")["tables"]["level"] == 0.9
    assert "by 90 % bounds" in _read(run, "verdict.json")["rule"]
    for page in (output, (run / "report.html").read_text()):
        assert "90 %" in page
        assert "95 %" not in page
    assert "[penalty]\ntemperature = " in (run / "config.toml").read_text()
    assert _read(run, "verdict.json")["answer"] in ("deploy", "do not deploy")
    log = (run / "dataset.h5").stat().st_ino
    assert main([*words, "--timings", "--profile"]) == 0
    again = here / "runs" / "0002"
    assert (again / "dataset.h5").stat().st_ino == log
    digests = [_read(one, "run.json")["policies"].keys() for one in (run, again)]
    assert digests[0] == digests[1]
    assert "end of the first chunk" in capsys.readouterr().out
    assert not (run / "profile").exists()
    traced = {path.parts[-5] for path in (again / "profile").rglob("*.xplane.pb")}
    assert traced == {"bc", "iql"}
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "ChemicalReactor-v0" in listed
    assert "td3_bc" in listed
    assert "SACN with one more term" in listed
    assert listed.count("finished") == 2
    assert main(["inspect", "runs/0001"]) == 0
    assert "2 of 2 policies" in capsys.readouterr().out
    (run / "report.html").unlink()
    assert main(["inspect", "runs/0001", "--report"]) == 0
    output = capsys.readouterr().out
    assert (run / "report.html").is_file()
    assert output.rstrip().endswith(str(run / "report.html"))


@pytest.fixture
def foreign(shared_data):
    return shared_data("neorl2", "DMSD-high-20000-val.npz")


def test_third_party_data_ends_in_cannot_tell(foreign, here, capsys):
    assert main(["run", *QUICK, "--data.source", str(foreign)]) == 0
    run = here / "runs" / "0001"
    _check_files(run, environment=False)
    verdict = _read(run, "verdict.json")
    assert verdict["answer"] == "cannot tell"
    assert "simulator" in verdict["reason"]
    record = _read(run, "run.json")["dataset"]
    assert record["file"] == str(foreign)
    assert record["rows"] == read_dataset(foreign).n_rows
    output = capsys.readouterr().out
    assert "CANNOT TELL" in output
    assert "data: NeoRL-2 (polixir/NeoRL2), data licensed CC-BY-4.0" in output


def test_a_log_larger_than_memory_is_streamed_to_a_verdict(here, capsys, make_log):
    """Row N09: a log that stays in its file is trained on and judged."""
    path = write_dataset(here / "log.h5", make_log(n_cost=1))
    words = [*QUICK, "--data.source", str(path), "--penalty", "cost_0", "0.5"]
    words += ["--data.held-out", "0.2"]
    loud = [word for word in words if word != "--quiet"]
    assert main(["run", *loud, "--data.memory", "1kB"]) == 0
    run = here / "runs" / "0001"
    _check_files(run, environment=False)
    assert _read(run, "run.json")["dataset"]["streamed"] is True
    assert _read(run, "verdict.json")["answer"] == "cannot tell"
    output = "".join(capsys.readouterr())
    assert "more than data.memory = 1kB; it is read from the file" in output
    assert {line["kind"] for line in read_records(run / "metrics.jsonl")} == {
        "chunk",
        "validation",
    }
    for learners, memory, message in (
        (["cal_ql"], "1kB", "CalQL needs more than single rows|cal_ql needs more than single rows"),
        ([], "much", "data.memory must be an amount such as 2GB"),
    ):
        more = ["--training.algorithms", "bc", "iql", *learners, "--data.memory", memory]
        assert main(["run", *words, *more]) == 2
        assert re.search(message, capsys.readouterr().err)
    assert len(list((here / "runs").glob("0*"))) == 1


def _columns(path, **changes):
    """A dataset file with some columns replaced, or removed where ``None``."""
    with h5py.File(path, "r+") as file:
        for name, column in changes.items():
            del file[name]
            if column is not None:
                file[name] = column


def _truncate(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


BAD = {
    "missing": (lambda path: path.unlink(), "no such file"),
    "empty": (lambda path: path.write_bytes(b""), "the file is empty"),
    "unrecognised": (
        lambda path: path.write_bytes(b"tag,value\n1,2\n"),
        "expected an HDF5 dataset",
    ),
    "truncated": (_truncate, "truncated|damaged"),
    "reward with NaN": (
        lambda path: _columns(path, reward=np.full(120, np.nan, np.float32)),
        "reward.*nan",
    ),
    "wrong shape": (
        lambda path: _columns(path, action=np.zeros((120, 3), np.float32)),
        "action.*3",
    ),
    "wrong length": (lambda path: _columns(path, reward=np.zeros(7, np.float32)), "reward"),
    "no terminated": (lambda path: _columns(path, terminated=None), "terminated"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot read it"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_log_is_one_line_and_leaves_nothing(here, capsys, make_log, kind):
    path = here / "log.h5"
    write_dataset(path, make_log())
    damage, message = BAD[kind]
    damage(path)
    assert main(["run", *QUICK, "--data.source", "log.h5"]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("neorl-train: log.h5")
    assert output.err.count("\n") == 1
    assert re.search(message, output.err), output.err
    assert not (here / "runs").exists()


def test_a_bad_archive_is_one_line(here, capsys):
    with zipfile.ZipFile(here / "log.npz", "w") as archive:
        archive.writestr("obs.npy", b"not an array")
    assert main(["run", *QUICK, "--data.source", "log.npz"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_cost_without_a_declared_penalty_is_refused(here, capsys, monkeypatch, make_log):
    """Before any pass over the log, which takes seconds on a long one."""
    write_dataset(here / "log.h5", make_log(n_cost=3))
    monkeypatch.setattr(resolution, "_limits", lambda *_: pytest.fail("the log was used"))
    words = ["run", *QUICK, "--data.source", "log.h5"]
    assert main([*words, "--penalty", "cost_0", "1", "cost_2", "0"]) == 2
    assert "penalty.cost_1 is not declared; state how much one unit" in capsys.readouterr().err
    assert main([*words, "--penalty", "cost_0", "1"]) == 2
    message = "penalty.cost_1 and penalty.cost_2 are not declared; .* 0.5 cost_2 0.5`"
    assert re.search(message, capsys.readouterr().err)
    assert not (here / "runs").exists()


def _repeating(log):
    """The second episode is the first one, and a row has another successor than the next row."""
    rows = log.transitions
    first, second = (log.episode_starts[i] + np.arange(log.episode_lengths[0]) for i in (0, 1))
    names = ("obs", "action", "reward", "next_action", "next_obs")
    columns = {name: np.array(getattr(rows, name)) for name in names}
    for column in columns.values():
        column[second] = column[first]
    columns["next_obs"][1] += 1
    return dataclasses.replace(log, transitions=rows._replace(**columns))


def test_a_log_without_a_trip_that_repeats_an_episode_is_valid_and_doubted(here, capsys, make_log):
    """Row N10: wrong successors and repeated episodes are named before anything is trained."""
    write_dataset(here / "log.h5", _repeating(make_log(n_cost=2)))
    penalty = ["--penalty", "cost_0", "1", "cost_1", "0"]
    assert main(["run", *QUICK, "--data.source", "log.h5", *penalty, "--json"]) == 0
    printed, messages = capsys.readouterr()
    assert "no row is terminated; every episode was truncated" in messages
    assert "log.h5: rows whose next_obs differs from the observation of the next row: 1" in messages
    assert "log.h5: episodes that repeat an earlier one: 1; neorl-envs inspect" in messages
    assert main(["resume", "runs/0001", "--json"]) == 0
    ended, resumed = json.loads(printed), json.loads(capsys.readouterr().out)
    assert (ended["format"], ended["status"]) == ("neorl-run-results", "finished")
    stored = _read(here / "runs" / "0001", "verdict.json")
    assert ended["verdict"] == resumed["verdict"]
    assert {**stored, **ended["verdict"]} == stored
    _check_files(here / "runs" / "0001", environment=False)


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        (1, "log.h5 has too few episodes \\(1\\): .*is cut .* by length in \\[episodes\\]"),
        (8, "of 8 episodes is 1; .* from 0.25 to 0.75"),
    ],
)
def test_a_log_that_cannot_be_split_is_refused(here, capsys, make_log, episodes, message):
    write_dataset(here / "log.h5", make_log(episodes=episodes))
    assert main(["run", *QUICK, "--data.source", "log.h5"]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (here / "runs").exists()


def test_a_run_in_use_is_not_resumed_by_another_process(here, capsys, make_log, monkeypatch):
    def stopped(*_, **__):
        raise InterruptedRunError(2, "")

    write_dataset(here / "log.h5", make_log())
    with monkeypatch.context() as patch:
        patch.setattr("neorl_train._job.stages._train_all", stopped)
        assert main(["run", *QUICK, "--data.source", "log.h5"]) == 130
    run = here / "runs" / "0001"
    with _held(run) as holder:
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        capsys.readouterr()
        assert main(["resume", "runs/0001", "--quiet"]) == 2
        assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    output = capsys.readouterr()
    wait = f"neorl-train: {run} is in use by process {holder}; wait for it or stop it\n"
    assert (output.out, output.err) == ("", wait)


@contextlib.contextmanager
def _held(run):
    """While another process, whose number this gives, holds the lock of a run."""
    program = (
        "import pathlib, sys, time\n"
        "from neorl_train.runs import RunDirectory\n"
        "from neorl_train.runs._directory import locked\n"
        "with locked(RunDirectory(pathlib.Path(sys.argv[1]))):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(3600)\n"
    )
    words = [sys.executable, "-c", program, str(run)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process.pid
        finally:
            process.kill()


def test_a_batch_of_more_rows_than_there_are_is_refused(here, capsys, make_log):
    write_dataset(here / "log.h5", make_log())  # 120 rows in 20 episodes of 6
    words = ["run", *QUICK, "--data.source", "log.h5", "--data.held-out", "0.3"]
    assert main([*words, "--algorithms.iql.steps.batch-size", "100000000"]) == 2
    output = capsys.readouterr().err
    twice, refused = output.splitlines()  # QUICK has given the option already
    assert "--algorithms.iql.steps.batch-size is given twice" in twice
    assert "a batch of iql has 100000000 rows, and there are 84 to train on; start a run" in refused
    assert not (here / "runs").exists()


def test_what_only_the_log_refuses_leaves_no_run_behind(here, capsys, monkeypatch, make_log):
    """Also where it is found out after the run directory was made, but before training."""

    def refused(*_, **__):
        raise InputError("monitors.novelty: too few episodes")

    monkeypatch.setattr("neorl_train._job.stages.fitted_watches", refused)
    write_dataset(here / "log.h5", make_log())
    assert main(["run", *QUICK, "--data.source", "log.h5"]) == 2
    output = capsys.readouterr().err.splitlines()[-1]
    assert "too few episodes; nothing was trained, and " in output
    assert output.endswith(f"{here / 'runs' / '0001'} is removed")
    assert list((here / "runs").iterdir()) == []


def test_a_full_disk_leaves_the_run_to_be_resumed(here, capsys, monkeypatch, make_log):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr("neorl_train._job.stages.fitted_watches", full)
    write_dataset(here / "log.h5", make_log())
    assert main(["run", *QUICK, "--data.source", "log.h5"]) == 2
    assert "free some space, then " in capsys.readouterr().err
    assert _read(here / "runs" / "0001", "run.json")["status"] == "interrupted"


def test_what_teaches_nothing_is_named_before_training(here, capsys, monkeypatch, make_log):
    """Actions that never move, actions beyond their range, and a reward that is always the same."""

    def stopped(*_, **__):
        raise InterruptedRunError(2, "")

    monkeypatch.setattr("neorl_train._job.stages._train_all", stopped)
    log = make_log()
    rows = log.transitions
    still = np.full_like(np.asarray(rows.action), 0.25)
    after = np.where((rows.terminated | rows.truncated)[:, None], 0, still)
    wide = {name: 1e3 * np.asarray(getattr(rows, name)) for name in ("action", "next_action")}
    flat = np.full_like(np.asarray(rows.reward), 2.0)
    collected = []
    for changed in (rows._replace(action=still, next_action=after), rows._replace(**wide)):
        write_dataset(
            here / "log.h5", dataclasses.replace(log, transitions=changed._replace(reward=flat))
        )
        assert main(["run", *QUICK, "--data.source", "log.h5"]) == 130
        collected.append(capsys.readouterr().err)
        (here / "log.h5").unlink()
    for channel in log.spec.action:
        assert f"log.h5: {channel.name} never moves: it is 0.25" in collected[0]
        assert re.search(
            rf"log.h5: {channel.name} was logged from .* beyond its range", collected[1]
        )
        assert f"{channel.name} never moves" not in collected[1]
    assert (
        "log.h5: the reward less the penalties is 2 in every row that is trained on" in collected[1]
    )
