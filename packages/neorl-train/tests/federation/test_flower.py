"""Real processes over loopback, by Flower: the parameters of the engine inside one process."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import write_dataset
from neorl_train.federation import (
    Federation,
    FederationConfig,
    Introduction,
    federate,
    serve_federation,
)
from neorl_train.federation._messages import (
    pack_introduction,
    pack_statistics,
    unpack_introduction,
    unpack_statistics,
)

HERE = Path(__file__).parent
FLOWER = importlib.util.find_spec("flwr") is not None


@pytest.mark.nightly
@pytest.mark.skipif(not FLOWER, reason="Flower is not in this environment: hatch run flower:test")
def test_processes_over_loopback_come_to_the_parameters_of_the_engine(tmp_path, make_log):
    sys.path.insert(0, str(HERE))
    try:
        import flower_site as site
    finally:
        sys.path.remove(str(HERE))
    write_dataset(tmp_path / "log.h5", make_log(n_cost=0))
    sites = {name: site.data(tmp_path, i) for i, name in enumerate(site.NAMES)}
    expected = federate(site.learner(), sites, site.SETTINGS, seed=0).parameters["north"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    quiet = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "JAX_PLATFORMS": "cpu"}
    roles, processes = ("server", "0", "1", "2"), []
    for role in roles:
        with (tmp_path / f"{role}.txt").open("w") as output:
            command = [sys.executable, str(HERE / "flower_site.py"), role, str(tmp_path), address]
            processes.append(
                subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=quiet)
            )
    try:
        codes = [process.wait(timeout=500) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    texts = [(tmp_path / f"{role}.txt").read_text() for role in roles]
    assert codes == [0, 0, 0, 0], texts
    assert texts[0].count("outcomes ['answered', 'answered', 'answered']") == 4
    np.testing.assert_array_equal(np.load(tmp_path / "vector.npy"), expected)


def test_introductions_and_statistics_survive_the_way_over_the_wire(sites):
    data = sites["site0"]
    one = Introduction("north", data.n_rows, data.spec, data.statistics)
    again = unpack_introduction(pack_introduction(one))
    assert again[:3] == one[:3]
    for ours, theirs in zip(again.statistics, one.statistics, strict=True):
        assert (ours is None) == (theirs is None)
        for a, b in zip(ours or (), theirs or (), strict=True):
            np.testing.assert_array_equal(a, b)
    assert unpack_statistics(pack_statistics(None)) is None
    assert unpack_introduction(pack_introduction(one._replace(statistics=None)))[3] is None


@pytest.mark.skipif(FLOWER, reason="Flower is in this environment")
def test_without_flower_one_line_says_how_to_get_it():
    with pytest.raises(InputError, match=r"pip install neorl-train \"flwr"):
        serve_federation(Federation(FederationConfig(rounds=1)), ["a", "b"], "127.0.0.1:1")
