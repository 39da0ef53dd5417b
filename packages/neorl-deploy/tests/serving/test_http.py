"""A server of this machine, asked over its port: the protocol, the limits, the end."""

import concurrent.futures
import contextlib
import http.client
import json
import socket
import threading
import time

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from neorl_deploy import DeployError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.runtime import LastSent, Runtime
from neorl_deploy.serving import ServingLimits, serve_http
from neorl_deploy.serving import _server as servers
from neorl_deploy.serving._limits import Bucket, read_token
from neorl_deploy.serving._server import make_server

TOKEN = "a-token-of-thirty-two-characters"
MIDDLE = [1.0, 330.0, 3.0]
PATH = "/v2/models/policy/infer"


class Served:
    """A running server and its one client."""

    def __init__(self, runtime, **limits):
        with contextlib.closing(socket.socket()) as held:
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
        bounds = ServingLimits(**{"token": TOKEN, "rate": 1e6, "burst": 1000, **limits})
        self.server = make_server(
            runtime, host="127.0.0.1", port=self.port, name="policy", limits=bounds
        )
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def ask(self, method, path, body=None, token=TOKEN):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with contextlib.closing(client):
            client.request(method, path, body, headers)
            response = client.getresponse()
            return response.status, response.read()

    def infer(self, inputs, **more):
        body = inputs if isinstance(inputs, bytes) else json.dumps({"inputs": inputs, **more})
        status, answer = self.ask("POST", PATH, body)
        return status, json.loads(answer)

    def end(self):
        self.server.should_exit = True
        self.thread.join(10)


@pytest.fixture(scope="module")
def served(runtime):
    running = Served(runtime)
    yield running
    running.end()


def tensor(name, data, datatype="FP32"):
    return {"name": name, "datatype": datatype, "shape": [1, len(data)], "data": data}


def outputs(answer):
    return {one["name"]: one["data"] for one in answer["outputs"]}


def test_health_readiness_and_description(served, runtime):
    """Row N30: a server says that it lives and is ready."""
    for path in ("/health", "/ready", "/v2/health/live", "/v2/health/ready"):
        assert served.ask("GET", path, token="")[0] == 200
    assert json.loads(served.ask("GET", "/v2")[1])["name"] == "neorl-deploy"
    description = json.loads(served.ask("GET", "/v2/models/policy")[1])
    assert description["versions"] == [runtime.bundle.digest]
    assert description["parameters"]["channels"]["obs"][1]["unit"] == "K"
    assert description["parameters"]["flags"] == dict(runtime.manifest.flags)
    monitors = enumerate(runtime.manifest.monitors)
    assert description["parameters"]["alarms"] == {name: 1 << bit for bit, name in monitors}
    assert {one["name"] for one in description["outputs"]} >= {"action", "flags", "carry"}
    assert served.ask("GET", "/v2/models/other")[0] == 404


def test_a_sequence_over_http_is_that_of_the_runtime_to_the_bit(served, runtime):
    rng, carry, sent = np.random.default_rng(0), None, [None, None]
    rows: list[list[float | None]] = [
        [float(np.float32(v + rng.normal() / 100)) for v in MIDDLE] for _ in range(12)
    ]
    rows[6][1] = None  # a lost measurement
    answers = []
    for row in rows:
        inputs = [tensor("obs", row), tensor("last_sent", sent)]
        inputs += [] if carry is None else [tensor("carry", carry, "UINT32")]
        status, answer = served.infer(inputs, id="7")
        assert (status, answer["id"]) == (200, "7")
        answered = outputs(answer)
        carry, sent = answered["carry"], answered["action"]
        answers.append(answered)
    runtime.restore_words(served_fresh(served))
    last = LastSent.UNKNOWN
    for row, answered in zip(rows, answers, strict=True):
        decision = runtime.step(np.array([np.nan if v is None else v for v in row]), last)
        last = decision.action
        assert np.array(answered["action"], np.float32).tobytes() == decision.action.tobytes()
        assert answered["flags"] == [decision.flags]
    names = runtime.flag_names(answers[6]["flags"][0])
    assert "fallback_used" in names


