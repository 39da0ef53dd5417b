"""Two processes on one machine train one run, and end together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from neorl_agents import load_policy
from neorl_envs import read_dataset, write_dataset
from neorl_envs.datasets import write_shards
from neorl_train._process import control

CONFIG = """
[data]
source = "{log}"
[training]
algorithms = ["bc"]
seeds = [0, 1]
updates = {updates}
chunk = 20
[checkpoints]
interval = 20
[algorithms.bc.networks]
hidden = [16, 16]
[algorithms.bc.steps]
batch_size = 32
[output]
directory = "{runs}"
tracking = false
"""


def _processes(words, count, folder, *, folders=None, **environment):
    """The command in so many processes of one device each, which find one another on loopback.

    They work in ``folders``, where these are given.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
        **({"NEORL_COORDINATOR": f"127.0.0.1:{port}"} if count > 1 else {}),
        "NEORL_PROCESSES": str(count),
        **environment,
    }
    begun = []
    for number in range(count):
        with (
            (folder / f"out-{number}").open("w") as out,
            (folder / f"err-{number}").open("w") as err,
        ):
            begun.append(
                subprocess.Popen(
                    [sys.executable, "-m", "neorl_train", *_words_of(words, number)],
                    cwd=None if folders is None else folders[number],
                    env={**shared, "NEORL_PROCESS": str(number)},
                    stdout=out,
                    stderr=err,
                )
            )
    return begun


def _words_of(words, number):
    """Those of one process: where a word is a list, each process has its own."""
    return [str(word[number] if isinstance(word, list) else word) for word in words]


def _ended(processes, folder):
    codes = [process.wait(timeout=1500) for process in processes]
    return codes, [(folder / f"err-{number}").read_text() for number in range(len(codes))]


@pytest.fixture
def configured(tmp_path, make_log):
    write_dataset(tmp_path / "log.h5", make_log(0, 40, 12))

    def write(name, updates=40):
        file = tmp_path / f"{name}.toml"
        text = CONFIG.format(log=tmp_path / "log.h5", runs=tmp_path / name, updates=updates)
        file.write_text(text)
        return file, tmp_path / name / "0001"

    return write


def _wait_for_checkpoint(run, folder):
    checkpoints, last = run / "checkpoints" / "bc", time.monotonic() + 1500
    while not (checkpoints.is_dir() and any(p.name.isdecimal() for p in checkpoints.iterdir())):
        assert time.monotonic() < last, (folder / "err-0").read_text()
        time.sleep(0.2)


def _policies(run):
    return [load_policy(run / f"policies/bc-{seed}.safetensors").policy for seed in (0, 1)]


@pytest.mark.nightly
def test_two_processes_leave_the_run_of_one(configured, tmp_path):
    runs = {}
    for name, count in (("one", 1), ("two", 2)):
        file, runs[name] = configured(name)
        codes, outputs = _ended(_processes(["run", file], count, tmp_path), tmp_path)
        assert codes == [0] * count, outputs
    for one, two in zip(_policies(runs["one"]), _policies(runs["two"]), strict=True):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    record = json.loads((runs["two"] / "run.json").read_text())
    assert record["status"] == "finished"
    assert (runs["two"] / "report.html").exists()
    assert [path.name for path in (tmp_path / "two").iterdir() if path.name.isdecimal()] == ["0001"]


@pytest.mark.nightly
def test_two_processes_pass_over_a_learner_that_diverges_also_when_they_resume(
    configured, tmp_path
):
    file, run = configured("wild")
    wild = ["--algorithms.td3-bc.critic-learning-rate", "1e30"]
    small = [
        "--algorithms.td3-bc.networks.hidden",
        "8",
        "--algorithms.td3-bc.steps.batch-size",
        "8",
    ]
    learners = ["--training.algorithms", "td3_bc", "bc"]
    codes, outputs = _ended(
        _processes(["run", file, *learners, *wild, *small], 2, tmp_path), tmp_path
    )
    assert codes == [0, 0], outputs
    assert "td3_bc is in no comparison: TD3BC diverged" in outputs[0]
    policies = [jax.tree.leaves(policy) for policy in _policies(run)]
    (run / "report.html").unlink()
    codes, outputs = _ended(_processes(["resume", run], 2, tmp_path), tmp_path)
    assert codes == [0, 0], outputs
    assert "not trained again: td3_bc is in no comparison" in outputs[0]
    for before, after in zip(policies, map(jax.tree.leaves, _policies(run)), strict=True):
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.nightly
def test_two_processes_read_their_own_parts_of_shards(configured, tmp_path):
    """A streamed manifest with a reader a process: the run of one process up to rounding."""
    write_shards(tmp_path / "log.shards.json", read_dataset(tmp_path / "log.h5"), rows=100)
    policies, streamed = [], ["--data.memory", "0", "--data.readers", "2"]
    for name, count in (("one", 1), ("two", 2)):
        file, run = configured(name)
        words = ["run", file, "--data.source", tmp_path / "log.shards.json", *streamed]
        codes, outputs = _ended(_processes(words, count, tmp_path), tmp_path)
        assert codes == [0] * count, outputs
        policies.append(_policies(run))
        assert json.loads((run / "run.json").read_text())["dataset"]["streamed"]
    for one, two in zip(*policies, strict=True):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
