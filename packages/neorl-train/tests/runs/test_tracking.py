"""MLflow follows what checkpoints have made permanent, once each, and harms nothing."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from importlib.util import find_spec

import pytest

from neorl_train._job.evaluation import write_results
from neorl_train.runs import (
    MlflowTracker,
    NoTracker,
    Records,
    create_run,
    file_lock,
    mlflow_installed,
)
from neorl_train.runs._tracker import MISSING

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own

CONFIG = """
[data]
source = "Line-v0"
[penalty]
heat = 0.5
[training]
algorithms = ["bc", "iql"]
[algorithms.bc]
learning_rate = 0.1
[algorithms.iql]
expectile = 0.7
"""
RECORD = {
    "id": "abc",
    "config_hash": "sha256:c",
    "execution_mode": "form",
    "dataset": {"content_hash": "sha256:d", "file": "dataset.h5", "rows": 7, "episodes": 2},
    "status": "running",
    "commit": "0123abc",
    "policies": {"bc-0.safetensors": "sha256:p"},
}


def _write(records, algorithm, seeds, steps, kind="chunk"):
    for step in steps:
        for seed in seeds:
            about = {"kind": kind, "algorithm": algorithm, "seed": seed, "step": step}
            metrics = {"loss": step / 10 + seed, "q": -float(step)}
            records.write({**about, "time": 1000.0 + step, "metrics": metrics})
    records.sync()


@pytest.fixture
def run(tmp_path):
    return create_run(tmp_path / "runs", CONFIG, RECORD)


@pytest.fixture
def records(run):
    records = Records(run.metrics)
    yield records
    records.close()


@pytest.fixture
def client(run):
    """Asks the database what it holds."""
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    from neorl_train.runs import copy_to_mlflow

    class Client:
        def copy(self):
            copy_to_mlflow(run)
            self._client = MlflowClient(f"sqlite:///{run.path.parent / 'mlflow.db'}")
            experiment = self._client.get_experiment_by_name("neorl")
            result = self._client.search_runs([experiment.experiment_id])
            return {one.info.run_name: one for one in result}

        def history(self, one, name):
            result = self._client.get_metric_history(one.info.run_id, name)
            return [(metric.step, metric.value, metric.timestamp) for metric in result]

        def artifacts(self, one):
            return [item.path for item in self._client.list_artifacts(one.info.run_id)]

    return Client()


def test_only_what_is_permanent_is_copied_and_nothing_twice(run, records, client):
    _write(records, "bc", (0, 1), (10, 20, 30))
    assert client.copy() == {}
    (run.checkpoints("bc") / "20").mkdir(parents=True)
    (run.checkpoints("bc") / "30.orbax-checkpoint-tmp").mkdir()
    result = client.copy()
    assert sorted(result) == ["0001", "0001/bc-0", "0001/bc-1"]
    parent = result["0001"].info.run_id
    for name in ("0001/bc-0", "0001/bc-1"):
        assert result[name].data.tags["mlflow.parentRunId"] == parent
    assert "mlflow.parentRunId" not in result["0001"].data.tags
    assert [s for s, _, _ in client.history(result["0001/bc-1"], "loss")] == [10, 20]
    (run.checkpoints("bc") / "30").mkdir()
    for _ in range(2):
        again = client.copy()
        assert client.history(again["0001/bc-1"], "loss") == [
            (10, 2.0, 1_010_000), (20, 3.0, 1_020_000), (30, 4.0, 1_030_000)
        ]  # fmt: skip
    assert {name: one.info.run_id for name, one in again.items()} == {
        name: one.info.run_id for name, one in result.items()
    }


def test_a_learner_that_diverged_did_not_finish(run, records, client):
    for name in ("bc", "iql"):
        _write(records, name, (0,), (10, 20))
        (run.checkpoints(name) / "20").mkdir(parents=True)
    run.policy("bc", 0).parent.mkdir()
    run.policy("bc", 0).write_bytes(b"weights")
    run.update_record(status="finished", diverged={"iql": {"error": "IQL diverged"}})
    status = {name: one.info.status for name, one in client.copy().items()}
    assert status == {"0001": "FINISHED", "0001/bc-0": "FINISHED", "0001/iql-0": "FAILED"}


def test_one_run_holds_parameters_metrics_policy_and_dataset(run, records, client):
    """Row N24: one run of MLflow holds parameters, metrics, policy and the hash of the log."""
    _write(records, "bc", (0,), (10,))
    (run.checkpoints("bc") / "10").mkdir(parents=True)
    (run.path / "policies").mkdir()
    run.policy("bc", 0).write_bytes(b"policy")
    one = client.copy()["0001/bc-0"]
    assert one.info.status == "FINISHED"
    assert one.data.params["bc.learning_rate"] == "0.1"
    assert one.data.params["penalty.heat"] == "0.5"
    assert one.data.params["algorithm"] == "bc"
    assert one.data.tags["neorl.dataset_hash"] == "sha256:d"
    assert one.data.tags["neorl.policy"] == "policies/bc-0.safetensors"
    assert one.data.tags["neorl.policy_digest"] == "sha256:p"
    assert one.data.metrics == {"loss": 1.0, "q": -10.0}
    assert client.artifacts(one) == ["bc-0.safetensors"]
    client.copy()
    assert client.artifacts(one) == ["bc-0.safetensors"]


def _finish(run, noisy):
    """Leaves what a finished run leaves."""
    write_results(run.path, noisy.evaluation, noisy.verdict)
    (run.path / "report.html").write_text("<p>report</p>")
    (run.path / "policy.bundle").mkdir()
    (run.path / "policy.bundle" / "manifest.json").write_text("{}")
    run.update_record(status="finished")


def _check_parent(parent, client, noisy):
    """The run of the job has what its users look for."""
    tables = noisy.tables
    row = tables.row(tables.candidate, guarded=True)
    assert parent.data.tags["neorl.verdict"] == noisy.verdict.answer
    assert parent.data.tags["mlflow.source.git.commit"] == "0123abc"
    assert parent.data.params["penalty.heat"] == "0.5"
    assert parent.data.metrics["gain"] == row.difference.value
    assert parent.data.metrics["gain.low"] == row.difference.low
    assert parent.data.metrics["cost.load"] == row.costs[0].total.value
    assert parent.data.metrics["trips"] == row.trips.value
    (known,) = parent.inputs.dataset_inputs
    assert (known.dataset.name, known.dataset.digest) == ("Line-v0", "d")
    assert '"rows": 7' in known.dataset.profile
    expected = ["config.toml", "evaluation.json", "policy.bundle", "report.html", "verdict.json"]
    assert sorted(client.artifacts(parent)) == expected


def test_the_run_of_the_job_holds_verdict_gain_costs_and_files(run, records, client, noisy):
    _write(records, "bc", (0,), (10,))
    (run.checkpoints("bc") / "10").mkdir(parents=True)
    _finish(run, noisy)
    for _ in range(2):
        parent = client.copy()["0001"]
        assert parent.info.status == "FINISHED"
        _check_parent(parent, client, noisy)


def test_a_lock_that_is_held_costs_a_run_no_more_than_the_last_wait(run, records, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setattr("neorl_train.runs._mlflow.PATIENCE", 0.2)
    with file_lock(run.path.parent / "mlflow.lock"):
        tracker = MlflowTracker(run, closing_seconds=900)
        tracker.follow()
        message = tracker.finish()
    assert f"in use by process {os.getpid()}" in message
    assert message.endswith(f"`neorl-train inspect {run.path} --track` writes them later")


def test_a_thread_that_never_ends_is_left(run, monkeypatch):
    waiting = threading.Event()
    pytest.importorskip("mlflow")
    monkeypatch.setattr("neorl_train.runs._mlflow.MlflowCopy", lambda _: waiting.wait(60))
    tracker = MlflowTracker(run, closing_seconds=0.1)
    message = tracker.finish()
    waiting.set()
    assert "no answer within 0.1 s" in message


def test_a_server_that_is_gone_is_named(run, records, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = MlflowTracker(run)
    tracker.follow()
    message = tracker.finish()
    assert "127.0.0.1" in message
    assert "the records are complete" in message


@pytest.fixture
def server(tmp_path, monkeypatch):
    """MLflow's own server on loopback; `hatch run mlflow-server:test` has what it needs."""
    command = os.environ.get("NEORL_MLFLOW") or shutil.which("mlflow")
    if command is None or (not os.environ.get("NEORL_MLFLOW") and find_spec("flask") is None):
        pytest.skip("MLflow's server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place, log = tmp_path / "server", tmp_path / "server.log"
    place.mkdir()
    words = [command, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{place / 'server.db'}"]
    words += ["--artifacts-destination", str(place / "artifacts")]
    with log.open("w") as output:
        process = subprocess.Popen(
            words, stdout=output, stderr=output, cwd=place, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _await(f"{address}/health", process, log)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(address, process, log):
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(1)
    pytest.fail(log.read_text()[-2000:])


@pytest.mark.nightly
def test_a_real_server_holds_a_job_and_may_die(run, records, noisy, server):
    from mlflow import MlflowClient

    tracker = MlflowTracker(run, closing_seconds=900)
    _write(records, "bc", (0, 1), (10,))
    (run.checkpoints("bc") / "10").mkdir(parents=True)
    (run.path / "policies").mkdir()
    run.policy("bc", 0).write_bytes(b"policy")
    tracker.follow()
    _write(records, "bc", (0, 1), (20,))
    (run.checkpoints("bc") / "20").mkdir()
    tracker.follow()
    _finish(run, noisy)
    assert tracker.finish() == ""
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("neorl")
    result = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert set(result) == {"0001", "0001/bc-0", "0001/bc-1"}
    history = client.get_metric_history(result["0001/bc-0"].info.run_id, "loss")
    assert [one.step for one in history] == [10, 20]

    class Files:
        def artifacts(self, one):
            return [item.path for item in client.list_artifacts(one.info.run_id)]

    _check_parent(result["0001"], Files(), noisy)
    assert result["0001"].info.status == "FINISHED"
    assert any(name.startswith("system/cpu") for name in result["0001"].data.metrics)
    assert not (run.path.parent / "mlflow.db").exists()
    os.killpg(server.pid, signal.SIGKILL)
    started = time.monotonic()
    again = MlflowTracker(run)
    again.follow()
    message = again.finish()
    assert "the records are complete" in message
    assert time.monotonic() - started < 200  # the usual retries of MLflow take over four minutes


def test_a_call_carries_at_most_a_thousand_metrics(run, records, client, monkeypatch):
    from mlflow import MlflowClient

    sizes, log_batch = [], MlflowClient.log_batch

    def counting(self, run_id, metrics=(), *rest, **options):
        sizes.append(len(metrics))
        return log_batch(self, run_id, metrics, *rest, **options)

    monkeypatch.setattr(MlflowClient, "log_batch", counting)
    _write(records, "iql", (0,), range(10, 12_510, 10))
    (run.checkpoints("iql") / "12500").mkdir(parents=True)
    one = client.copy()["0001/iql-0"]
    assert sum(sizes) == 2500
    assert max(sizes) <= 1000
    assert len(client.history(one, "q")) == 1250


@pytest.mark.nightly
def test_three_processes_start_on_an_empty_folder(tmp_path):
    program = """
        import pathlib, sys
        from neorl_train.runs import Records
        from neorl_train.runs import create_run
        from neorl_train.runs import MlflowTracker
        CONFIG, RECORD = sys.argv[2], eval(sys.argv[3])
        RECORD["id"] = sys.argv[4]
        run = create_run(pathlib.Path(sys.argv[1]), CONFIG, RECORD)
        records = Records(run.metrics)
        for step in (1, 2):
            records.write({"kind": "chunk", "algorithm": "bc", "seed": 0, "step": step,
                           "time": 1.0 * step, "metrics": {"loss": 0.5}})
            records.sync()
            (run.checkpoints("bc") / str(step)).mkdir(parents=True)
        tracker = MlflowTracker(run, closing_seconds=900)
        tracker.follow()
        said = tracker.finish()
        assert not said, said
    """
    arguments = [
        sys.executable,
        "-c",
        textwrap.dedent(program),
        str(tmp_path),
        CONFIG,
        repr(RECORD),
    ]
    processes = [
        subprocess.Popen([*arguments, name], stderr=subprocess.PIPE, text=True) for name in "abc"
    ]
    for process in processes:
        _, message = process.communicate()
        assert process.returncode == 0, message
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("neorl")
    result = client.search_runs([experiment.experiment_id])
    assert {one.data.tags["neorl.id"] for one in result} == set("abc")
    seeds = [one for one in result if "neorl.seed" in one.data.tags]
    assert len(seeds) == 3
    assert all(one.data.tags["neorl.lines"] == "2" for one in seeds)


def test_an_error_is_said_at_the_end_and_harms_nothing(run, records, monkeypatch):
    if mlflow_installed():

        def broken(_):
            raise RuntimeError(
                "database is\nlocked [SQL: SELECT 1]\n"
                "(Background on this error at: https://sqlalche.me/e/20/e3q8)"
            )

        monkeypatch.setattr("neorl_train.runs._mlflow.MlflowCopy", broken)
    tracker = MlflowTracker(run, closing_seconds=900)
    tracker.follow()
    message = tracker.finish()
    assert message.startswith("tracking stopped (")
    assert "https://" not in message
    assert not mlflow_installed() or "(database is locked)" in message
    assert message.endswith(f"`neorl-train inspect {run.path} --track` writes them later")
    assert "\n" not in message


def test_without_mlflow_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not mlflow_installed()
    assert 'pip install "./packages/neorl-train[mlflow]"' in MISSING
    assert NoTracker().finish() == ""
