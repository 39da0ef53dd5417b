"""The client against a server of this machine that simulates a reactor behind its controllers."""

import asyncio
import contextlib
import math
import socket
import threading
import time
from typing import Any

import asyncua
import pytest
from asyncua import ua as protocol

from neorl_deploy import DeployError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.loop import (
    ControlLoop,
    Mode,
    PlantError,
    Quality,
    SystemClock,
    tags_of,
)
from neorl_deploy.opcua import OpcUaPlant, _end

UNATTENDED = "the plant has no permit and watches no heartbeat"

ua: Any = protocol  # its classes are declared with types of the protocol
TAGS = {"LI": 1.0, "TI": 330.0, "PI": 3.0, "OP": 40.0, "SP": 300.0, "LOCKED": 1.0, "MODE": 3.0}
TAGS |= {"PERMIT": 1.0}


def free_port():
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


class Reactor:
    """A stirred tank with a valve and a jacket, on a server in a thread of its own."""

    def __init__(self):
        self.address = f"opc.tcp://127.0.0.1:{free_port()}/"
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.nodes = {}
        self.start()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(300)

    def start(self):
        self.call(self._start())

    async def _start(self):
        self.server = asyncua.Server()
        await self.server.init()
        self.server.set_endpoint(self.address)
        self.server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
        space = await self.server.register_namespace("urn:reactor")
        self.space = space
        for name, value in TAGS.items():
            await self.add(name, value)
        await self.add("BEAT", 0, ua.VariantType.Int16)
        await self.add("NAME", "tank", ua.VariantType.String)
        await self.server.start()

    async def add(self, name, value, kind=ua.VariantType.Double):
        self.nodes[name] = await self.server.nodes.objects.add_variable(
            ua.NodeId(name, self.space), name, value, kind
        )
        if name not in ("LOCKED", "LI", "TI", "PI"):
            await self.nodes[name].set_writable()

    def stop(self):
        self.call(self.server.stop())

    def set(self, name, value, status=ua.StatusCodes.Good, kind=ua.VariantType.Double, age=0.0):
        stamp = time.time() - age
        when = ua.uatypes.datetime.fromtimestamp(stamp, ua.uatypes.timezone.utc)
        data = ua.DataValue(ua.Variant(value, kind), ua.StatusCode(status), when)
        self.call(self.server.write_attribute_value(self.nodes[name].nodeid, data))

    def get(self, name):
        return self.call(self.nodes[name].read_value())

    def advance(self):
        """One control period of a first-order tank."""
        level, temperature = self.get("LI"), self.get("TI")
        level += 0.05 * ((40.0 - self.get("OP")) / 100.0)
        temperature += 0.1 * (self.get("SP") + 30.0 - temperature)
        self.set("LI", level)
        self.set("TI", temperature)
        self.set("PI", 3.0 + 0.01 * level)


@pytest.fixture(scope="module")
def reactor():
    plant = Reactor()
    yield plant
    with contextlib.suppress(Exception):
        plant.stop()
    plant.call(_end())
    plant.loop.call_soon_threadsafe(plant.loop.stop)
    plant.thread.join()
    plant.loop.close()


@pytest.fixture(scope="module")
def bundle(exported):
    return read_bundle(exported)


def tag(name):
    return f"ns=2;s={name}"


@pytest.fixture
def tags(bundle):
    inputs = [("level", "LI", "m"), ("temperature", "TI", "K"), ("pressure", "PI", "bar")]
    outputs = [("valve", "OP", "%"), ("jacket", "SP", "K")]
    return tags_of(
        {
            "bundle": f"sha256:{bundle.digest}",
            "connection": {"kind": "opcua"},
            "loop": {"heartbeat": tag("BEAT"), "unattended": UNATTENDED},
            "input": [
                {"channel": c, "tag": tag(t), "unit": u, "max_age": 60.0} for c, t, u in inputs
            ],
            "output": [
                {"channel": c, "tag": tag(t), "read_back": tag(t), "unit": u, "tolerance": 0.5}
                for c, t, u in outputs
            ],
        },
        bundle,
        "tags.toml",
    )


