"""A bundle as a model of MLflow; MLflow itself loads it in an environment of its own."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing

import numpy as np
import pytest

from neorl_deploy import BundleError, DeployError
from neorl_deploy.mlflow_model import DATA, BundleModel, _load_pyfunc, write_mlflow_model
from neorl_deploy.runtime import LastSent

ROW = {"level": 1.0, "temperature": 330.0, "pressure": 3.0}


@pytest.fixture(scope="module")
def folder(exported, tmp_path_factory):
    return write_mlflow_model(exported, tmp_path_factory.mktemp("mlflow") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return _load_pyfunc(str(folder / DATA))


def test_rows_are_decided_as_first_steps_whatever_came_before(model, runtime):
    lost = {**ROW, "temperature": None}
    with_last_sent = {**ROW, "last_sent_valve": 40.0, "last_sent_jacket": 300.0}
    first, second, third, again = model.predict([ROW, lost, with_last_sent, ROW])
    assert first == again
    assert "fallback_used" in second["flags"]
    for row, sent in ((first, LastSent.UNKNOWN), (third, np.array([40.0, 300.0]))):
        runtime.release("the test")
        runtime.reset()
        expected = runtime.step(list(ROW.values()), sent)
        assert [row["valve"], row["jacket"]] == pytest.approx(expected.action.tolist(), rel=1e-6)
        assert row["flags"] == list(runtime.flag_names(expected.flags))
    json.dumps([first, second])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"level": 1.0}, "a row has the columns"),
        ({**ROW, "lvl": 1.0}, "'lvl'"),
        ({**ROW, "level": "high"}, "something that is not a number"),
        ("level", "a row has the columns"),
    ],
)
def test_a_row_that_is_none_is_one_line(model, row, words):
    with pytest.raises(DeployError, match=words):
        model.predict([row])
    with pytest.raises(DeployError, match="no parameters"):
        model.predict([ROW], {"temperature": 1})


def test_the_folder_holds_the_bundle_and_words_alone(command, folder, exported, bundle, tmp_path):
    files = {path.name for path in folder.rglob("*") if path.is_file()}
    assert files == {"MLmodel", "requirements.txt", *os.listdir(exported)}
    assert str(exported) not in (folder / "MLmodel").read_text()
    assert "exists already" in command.refused("mlflow", exported, "--out", folder)
    command("mlflow", exported, "--out", tmp_path / "model")
    (bundle / "weights.npz").write_bytes(b"other")
    with pytest.raises(BundleError, match=r"weights\.npz"):
        write_mlflow_model(bundle, tmp_path / "other")
    with pytest.raises(BundleError, match=r"weights\.npz"):
        _load_pyfunc(str(bundle))


@pytest.mark.parametrize("failing", ["shutil.copytree", "_description"])
def test_a_full_disk_leaves_no_part_of_the_folder(exported, tmp_path, monkeypatch, failing):
    full = OSError(errno.ENOSPC, "No space left on device")
    several = shutil.Error([("policy.npz", "model/policy.npz", str(full))])

    def stopped(*_, **__):
        raise several if failing == "shutil.copytree" else full

    monkeypatch.setattr(f"neorl_deploy.mlflow_model.{failing}", stopped)
    with pytest.raises(DeployError, match=r"cannot write .*model: .*No space left on device$"):
        write_mlflow_model(exported, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # what MLflow and its database warn of one another
def test_mlflow_registers_loads_and_serves_it(folder, model, tmp_path, monkeypatch):
    """``hatch run mlflow-model:test``: the workspace's own environment has no pandas."""
    pytest.importorskip("pandas", reason="MLflow loads models with pandas (mlflow-model:test)")
    import mlflow
    import pandas as pd

    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    client = mlflow.MlflowClient()
    client.create_registered_model("line2")
    for alias in ("champion", "challenger"):
        version = client.create_model_version("line2", source=folder.as_uri())
        client.set_registered_model_alias("line2", alias, version.version)
    loaded = mlflow.pyfunc.load_model("models:/line2@champion")
    frame = pd.DataFrame([ROW])
    assert loaded.predict(frame) == model.predict([ROW])
    assert isinstance(loaded._model_impl, BundleModel)
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(folder)]
    command += ["--env-manager", "local", "--port", str(port)]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    with subprocess.Popen(command, env={**os.environ, "PATH": path}) as server:
        try:
            body = json.dumps({"dataframe_records": [{**ROW, "temperature": None}]}).encode()
            answer = asked(f"http://127.0.0.1:{port}/invocations", body)
            assert answer["predictions"] == model.predict([{**ROW, "temperature": None}])
            assert "fallback_used" in answer["predictions"][0]["flags"]
        finally:
            server.terminate()


def asked(address, body):
    """The answer, once the server has started: on a busy machine MLflow alone takes a minute."""
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    for _ in range(600):
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read()) from error
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    raise AssertionError("the server did not answer in five minutes")
