"""MLflow follows what checkpoints have made permanent, once each, and harms nothing."""

import subprocess
import sys
import textwrap

import pytest

from neorl_train.runs import MlflowTracker, NoTracker, Records, create_run
from neorl_train.runs._tracker import MISSING, mlflow_installed

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
    "dataset": {"content_hash": "sha256:d"},
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

    from neorl_train.runs._mlflow import copy_to_mlflow

    class Client:
        def copy(self):
            copy_to_mlflow(run)
            self._client = MlflowClient(f"sqlite:///{run.path.parent / 'mlflow.db'}")
            experiment = self._client.get_experiment_by_name("neorl")
            found = self._client.search_runs([experiment.experiment_id])
            return {one.info.run_name: one for one in found}

        def history(self, one, name):
            found = self._client.get_metric_history(one.info.run_id, name)
            return [(metric.step, metric.value, metric.timestamp) for metric in found]

        def artifacts(self, one):
            return [item.path for item in self._client.list_artifacts(one.info.run_id)]

    return Client()


@pytest.mark.slow
def test_only_what_is_permanent_is_copied_and_nothing_twice(run, records, client):
    _write(records, "bc", (0, 1), (10, 20, 30))
    assert client.copy() == {}
    (run.checkpoints("bc") / "20").mkdir(parents=True)
    (run.checkpoints("bc") / "30.orbax-checkpoint-tmp").mkdir()
    found = client.copy()
    assert sorted(found) == ["0001/bc-0", "0001/bc-1"]
    assert [s for s, _, _ in client.history(found["0001/bc-1"], "loss")] == [10, 20]
    (run.checkpoints("bc") / "30").mkdir()
    for _ in range(2):
        again = client.copy()
        assert client.history(again["0001/bc-1"], "loss") == [
            (10, 2.0, 1_010_000), (20, 3.0, 1_020_000), (30, 4.0, 1_030_000)
        ]  # fmt: skip
    assert {name: one.info.run_id for name, one in again.items()} == {
        name: one.info.run_id for name, one in found.items()
    }


@pytest.mark.slow
def test_one_run_holds_parameters_metrics_policy_and_dataset(run, records, client):
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        tracker = MlflowTracker(run)
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
        _, said = process.communicate()
        assert process.returncode == 0, said
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("neorl")
    found = client.search_runs([experiment.experiment_id])
    assert {one.data.tags["neorl.id"] for one in found} == set("abc")
    assert all(one.data.tags["neorl.lines"] == "2" for one in found)


def test_an_error_is_said_at_the_end_and_harms_nothing(run, records, monkeypatch):
    if mlflow_installed():

        def broken(_):
            raise RuntimeError(
                "database is\nlocked [SQL: SELECT 1]\n"
                "(Background on this error at: https://sqlalche.me/e/20/e3q8)"
            )

        monkeypatch.setattr("neorl_train.runs._mlflow.MlflowCopy", broken)
    tracker = MlflowTracker(run)
    tracker.follow()
    said = tracker.finish()
    assert said.startswith("tracking stopped (")
    assert "https://" not in said
    assert not mlflow_installed() or "(database is locked)" in said
    assert said.endswith(f"`neorl-train track {run.path}` writes them later")
    assert "\n" not in said


def test_without_mlflow_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not mlflow_installed()
    assert "pip install 'neorl-train[mlflow]'" in MISSING
    assert NoTracker().finish() == ""
