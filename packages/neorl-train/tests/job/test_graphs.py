"""Runs with graph networks: a plant's declared graph comes with the plant, networks by name."""

import itertools
import json

import pytest

from neorl_agents.networks import graph_layout
from neorl_core import InputError
from neorl_envs import make
from neorl_train import configure
from neorl_train._command.main import main
from neorl_train._job.resolution import resolve

PLANT = "SupplyChain-v0"


def settings(**networks):
    return configure(
        data={"source": PLANT},
        training={"algorithms": ["iql", "bc"]},
        algorithms={"iql": {"networks": {"kind": "gcn", **networks}}},
    )


def test_a_declared_graph_is_taken_from_the_plant_where_networks_read_graphs():
    config = resolve(settings()).run.config
    assert config.algorithms.iql.networks.graph == make(PLANT).graph
    assert config.algorithms.bc.networks.graph == ()  # a perceptron reads no graph
    given = ("stock_1 = shop1.stock", "order_2_to_1 = shop1.order")
    assert resolve(settings(graph=given)).run.config.algorithms.iql.networks.graph == given


@pytest.mark.parametrize("name", ["PowerGrid-v0", PLANT])
def test_the_declared_graphs_hold_every_channel(name):
    """No channel is left to the whole plant, every action has its place, every node an edge."""
    plant = make(name)
    layout = graph_layout(plant.spec, plant.graph)
    assert layout.shared == ()
    assert layout.other_actions == ()
    joined = {*layout.senders, *layout.receivers}
    assert joined == set(range(layout.n_nodes))
    ends = set(zip(layout.senders, layout.receivers, strict=True))
    assert {(b, a) for a, b in ends} == ends  # each way has its way back


def test_a_graph_that_names_no_channel_is_one_line_and_leaves_nothing(tmp_path, capsys):
    words = [
        "run", "--data.source", PLANT, "--training.algorithms", "iql", "--data.steps", "200",
        "--algorithms.iql.networks.kind", "gcn",
        "--algorithms.iql.networks.graph", "stock_9 = store1.stock",
        "--output.directory", str(tmp_path / "runs"), "--quiet",
    ]  # fmt: skip
    assert main(words) == 2
    assert "unknown channel in networks.graph 'stock_9'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    with pytest.raises(InputError, match="unknown channel in networks"):
        graph_layout(make(PLANT).spec, ("stock_9 = store1.stock",))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [PLANT, "LoadBalance-v0", "SwingNetwork-v0"])
def test_a_graph_policy_of_a_named_plant_comes_to_a_verdict(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "run", "--data.source", name, "--training.algorithms", "bc", "--data.steps", "1600",
        "--data.held-out", "0.25",
        "--training.seeds", "0", "--training.updates", "20", "--training.chunk", "10",
        "--checkpoints.interval", "10", "--algorithms.bc.networks.kind", "gat",
        "--algorithms.bc.networks.hidden", "8", "--algorithms.bc.steps.batch-size", "16",
        "--evaluation.starts", "4", "--output.no-tracking", "--quiet",
    ]  # fmt: skip
    if name != PLANT:  # no file can hold the controllers of the others, so another fallback is due
        held = [(c.name, f"{(c.low + c.high) / 2}") for c in make(name).spec.action]
        words += ["--fallback.kind", "constant", "--fallback.values", *itertools.chain(*held)]
    assert main(words) in (0, 3)  # a verdict, which may be not to deploy
    run = tmp_path / "runs" / "0001"
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert (run / "policies" / "bc-0.safetensors").exists()