def served_fresh(served):
    return served.server.config.app.state.model._fresh


def test_the_form_for_numpy_alone_answers_too(served, exported):
    alone = Served(Runtime(read_bundle(exported), "numpy"))
    try:
        answers = [one.infer([tensor("obs", MIDDLE)])[1] for one in (alone, served)]
    finally:
        alone.end()
    mine, compiled = map(outputs, answers)
    np.testing.assert_allclose(mine["action"], compiled["action"], rtol=1e-5)
    assert mine["flags"] == compiled["flags"]


def test_clients_do_not_feel_one_another(served):
    alone = served.infer([tensor("obs", MIDDLE)])[1]
    rows = [[1.0 + i / 100, 330.0, 3.0] for i in range(24)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda row: served.infer([tensor("obs", row)])[1], rows))
    assert outputs(together[0]) == outputs(alone)
    assert together == [served.infer([tensor("obs", row)])[1] for row in rows]


BAD = {
    "no JSON": (b"{", "not valid JSON"),
    "NaN": (b'{"inputs": [NaN]}', "NaN is not a JSON number"),
    "a list": (b"[]", "an object with a list of inputs"),
    "no obs": ([tensor("last_sent", [1.0, 2.0])], "obs is missing"),
    "unknown": ([tensor("obs", MIDDLE), tensor("weights", [1.0])], "'weights' is unknown"),
    "twice": ([tensor("obs", MIDDLE), tensor("obs", MIDDLE)], "given twice"),
    "narrow": ([tensor("obs", [1.0])], "obs must have the shape [1, 3], got [1, 1]"),
    "a text": ([tensor("obs", [1.0, "2", 3.0])], "obs must hold numbers, with null"),
    "a huge integer": ([tensor("obs", [1.0, 10**400, 3.0])], "no float can represent"),
    "a list for a name": ([{**tensor("obs", MIDDLE), "name": ["obs"]}], "['obs'] is unknown"),
    "an object for a name": ([{**tensor("obs", MIDDLE), "name": {}}], "{} is unknown"),
    "a flag": ([tensor("obs", [1.0, True, 3.0])], "obs must hold numbers"),
    "another type": ([tensor("obs", MIDDLE, "FP64")], "obs must be FP32, got 'FP64'"),
    "another carry": (
        [tensor("obs", MIDDLE), tensor("carry", [1], "UINT32")],
        "carry must have the shape",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_request_that_does_not_fit_is_one_line(served, case):
    given, words = BAD[case]
    status, answer = served.infer(given)
    assert status == 422
    assert words in answer["error"]
    assert "\n" not in answer["error"]


def test_without_the_token_nothing_is_told(served):
    body = json.dumps({"inputs": [tensor("obs", MIDDLE)]})
    for token in ("", "wrong", TOKEN[:-1], f"{TOKEN}x"):
        assert served.ask("POST", PATH, body, token)[0] == 401
        assert served.ask("GET", "/metrics", token=token)[0] == 401


def test_a_request_that_is_too_large_is_refused_whatever_it_says_of_itself(served):
    assert served.infer(b"x" * 70_000)[0] == 413
    client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=300)
    headers = {"Authorization": f"Bearer {TOKEN}", "Transfer-Encoding": "chunked"}
    chunks = iter([b"x" * 40_000, b"x" * 40_000])
    with contextlib.closing(client):
        client.request("POST", PATH, chunks, headers, encode_chunked=True)
        assert client.getresponse().status == 413


def test_metrics_are_those_of_prometheus(served):
    """Row N30: its metrics are text of Prometheus."""

    def counted():
        text = served.ask("GET", "/metrics")[1].decode()
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    before = counted()
    served.infer([tensor("obs", [1.0, None, 3.0])])
    after = counted()
    used = ("neorl_decision_flags_total", "fallback_used")
    assert after[used] == before.get(used, 0) + 1
    assert after[("neorl_decision_seconds_count",)] == before[("neorl_decision_seconds_count",)] + 1
    assert after[("neorl_requests_total", "200")] >= before[("neorl_requests_total", "200")] + 2


def test_the_rate_is_limited_and_the_end_is_announced_and_graceful(runtime):
    running = Served(runtime, rate=1e-3, burst=3)
    statuses = [running.infer([tensor("obs", MIDDLE)])[0] for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    assert running.ask("GET", "/health")[0] == 200  # a supervisor is never turned away
    running.end()
    assert not running.thread.is_alive()
    assert running.server.config.app.state.ready is False


def test_half_requests_turn_no_supervisor_away(served):
    """64 connections that send half a header, and 64 that send half a body."""
    body = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    for half in ("GET /rea", f"{body}Content-Length: 1000\r\n\r\n{{"):
        with contextlib.ExitStack() as stack:
            held = [
                stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 30))
                for _ in range(64)
            ]
            for one in held:
                one.sendall(half.encode())
            for path in ("/ready", "/health"):
                assert served.ask("GET", path, token="")[0] == 200
            time.sleep(2 * servers.BURST)
            assert served.ask("GET", "/ready", token="")[0] == 200
            until = time.monotonic() + 60
            while served.server.server_state.connections and time.monotonic() < until:
                time.sleep(0.05)
            assert not served.server.server_state.connections


