"""Real processes over loopback, by Flower: the parameters of the engine inside one process."""

import contextlib
import hmac
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
import types
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from neorl_agents.learning import for_run
from neorl_core import InputError
from neorl_envs import write_dataset
from neorl_train.federation import (
    Client,
    Federation,
    FederationConfig,
    Introduction,
    federate,
    join_federation,
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
        if role == "0":  # a site that finds no server ends with an error
            await_server(address, processes[0])
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
    for name in ("vector", "site-0", "site-1", "site-2"):
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), expected)


def await_server(address, process, seconds=300):
    """Returns when the server accepts connections."""
    host, _, port = address.partition(":")
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.2)
    pytest.fail(f"the server did not begin within {seconds} s, or ended: {process.poll()}")


# The server and the sites below speak through a double of Flower: the calls of `flwr.server.server`
# in their order, without a network.

Answer = namedtuple("Answer", "parameters metrics")
FLOWER_NAMES = types.SimpleNamespace(
    NumPyClient=object,
    RpcError=ConnectionError,
    ServerConfig=lambda num_rounds: num_rounds,
    FitIns=namedtuple("FitIns", "parameters config"),
    EvaluateIns=namedtuple("EvaluateIns", "parameters config"),
    GetPropertiesIns=namedtuple("GetPropertiesIns", "config"),
    GetParametersIns=namedtuple("GetParametersIns", "config"),
    to_parameters=lambda arrays: arrays,
    to_arrays=lambda parameters: parameters,
)
IMPORTED = "neorl_train.federation._flower._flower"
START = np.asarray([0.0, -0.0, 1.0], np.float32)


class Proxy:
    """A site that adds its step to what it gets; ``rounds`` may say what else it does in one."""

    def __init__(self, name, data, step, *, key=b"", claims="", rounds=None):
        self.name, self.step, self.key, self.claims = name, np.float32(step), key, claims
        self.rounds, self.received = rounds or {}, []
        self.introduction = pack_introduction(Introduction(name, 10, data.spec, None))

    def get_properties(self, instruction, timeout, group_id):
        nonce = instruction.config["nonce"]
        proof = hmac.digest(self.key, nonce + self.introduction, "sha256")
        return types.SimpleNamespace(properties={"introduction": self.introduction, "proof": proof})

    def get_parameters(self, instruction, timeout, group_id):
        return Answer([START], {})

    def fit(self, instruction, timeout, group_id):
        round_ = instruction.config["round"]
        self.rounds.get(round_, lambda: None)()
        facts = {"site": self.claims or self.name, "round": round_, "rows": 10}
        return Answer([np.full(3, self.step)], facts)

    def evaluate(self, instruction, timeout, group_id):
        (vector,) = instruction.parameters
        self.received.append(vector)
        return Answer([], {})


class Connections(dict):
    """Flower's client manager."""

    def wait_for(self, count, timeout=None):
        return len(self) >= count

    def all(self):
        return self


def _serve(monkeypatch, connections, *, rounds=2, **options):
    """Serves with the double; returns the vector, the records and the printed lines."""

    def ask(kind, asked):
        with ThreadPoolExecutor() as pool:
            waiting = [(s, pool.submit(getattr(s, kind), i, None, 0)) for s, i in asked]
        return [(site, answer.result()) for site, answer in waiting if not answer.exception()]

    def start_server(*, config, strategy, **rest):
        vector = strategy.initialize_parameters(connections)
        for number in range(1, config + 1):
            asked = strategy.configure_fit(number, vector, connections)
            if asked:
                vector, _ = strategy.aggregate_fit(number, ask("fit", asked), [])
            asked = strategy.configure_evaluate(number, vector, connections)
            if asked:
                strategy.aggregate_evaluate(number, ask("evaluate", asked), [])

    flower = types.SimpleNamespace(**vars(FLOWER_NAMES), start_server=start_server)
    monkeypatch.setattr(IMPORTED, lambda: flower)
    settings = Federation(FederationConfig(rounds=rounds, scaling="declared", weights="equal"))
    records, lines = [], []
    vector = serve_federation(
        settings, ["north", "south"], "", watch=records.append, print_line=lines.append, **options
    )
    return vector, records, lines


@pytest.fixture
def data(sites):
    return sites["site0"]


@pytest.mark.parametrize(
    ("options", "name"),
    [({"method": "retuning"}, 'federation.method = "retuning"'), ({"rule": "gossip"}, "gossip")],
)
def test_what_needs_all_sites_in_one_process_is_refused(monkeypatch, options, name):
    monkeypatch.setattr(IMPORTED, lambda: FLOWER_NAMES)
    settings = Federation(FederationConfig(**options))
    with pytest.raises(InputError, match=f"{name}.* is not supported over Flower; run all sites"):
        serve_federation(settings, ["north", "south"], "")


def test_every_site_gets_the_result_of_the_last_round(monkeypatch, data):
    north, south = Proxy("north", data, 1), Proxy("south", data, 3)
    vector, records, lines = _serve(monkeypatch, Connections(a=south, b=north))
    np.testing.assert_array_equal(vector, START + 4)
    assert [record.shares for record in records] == [{"north": 0.5, "south": 0.5}] * 2
    for site in (north, south):
        np.testing.assert_array_equal(site.received, [vector])
    assert lines == []


