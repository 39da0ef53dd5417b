"""Killed, stopped or out of disk at any moment, a run continues to the same bits."""

import io
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from neorl_agents import load_policy
from neorl_core import Channel, Spec
from neorl_core.infrastructure import publish_compiled_programs
from neorl_envs import write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_train._command.main import main
from neorl_train.runs import read_records, tree_digest

SMALL = """
[data]
source = "{log}"
[training]
algorithms = {algorithms}
seeds = [0, 1]
updates = {updates}
chunk = 20
[evaluation]
candidate = "td3_bc"
[checkpoints]
interval = 80
[output]
tracking = false
[algorithms.bc]
networks.hidden = [8]
steps.batch_size = 8
[algorithms.td3_bc]
networks.hidden = [8]
steps.batch_size = 8
"""


def _write_log(path):
    rng = np.random.default_rng(0)
    rows = 600
    obs = rng.normal(size=(rows, 3))
    channels = tuple(Channel(name, "1", -9.0, 9.0) for name in "abc")
    spec = Spec(channels, (Channel("u", "1", -1.0, 1.0),), (), dt=1.0, horizon=30)
    log = dataset_from_columns(
        spec,
        obs=obs,
        action=np.tanh(obs[:, :1]),
        reward=rng.normal(size=rows),
        next_obs=rng.normal(size=(rows, 3)),
        terminated=np.zeros(rows, bool),
        truncated=np.arange(1, rows + 1) % 30 == 0,
    )
    write_dataset(path, log)