def test_processes_with_other_logs_train_nothing(configured, make_log, tmp_path):
    """The same name in two folders, as on two machines."""
    file, run = configured("logs")
    file.write_text(file.read_text().replace(str(tmp_path / "log.h5"), "log.h5"))
    for seed in (0, 1):
        (tmp_path / str(seed)).mkdir()
        write_dataset(tmp_path / str(seed) / "log.h5", make_log(seed, 40, 12))
    folders = [tmp_path / "0", tmp_path / "1"]
    codes, outputs = _ended(_processes(["run", file], 2, tmp_path, folders=folders), tmp_path)
    assert codes == [2, 2], outputs
    for one in outputs:
        assert "process 1 has another log than process 0; give all processes the same" in one
        assert "Traceback" not in one
    assert not (run / "policies").exists()
    assert not (run / "checkpoints" / "bc").exists()


@pytest.mark.nightly
def test_a_lost_process_leaves_a_run_that_one_process_resumes(configured, tmp_path):
    file, run = configured("lost", updates=200_000)
    processes = _processes(["run", file], 2, tmp_path)
    _wait_for_checkpoint(run, tmp_path)
    processes[1].send_signal(signal.SIGKILL)
    codes, outputs = _ended(processes, tmp_path)
    assert codes == [2, -signal.SIGKILL], outputs
    assert "another of the 2 processes was lost" in outputs[0]
    assert "resume" in outputs[0]
    assert "Traceback" not in outputs[0]
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    # One process goes on from the checkpoint; Ctrl-C ends it, for the run is long.
    (alone,) = _processes(["resume", run], 1, tmp_path)
    while "continues after update" not in (tmp_path / "err-0").read_text():
        assert alone.poll() is None, (tmp_path / "err-0").read_text()
        time.sleep(0.2)
    alone.send_signal(signal.SIGINT)
    assert alone.wait(timeout=1500) == 130


@pytest.mark.nightly
def test_a_signal_to_any_process_stops_all_with_a_checkpoint(configured, tmp_path):
    file, run = configured("stopped", updates=200_000)
    processes = _processes(["run", file], 2, tmp_path)
    _wait_for_checkpoint(run, tmp_path)
    processes[1].send_signal(signal.SIGTERM)
    codes, outputs = _ended(processes, tmp_path)
    assert codes == [128 + signal.SIGTERM] * 2, outputs
    assert f"neorl-train resume {run}" in outputs[0]
    assert "Traceback" not in "".join(outputs)
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"


@pytest.mark.nightly
def test_processes_with_other_configurations_begin_no_run(configured, tmp_path):
    file, run = configured("apart")
    other, _ = configured("other", updates=60)
    begun = _processes(["run", [file, other]], 2, tmp_path)
    codes, outputs = _ended(begun, tmp_path)
    assert codes == [2, 2], outputs
    for one in outputs:
        assert (
            "process 1 has another configuration than process 0; give all processes the same" in one
        )
        assert "Traceback" not in one
    assert not run.exists()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"NEORL_COORDINATOR": "here"}, "must be HOST:PORT or auto"),
        (
            {"NEORL_COORDINATOR": "a:1", "NEORL_PROCESSES": "x"},
            "NEORL_PROCESSES must be an integer",
        ),
        (
            {"NEORL_COORDINATOR": "a:1", "NEORL_PROCESSES": "2", "NEORL_PROCESS": "2"},
            "NEORL_PROCESS must be below NEORL_PROCESSES = 2",
        ),
    ],
)
def test_a_bad_environment_is_refused_by_name(monkeypatch, given, fault):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=fault):
        control.join_processes()


@pytest.mark.parametrize("error", [RuntimeError("Unknown backend cuda"), AssertionError()])
def test_a_kind_of_device_that_is_not_there_is_one_line(monkeypatch, error):
    def none():
        raise error

    monkeypatch.setattr(jax, "devices", none)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    with pytest.raises(ValueError, match="JAX_PLATFORMS=cuda: that device is not available"):
        control.join_processes()