def test_a_client_keeps_only_so_many_connections_that_wait(served):
    with contextlib.ExitStack() as stack:
        for wave in range(4):
            for _ in range(servers.WAITING):
                stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 30))
            assert served.ask("GET", "/health", token="")[0] == 200
            if wave % 2:
                time.sleep(1.2 * servers.BURST)
        assert served.ask("GET", "/health", token="")[0] == 200
        assert len(served.server.server_state.connections) <= 2 * servers.WAITING + 1


def test_a_second_half_request_on_a_connection_is_not_awaited_for_ever(served):
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), 60) as client:
        client.sendall(whole)
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        client.sendall(whole[:-2])
        began = time.monotonic()
        while client.recv(4096):  # what is left of the first response, then the end
            pass
        assert time.monotonic() - began > servers.ARRIVAL / 2


def test_a_name_that_was_not_declared_is_refused(runtime):
    """A page in a browser reaches this machine by a name that it controls."""
    running = Served(runtime, names=("Plant-7.example",))

    def status(host):
        with socket.create_connection(("127.0.0.1", running.port), 30) as client:
            client.sendall(f"GET /ready HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            return int(client.recv(4096).split()[1])

    try:
        for host in ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "10.0.0.7"):
            assert status(host) == 200
        assert status("plant-7.EXAMPLE:8000") == 200
        for host in ("evil.example", "localhost.evil.example", "evil.example:8000", "[::1", "@"):
            assert status(host) == 421
    finally:
        running.end()


def test_a_request_that_has_begun_is_finished_at_the_end_and_no_other_begins(runtime):
    running = Served(runtime)
    body = json.dumps({"inputs": [tensor("obs", MIDDLE)]}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    with socket.create_connection(("127.0.0.1", running.port), 30) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        while not running.server.server_state.tasks:
            time.sleep(0.01)
        running.server.should_exit = True
        while running.server.servers[0].is_serving():
            time.sleep(0.01)
        assert running.server.config.app.state.ready is False
        with pytest.raises(OSError, match="refused"):
            running.ask("GET", "/ready")
        client.sendall(body[5:])
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")
    running.thread.join(10)
    assert not running.thread.is_alive()


def test_a_bucket_fills_with_time():
    now = [0.0]
    bucket = Bucket(2.0, 3, lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_a_token_that_is_none_and_an_open_door_are_refused(command, runtime, tmp_path, exported):
    path = tmp_path / "token"
    with pytest.raises(DeployError, match="cannot read the token"):
        read_token(path)
    path.write_text(TOKEN)
    path.chmod(0o644)
    with pytest.raises(DeployError, match="others can read the token"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    path.write_text("short")
    with pytest.raises(DeployError, match="at least 20 ASCII characters without spaces"):
        read_token(path)
    with pytest.raises(DeployError, match="can be reached from other machines"):
        serve_http(runtime, host="0.0.0.0")
    assert "require a token" in command.refused("http", exported, "--host", "0.0.0.0")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeployError, match=f"cannot listen on 127.0.0.1:{port}"):
            serve_http(runtime, port=port)
