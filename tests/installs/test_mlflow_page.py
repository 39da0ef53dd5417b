"""The script that opens the recorded runs in the MLflow page, in the environment it installs."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_envs import write_dataset
from neorl_envs.datasets import dataset_from_columns

LITTLE = (
    "--training.algorithms=bc",
    "--training.seeds=0",
    "--training.updates=40",
    "--training.chunk=20",
    "--evaluation.candidate=bc",
    "--checkpoints.interval=20",
    "--algorithms.bc.networks.hidden=8",
    "--algorithms.bc.steps.batch-size=8",
)


def write_log(path: Path) -> None:
    rng, rows = np.random.default_rng(0), 400
    channel = Channel("a", "1", -9.0, 9.0)
    log = dataset_from_columns(
        Spec((channel,), (Channel("u", "1", -1.0, 1.0),), (), dt=1.0, horizon=20),
        obs=rng.normal(size=(rows, 1)),
        action=rng.uniform(-1, 1, size=(rows, 1)),
        reward=rng.normal(size=rows),
        next_obs=rng.normal(size=(rows, 1)),
        terminated=np.zeros(rows, bool),
        truncated=np.arange(1, rows + 1) % 20 == 0,
    )
    write_dataset(path, log)


def answer(address: str, question: dict[str, Any] | None = None) -> str:
    data = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as result:
        return result.read().decode()


def first_answer(address: str, process: subprocess.Popen, output: Path) -> str:
    """Of a server that is being installed and started."""
    end = time.monotonic() + 400
    while time.monotonic() < end and process.poll() is None:
        try:
            return answer(address)
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no page at {address}:\n{output.read_text()}")


def stop(server: subprocess.Popen) -> None:
    """Ends a process and all that it started."""
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(60)
    with contextlib.suppress(ProcessLookupError):
        for _ in range(100):
            os.killpg(server.pid, 0)
            time.sleep(0.1)
        os.killpg(server.pid, signal.SIGKILL)


@pytest.mark.nightly
def test_the_page_shows_a_recorded_run(
    hatch: str, variables: dict[str, str], clone: Path, tmp_path: Path
) -> None:
    write_log(tmp_path / "log.h5")
    train = [str(Path(sys.executable).with_name("neorl-train")), "run", "--quiet", *LITTLE]
    subprocess.run([*train, f"--data.source={tmp_path / 'log.h5'}"], cwd=clone, check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page, output = f"http://127.0.0.1:{port}", tmp_path / "said.txt"
    command = [hatch, "run", "mlflow-ui:open", "--port", str(port)]
    with output.open("w") as raised:
        server = subprocess.Popen(
            command, cwd=clone, env=variables, stdout=raised, stderr=raised, start_new_session=True
        )
    try:
        assert "<title>MLflow</title>" in first_answer(page, server, output)
        api = f"{page}/api/2.0/mlflow"
        named = answer(f"{api}/experiments/get-by-name?experiment_name=neorl")
        experiment = json.loads(named)["experiment"]["experiment_id"]
        result = json.loads(answer(f"{api}/runs/search", {"experiment_ids": [experiment]}))
        names = sorted(run["info"]["run_name"] for run in result["runs"])
        assert names == ["0001", "0001/bc-0"]  # the job, and its seed nested
    finally:
        stop(server)