@pytest.fixture(scope="module")
def nightly(pytestconfig):
    """Whether more is interrupted, of a longer run."""
    return pytestconfig.getoption("--nightly")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, nightly):
    """By day one learner, whose updates are many enough to be interrupted among them."""
    folder = tmp_path_factory.mktemp("interruptions")
    _write_log(folder / "log.h5")
    algorithms, updates = (["bc", "td3_bc"], 3200) if nightly else (["td3_bc"], 960)
    words = {"log": folder / "log.h5", "algorithms": algorithms, "updates": updates}
    text = SMALL.format(**words)
    if not nightly:
        text = text.partition("[algorithms.bc]")[0] + text[text.index("[algorithms.td3_bc]") :]
    (folder / "small.toml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def command(folder, nightly):
    """Runs a command to its end: by night in its own process, by day in this one.

    This one has imported everything.
    """

    def run(*words):
        if nightly:
            return _finish(_start(folder, *words))
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(folder)
            patch.setattr("neorl_train._command.main.prepare_process", lambda: None)
            assert main(list(words)) == 0, err.getvalue()
        return out.getvalue(), err.getvalue()

    return run


def _start(folder, *words, before=""):
    """The command in a process of its own, in ``folder``."""
    program = f"{before}\nimport sys\nfrom neorl_train._command.main import main\nsys.exit(main())"
    environ = {name: value for name, value in os.environ.items() if name != "HATCH_ENV_ACTIVE"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env={**environ, "PATH": f"{Path(sys.executable).parent}:{environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process, code=0):
    out, err = process.communicate()
    assert process.returncode == code, err
    return out, err


def _refused(run, capsys, *words):
    """What is said where a run is not continued; in this process, which has everything imported."""
    assert main(["resume", str(run), *words]) == 2
    return capsys.readouterr().err


def _result(run):
    """What must not depend on interruptions: policies and records, without clocks and names."""
    policies = {
        path.name: (
            tree_digest(load_policy(path).policy),
            load_policy(path).parity_actions.tobytes(),
        )
        for path in sorted((run / "policies").glob("*.safetensors"))
    }
    lines = [{**line, "time": 0} for line in read_records(run / "metrics.jsonl")]
    verdict = json.loads((run / "verdict.json").read_text())
    return policies, lines, verdict


@pytest.fixture(scope="module")
def straight(folder, command, nightly):
    """The result of an uninterrupted run."""
    command("run", "small.toml", "--output.directory", "straight", "--quiet")
    publish_compiled_programs()  # the processes that follow compile less
    result = _result(folder / "straight" / "0001")
    assert len(result[0]) == (5 if nightly else 3)  # two seeds of each learner, and the fallback
    assert len({(n["kind"], n["algorithm"], n["seed"], n["step"]) for n in result[1]}) == len(
        result[1]
    )
    return result


def _wait_for(process, happened):
    """Until it happened, or the process has ended."""
    while not happened() and process.poll() is None:
        time.sleep(0.001)


def _stop_inside_a_write(process, run, delay):
    """Stops the process while it writes a checkpoint, about ``delay`` after it began to.

    Whether it still writes is seen when it stands still: no machine is too slow for that.
    """
    while process.poll() is None:
        _wait_for(process, lambda: _writing(run))
        time.sleep(delay)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if _writing(run):
            return
        process.send_signal(signal.SIGCONT)


def _writing(run):
    return any(run.glob("checkpoints/*/*.orbax-checkpoint-tmp"))


def _size(path):
    return path.stat().st_size if path.exists() else 0


@pytest.mark.nightly
def test_a_streamed_run_is_killed_and_continues_to_the_same_bits(folder):
    """The log stays on the disk, and reading goes on at the batch of the last checkpoint."""
    memory = ["--data.memory", "1kB", "--quiet"]
    _finish(_start(folder, "run", "small.toml", "--output.directory", "whole", *memory))
    words = ["run", "small.toml", "--output.directory", "parts", *memory]
    run = folder / "parts" / "0001"
    for _ in range(3):
        begun = _size(run / "metrics.jsonl")
        process = _start(folder, *words)
        _wait_for(process, lambda b=begun: _size(run / "metrics.jsonl") not in (0, b))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the run ended before it was killed"
        words = ["resume", str(run), "--quiet"]
    _finish(_start(folder, *words))
    assert _result(run) == _result(folder / "whole" / "0001")


def test_killed_in_the_middle_of_training_it_continues_to_the_same_bits(folder, straight, command):
    """Row N26: a training that is killed goes on to the same bits."""
    run = folder / "forced" / "0001"
    process = _start(folder, "run", "small.toml", "--output.directory", "forced", "--quiet")
    _wait_for(process, lambda: any((run / "checkpoints" / "td3_bc").glob("*[0-9]")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "the run ended before it was killed"
    lines = read_records(run / "metrics.jsonl")
    steps = [line["step"] for line in lines if line["algorithm"] == "td3_bc"]
    assert 0 < max(steps) < max(line["step"] for line in straight[1])
    command("resume", str(run), "--quiet")
    assert _result(run) == straight


@pytest.mark.nightly
def test_killed_at_many_moments(folder, straight, nightly):
    rng, run = random.Random(11), folder / "killed" / "0001"
    words = ["run", "small.toml", "--output.directory", "killed", "--quiet"]
    for kill in range(20 if nightly else 2):
        begun, in_a_write = _size(run / "metrics.jsonl"), kill % 2 == 1
        if in_a_write:
            # What the kill before left would look like a write; the other half of the resumes
            # meets what a killed write leaves.
            for left in run.glob("checkpoints/*/*.orbax-checkpoint-tmp"):
                shutil.rmtree(left)
        process = _start(folder, *words)
        if in_a_write:
            _stop_inside_a_write(process, run, rng.choice([0.0, 0.004, 0.02]))
        else:
            _wait_for(process, lambda b=begun: _size(run / "metrics.jsonl") not in (0, b))
            time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the run ended before it was killed"
        assert _writing(run) or not in_a_write
        words = ["resume", str(run), "--quiet"]
    _finish(_start(folder, *words))
    assert _result(run) == straight


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_stopped_it_prints_the_line_that_continues_also_with_other_versions(
    folder, straight, command, nightly, number
):
    """Results would otherwise be of one version in the record, and of two in truth."""
    run = folder / number.name / "0001"
    process = _start(folder, "run", "small.toml", "--output.directory", number.name)
    _wait_for(process, lambda: _size(run / "metrics.jsonl") > 2000)
    process.send_signal(number)
    _, err = _finish(process, code=128 + number)
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    line = re.search(r"^(.*neorl-train|.* -m neorl_train) (resume .*)$", err, re.MULTILINE)
    assert line, err
    assert err.rstrip().endswith(line.group(0))
    record = json.loads((run / "run.json").read_text())
    now = dict(record["versions"])
    record["versions"]["neorl-train"] = "0.0.9"
    (run / "run.json").write_text(json.dumps(record))
    if nightly:
        err = _by_a_shell(f"{line.group(0)} --quiet")
    else:
        _, err = command(*shlex.split(line.group(2)), "--quiet")
    assert f"the run was started with neorl-train 0.0.9, this is {now['neorl-train']}" in err
    after = json.loads((run / "run.json").read_text())
    assert after["versions"]["neorl-train"] == "0.0.9"
    assert [one["versions"] for one in after["resumed_with"]] == [now]
    assert _result(run) == straight


def _by_a_shell(line):
    """The messages of a line as a user copies it, from another folder."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path}
    done = subprocess.run(line, shell=True, cwd="/", env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(300, marks=pytest.mark.nightly),
        9_000,
        pytest.param(40_000, marks=pytest.mark.nightly),
    ],
)
def test_a_full_disk_is_one_line_and_the_run_continues(folder, straight, size):
    before = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    words = ("run", "small.toml", "--output.directory", f"full-{size}", "--quiet")
    _, err = _finish(_start(folder, *words, before=before), code=2)
    *notes, last = err.strip().splitlines()
    assert last.startswith("neorl-train: no free disk space to write"), err
    # What was not declared, and what the log shows; the last line says which run it is.
    assert len(notes) <= 5, err
    assert "Traceback" not in err
    run = folder / f"full-{size}" / "0001"
    if (run / "run.json").exists():
        assert f"resume {run}" in last
        _finish(_start(folder, "resume", str(run), "--quiet"))
        assert _result(run) == straight


@pytest.mark.nightly
def test_a_full_disk_beside_mlflow_prints_no_traceback(folder, straight):
    """MLflow's own thread meets it first, in its database."""
    pytest.importorskip("mlflow", reason="needs the extra 'mlflow'")
    before = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    words = ("run", "small.toml", "--output.directory", "full-mlflow", "--output.tracking")
    _, err = _finish(_start(folder, *words, "--quiet", before=before), code=2)
    assert err.strip().splitlines()[-1].startswith("neorl-train: no free disk space to write"), err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 7, err
    run = folder / "full-mlflow" / "0001"
    _finish(_start(folder, "resume", str(run), "--quiet"))
    assert _result(run) == straight


@pytest.mark.nightly
def test_a_damaged_checkpoint_is_passed_over(folder, straight):
    run = folder / "damaged" / "0001"
    shutil.copytree(folder / "straight" / "0001", run)
    (run / "verdict.json").unlink()
    newest = max((run / "checkpoints" / "td3_bc").iterdir(), key=lambda path: int(path.name))
    # Of every data file: which of them holds the values, and which a leftover of writing them
    # that nothing reads, is Orbax's own affair.
    for file in newest.rglob("d/*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
    _, err = _finish(_start(folder, "resume", str(run), "--quiet"))
    assert f"checkpoint td3_bc/{newest.name} is damaged" in err
    assert _result(run) == straight


@pytest.mark.nightly
def test_a_finished_run_is_left_alone_until_a_result_is_damaged(folder, straight, nightly):
    run = folder / "finished" / "0001"
    shutil.copytree(folder / "straight" / "0001", run)
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    out, err = _finish(_start(folder, "resume", str(run)))
    assert err.splitlines() == [
        f"run {run} is finished and its results are complete; there is nothing to do"
    ]
    assert f"report: {run / 'report.html'}" in out
    assert f"neorl-deploy export {run.relative_to(folder)}" in out, out
    assert times == {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    names = ("evaluation.json", "report.html", "policies/td3_bc-1.safetensors")
    for damaged in [(name,) for name in names] if nightly else [names]:
        halves = {name: _size(run / name) // 2 for name in damaged}
        for name, half in halves.items():
            os.truncate(run / name, half)
        _finish(_start(folder, "resume", str(run), "--quiet"))
        assert all(_size(run / name) > half for name, half in halves.items())
    assert _result(run) == straight
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(["{broken\n", *lines[1:]]))
    _, err = _finish(_start(folder, "resume", str(run), "--quiet"), code=2)
    assert "metrics.jsonl" in err
    assert "line 1" in err


def test_a_changed_configuration_or_log_is_refused(folder, straight, capsys):
    run = folder / "changed" / "0001"
    shutil.copytree(folder / "straight" / "0001", run)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub("updates = .*", "updates = 6400", text))
    err = _refused(run, capsys)
    assert err.startswith("neorl-train: ")
    assert "was changed since the run began" in err
    assert err.count("\n") == 1
    (run / "verdict.json").unlink()
    other = folder / "other.h5"
    (run / "config.toml").write_text(text)
    record = json.loads((run / "run.json").read_text())
    record["dataset"]["content_hash"] = "sha256:of another log"
    (run / "run.json").write_text(json.dumps(record))
    err = _refused(run, capsys, "--quiet")
    assert "is not the log that this run was started with" in err
    assert not other.exists()