@pytest.fixture
def connected(reactor, tags):
    for name, value in TAGS.items():
        reactor.set(name, value)
    reactor.set("BEAT", 0, kind=ua.VariantType.Int16)
    plant = OpcUaPlant(tags, reactor.address, timeout=60.0)
    yield plant
    plant.close()


def test_values_come_with_quality_and_the_time_of_their_source(reactor, connected):
    reactor.set("TI", 331.5, ua.StatusCodes.UncertainLastUsableValue, age=7.0)
    reactor.set("PI", 2.0, ua.StatusCodes.BadSensorFailure)
    reactor.set("LI", math.nan)
    level, temperature, pressure = connected.read([tag("LI"), tag("TI"), tag("PI")])
    assert math.isnan(level.value)
    assert level.quality == Quality.GOOD
    assert (temperature.value, temperature.quality) == (331.5, Quality.UNCERTAIN)
    assert time.time() - temperature.stamp == pytest.approx(7.0, abs=3.0)
    assert pressure.quality == Quality.BAD


def test_a_value_that_a_person_has_forced_is_uncertain(reactor, connected):
    reactor.set("TI", 331.5, ua.StatusCodes.GoodLocalOverride)
    assert connected.read([tag("TI")])[0].quality == Quality.UNCERTAIN
    reactor.set("TI", 331.5)
    assert connected.read([tag("TI")])[0].quality == Quality.GOOD


def test_answers_that_are_too_few_are_a_lost_connection(connected):
    connected.read([tag("LI")])
    whole = connected._client.read_attributes

    async def cut(nodes):
        return (await whole(nodes))[:-1]

    connected._client.read_attributes = cut
    with pytest.raises(PlantError, match="1 answers for 2 tags"):
        connected.read([tag("LI"), tag("TI")])
    assert len(connected.read([tag("LI"), tag("TI")])) == 2


def test_a_write_is_of_the_nodes_type_checked_and_read_back(reactor, connected):
    """Row N29: a write over OPC UA is checked and read back."""
    assert connected.write({tag("OP"): 41.5, tag("BEAT"): 7.0}) == {}
    assert (reactor.get("OP"), reactor.get("BEAT")) == (41.5, 7)
    refused = connected.write({tag("OP"): math.nan, tag("BEAT"): 40_000.0, tag("LI"): 1.0})
    assert refused == {
        tag("OP"): "nan is not a finite number",
        tag("BEAT"): "40000 does not fit its type, Int16",
        tag("LI"): "the tag map does not write it",
    }
    assert (reactor.get("OP"), reactor.get("LI")) == (41.5, 1.0)


def test_a_locked_tag_is_refused_and_a_clamped_one_is_noticed(reactor, connected, monkeypatch):
    connected._writable = frozenset({tag("LOCKED"), tag("OP")})
    connected.read([tag("OP")])
    connected._types[tag("LOCKED")] = ua.VariantType.Double
    assert connected.write({tag("LOCKED"): 2.0}) == {tag("LOCKED"): "BadUserAccessDenied"}
    written = connected._client.write_values

    async def clamped(nodes, values, **options):
        halved = [ua.Variant(value.Value / 2, value.VariantType) for value in values]
        return await written(nodes, halved, **options)

    monkeypatch.setattr(connected._client, "write_values", clamped)
    assert connected.write({tag("OP"): 50.0}) == {tag("OP"): "it reads 25 after 50 was written"}


