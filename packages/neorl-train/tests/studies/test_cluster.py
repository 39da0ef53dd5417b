"""A sweep over a Ray cluster of two nodes; `hatch run cluster:test` has what it needs."""

import json
import subprocess
import sys

import pytest

from neorl_envs import write_dataset
from neorl_train._command.main import main

pytestmark = pytest.mark.nightly

SWEEP = """
[grid]
training.algorithms = ["bc", "iql"]
[data]
source = "log.h5"
[training]
seeds = [0]
updates = 40
chunk = 20
[checkpoints]
interval = 20
[output]
tracking = false
"""

# The nodes have the address of this machine in its network, which the test process may not open.
# Each node has one core, so the second run goes to the other node while the first one trains.
TWO_NODES = """
from pathlib import Path
from ray.cluster_utils import Cluster
from neorl_train._command.main import main
from neorl_train.studies import _sweep

here, prepared_cell = Path.cwd(), _sweep._prepare_cell

def noting_its_node(*job):
    import ray

    (here / f"{ray.get_runtime_context().get_node_id()}.node").touch()
    return prepared_cell(*job)

_sweep._prepare_cell = noting_its_node
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
try:
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    code = main(["sweep", "sweep.toml", "--output", "runs", "--cluster", cluster.address])
finally:
    cluster.shutdown()
raise SystemExit(code)
"""


@pytest.fixture
def here(tmp_path, monkeypatch, make_log):
    pytest.importorskip("ray", reason="Ray is not installed")
    write_dataset(tmp_path / "log.h5", make_log(0, 40, 12))
    (tmp_path / "sweep.toml").write_text(SWEEP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_runs_of_a_grid_are_spread_over_two_nodes(here):
    words = [sys.executable, "-c", TWO_NODES]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=1500, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "failed runs: 0" in ended.stdout
    rows = json.loads((here / "runs" / "table.json").read_text())["rows"]
    assert {row["policy"] for row in rows if row["role"] == "learner"} == {"bc", "iql"}
    assert len(list(here.glob("*.node"))) == 2, "both nodes trained"


def test_a_cluster_that_is_not_there_is_named(here, capsys):
    assert main(["sweep", "sweep.toml", "--cluster", "127.0.0.1:1"]) == 2
    assert "cannot be reached" in capsys.readouterr().err