def test_a_site_that_joins_ends_with_the_common_parameters_or_an_error(monkeypatch, data, learner):
    settings = Federation(FederationConfig(rounds=1, local_updates=8))
    client = Client("north", 0, for_run(learner, 8), data, settings, seed=0)
    common = client.begin(None) + np.float32(1)
    own = client.parameters

    def start_client(client, ends, **options):
        if ends == "with the result":
            config = {"settings": json.dumps(asdict(settings), sort_keys=True), "merged": b""}
            client.evaluate([common], config)
        if ends == "with the connection":
            raise ConnectionError("the other side\nis gone")

    class NumPyClient:
        def to_client(self):
            return self

    for ends in ("quietly", "with the connection", "with the result"):
        flower = types.SimpleNamespace(
            NumPyClient=NumPyClient,
            RpcError=ConnectionError,
            start_client=partial(start_client, ends=ends),
        )
        monkeypatch.setattr(IMPORTED, lambda flower=flower: flower)
        if ends == "with the result":
            join_federation(client, "")
            np.testing.assert_array_equal(client.parameters, common)
        else:
            with pytest.raises(InputError, match="before site north had the common result"):
                join_federation(client, "")
            np.testing.assert_array_equal(client.parameters, own)


def test_a_late_site_is_left_out_of_the_round_and_takes_part_again(monkeypatch, data):
    released = threading.Event()
    south = Proxy("south", data, 3, rounds={0: released.wait})
    north = Proxy("north", data, 1, rounds={1: released.set})
    vector, records, lines = _serve(
        monkeypatch, Connections(a=north, b=south), rounds=3, round_timeout=0.5
    )
    assert records[0].outcomes == {"north": "answered", "south": "late"}
    assert records[1].outcomes["north"] == "answered"
    assert records[2].outcomes == {"north": "answered", "south": "answered"}
    np.testing.assert_array_equal(south.received, [vector])
    assert lines == []


def test_a_federation_whose_sites_are_gone_is_an_error(monkeypatch, data):
    connections = Connections()
    connections |= {
        "a": Proxy("north", data, 1, rounds={1: connections.clear}),
        "b": Proxy("south", data, 3, rounds={1: connections.clear}),
    }
    error = "no round has been completed since round 2: north: dead; south: dead"
    with pytest.raises(InputError, match=error):
        _serve(monkeypatch, connections, rounds=9, round_timeout=1)


def test_a_first_round_that_no_site_answers_in_time_is_an_error(monkeypatch, data):
    released = threading.Event()
    slow = {i: partial(released.wait, 5) for i in range(2)}
    connections = Connections(
        a=Proxy("north", data, 1, rounds=slow), b=Proxy("south", data, 3, rounds=slow)
    )
    with pytest.raises(InputError, match="since round 0: north: late; south: late"):
        _serve(monkeypatch, connections, round_timeout=0.1)
    released.set()


def test_a_site_cannot_answer_under_the_name_of_another(monkeypatch, data):
    north, south = Proxy("north", data, 1), Proxy("south", data, 100, claims="north")
    vector, records, _ = _serve(monkeypatch, Connections(a=north, b=south))
    assert records[0].outcomes == {
        "north": "answered",
        "south": "refused: it answered under the name north",
    }
    np.testing.assert_array_equal(vector, START + 2)


def test_a_name_needs_its_key_and_is_not_taken_over(monkeypatch, data):
    keys = {"north": b"n" * 32, "south": b"s" * 32}

    def pair(**changes):
        return Connections(
            a=Proxy("north", data, 1, key=keys["north"], **changes),
            b=Proxy("south", data, 3, key=keys["south"]),
        )

    np.testing.assert_array_equal(_serve(monkeypatch, pair(), keys=keys)[0], START + 4)
    false = Connections(pair(), a=Proxy("north", data, 1, key=b"s" * 32))
    with pytest.raises(InputError, match="joined as north without the key of that site"):
        _serve(monkeypatch, false, keys=keys)
    with pytest.raises(InputError, match="keys has no secret of site south"):
        _serve(monkeypatch, pair(), keys={"north": b"n"})
    # A second connection under a name that is in use gets no round, whatever it would answer.
    later, second = pair(), Proxy("north", data, 100, key=keys["north"])
    later["a"].rounds = {0: lambda: later.update(c=second)}
    vector, _, lines = _serve(monkeypatch, later, keys=keys)
    np.testing.assert_array_equal(vector, START + 4)
    assert second.received == []
    assert lines == [
        "a site that joined is left out: two sites joined under the name north; give each site its "
        "own name"
    ]


def test_a_site_that_joins_again_takes_part_again(monkeypatch, data):
    connections = Connections(b=Proxy("south", data, 3))

    def leave():
        del connections["a"]
        connections["c"] = again
        raise ConnectionError

    again = Proxy("north", data, 1)
    connections["a"] = Proxy("north", data, 1, rounds={0: leave})
    _, records, lines = _serve(monkeypatch, connections)
    assert [record.outcomes["north"] for record in records] == ["dead", "answered"]
    assert len(again.received) == 1
    assert lines == []


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
    with pytest.raises(InputError, match=r"pip install \"flwr"):
        serve_federation(Federation(FederationConfig(rounds=1)), ["a", "b"], "127.0.0.1:1")