def test_a_dead_port_a_missing_tag_and_a_text_are_one_line(reactor, tags):
    dead = OpcUaPlant(tags, f"opc.tcp://127.0.0.1:{free_port()}", timeout=60.0)
    with pytest.raises(PlantError, match=r"^opc.tcp://127.0.0.1:\d+: ") as error:
        dead.read([tag("LI")])
    assert "\n" not in str(error.value)
    dead.close()
    for name, words in (("NONE", "has no tag 'ns=2;s=NONE'"), ("NAME", "holds no number")):
        object.__setattr__(tags.loop, "heartbeat", tag(name))
        odd = OpcUaPlant(tags, reactor.address, timeout=60.0)
        with pytest.raises(PlantError, match=words):
            odd.read([tag("LI")])
        odd.close()


def test_a_mute_server_costs_no_more_than_the_timeout(tags):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as mute:
        plant = OpcUaPlant(tags, f"opc.tcp://127.0.0.1:{mute.getsockname()[1]}", timeout=0.3)
        with pytest.raises(PlantError, match=r"no answer in 0\.3 s|imeout"):
            plant.read([tag("LI")])
        plant.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"address": "http://plant"}, "address must look like opc.tcp"),
        ({"address": "opc.tcp://10.1.2.3:4840"}, "is another machine; give security"),
        ({"address": "opc.tcp://localhost:1", "timeout": 0}, "a time above zero"),
    ],
)
def test_settings_that_would_harm_are_refused(tags, settings, words):
    with pytest.raises(DeployError, match=words):
        OpcUaPlant(tags, **settings)


def test_a_loop_controls_the_reactor_survives_its_server_and_comes_back(
    reactor, connected, tags, runtime
):
    runtime._carry, runtime._events = runtime._initial, type(runtime._events)()
    loop = ControlLoop(runtime, tags, connected, SystemClock())
    object.__setattr__(tags.loop, "late", 1.0)
    loop.ask(Mode.CLOSED_LOOP, "the test")
    for _ in range(8):
        cycle = loop.step()
        reactor.advance()
    assert cycle.mode is Mode.CLOSED_LOOP
    assert reactor.get("OP") == pytest.approx(float(cycle.decision.action[0]))
    assert reactor.get("BEAT") == loop._now.beat
    written = connected._client.write_values

    async def dying(nodes, values, **options):  # what was sent may or may not have arrived
        await written(nodes, values, **options)
        raise ConnectionError("reset by peer")

    connected._client.write_values = dying
    assert connected.session == 1
    cycle = loop.step()
    assert "reset by peer" in cycle.notes[0]
    assert not cycle.written
    reactor.stop()
    modes = [loop.step().mode for _ in range(4)]
    assert modes[0] is Mode.FALLBACK
    assert modes[-1] is Mode.MANUAL
    reactor.start()
    cycle = loop.step()
    assert connected.session == 2  # so that its mode tag is no order
    assert "the connection is back" in cycle.notes
    assert cycle.mode is Mode.MANUAL


def test_a_server_that_restarts_with_its_defaults_releases_no_stop(reactor, tags, runtime):
    runtime._carry, runtime._events = runtime._initial, type(runtime._events)()
    for name, value in TAGS.items():
        reactor.set(name, value)
    object.__setattr__(tags.loop, "late", 1.0)
    object.__setattr__(tags.loop, "mode", tag("MODE"))
    plant = OpcUaPlant(tags, reactor.address, timeout=60.0)
    loop = ControlLoop(runtime, tags, plant, SystemClock())

    def steps(count):
        cycles = []
        for _ in range(count):
            cycles.append(loop.step())
            reactor.advance()
        return cycles

    with contextlib.closing(plant):
        loop.ask(Mode.CLOSED_LOOP, "shift leader")
        assert steps(8)[-1].mode is Mode.CLOSED_LOOP
        loop.stop("operator: smoke")
        assert steps(1)[-1].mode is Mode.FALLBACK
        reactor.stop()
        assert [loop.step().mode for _ in range(3)][-1] is Mode.MANUAL
        reactor.start()
        reactor.set("MODE", 0.0)  # its default
        steps(2)
        reactor.set("MODE", 3.0)  # the panel restores what it showed
        cycles = steps(12)
    assert {cycle.mode for cycle in cycles} == {Mode.MANUAL}
    assert loop.stopped == "operator: smoke"


@pytest.fixture
def closed(reactor, tags, runtime):
    """A closed loop with a permit, a mode tag and a stop tag on the server."""
    runtime._carry, runtime._events = runtime._initial, type(runtime._events)()
    for name, value in {**TAGS, "LOCKED": 0.0}.items():
        reactor.set(name, value)
    object.__setattr__(tags.loop, "late", 1.0)
    object.__setattr__(tags.loop, "mode", tag("MODE"))
    object.__setattr__(tags.loop, "stop", tag("LOCKED"))
    object.__setattr__(tags.outputs[0], "permit", tag("PERMIT"))
    reactor.set("PERMIT", 1.0)
    plant = OpcUaPlant(tags, reactor.address, timeout=60.0)
    loop = ControlLoop(runtime, tags, plant, SystemClock())
    loop.connection = plant
    loop.ask(Mode.CLOSED_LOOP, "shift leader")
    for _ in range(8):
        cycle = loop.step()
        reactor.advance()
    assert cycle.mode is Mode.CLOSED_LOOP, cycle.reason
    yield loop
    plant.close()


@pytest.mark.parametrize(
    "status", ["BadSensorFailure", "UncertainLastUsableValue", "GoodLocalOverride"]
)
@pytest.mark.parametrize("name", ["PERMIT", "MODE", "LOCKED"])
def test_an_order_tag_of_any_quality_but_good_opens_the_loop(reactor, closed, name, status):
    valve = reactor.get("OP")
    reactor.set(
        name, 3.0 if name == "MODE" else float(name == "PERMIT"), getattr(ua.StatusCodes, status)
    )
    assert closed.step().mode is Mode.MANUAL
    assert reactor.get("OP") == valve
    reactor.set(name, 3.0 if name == "MODE" else float(name == "PERMIT"))
    assert {closed.step().mode for _ in range(8)} == {Mode.MANUAL}


@pytest.mark.parametrize("name", ["OP", "MODE", "LOCKED", "PERMIT", "BEAT"])
def test_a_node_that_vanishes_opens_the_loop_and_its_return_closes_nothing(reactor, closed, name):
    valve = reactor.get("OP")
    kept = reactor.call(reactor.nodes[name].read_data_value())
    reactor.call(reactor.server.delete_nodes([reactor.nodes[name]]))
    cycles = [closed.step() for _ in range(4)]
    assert cycles[-1].mode is Mode.MANUAL
    assert name == "BEAT" or not any("OP" in tag for cycle in cycles for tag in cycle.written)
    reactor.call(reactor.add(name, kept.Value.Value, kept.Value.VariantType))
    if name not in ("OP", "BEAT"):
        assert reactor.get("OP") == valve
    assert {closed.step().mode for _ in range(8)} == {Mode.MANUAL}


def test_a_session_that_the_server_ends_is_a_lost_connection_and_its_mode_tag_no_order(
    reactor, closed
):
    reactor.set("MODE", 2.0)
    assert closed.step().mode is Mode.ADVISORY
    for client in list(reactor.server.bserver.clients):
        reactor.call(client.processor.close())
        client.transport.close()
    reactor.set("MODE", 3.0)
    cycles = [closed.step() for _ in range(9)]
    assert closed.connection.session >= 2
    assert {cycle.mode for cycle in cycles} == {Mode.ADVISORY}


def test_the_time_zone_of_this_machine_changes_nothing(reactor, closed, monkeypatch):
    with monkeypatch.context() as patch:
        for zone in ("Asia/Kathmandu", "America/St_Johns", "UTC-14"):
            patch.setenv("TZ", zone)
            time.tzset()
            cycle = closed.step()
            reactor.advance()
            assert cycle.mode is Mode.CLOSED_LOOP
            assert not cycle.measured.faults
    time.tzset()
