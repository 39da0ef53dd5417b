"""A loop, a real server and the block: whatever fails, the plant has its actuators again.

Every fault is injected over OPC UA and over Modbus.
"""

import asyncio
import contextlib
import socket
import struct
import threading
import time
import tomllib

import pytest
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from neorl_deploy._command.main import main
from neorl_deploy._simulated import OpcUaServer, SimulatedPlant, simulated_tags
from neorl_deploy.bundle import read_bundle
from neorl_deploy.loop import (
    BlockReason,
    ControlLoop,
    Instant,
    Mode,
    audit_log,
    read_tags,
    tags_of,
    unchecked,
)
from neorl_deploy.modbus import ModbusPlant
from neorl_deploy.opcua import OpcUaPlant

SCANS = 4  # of the plant's controller in a period of the loop
PATIENCE = 6  # scans: a period and a half
LOOKS = 3  # sleeps of a check from which on a person is asked to move an actuator


HOLDING = 3
CONNECTIONS = {"opcua": OpcUaPlant, "modbus": ModbusPlant}


class ModbusServer:
    """The tags of a simulated plant as holding registers of pymodbus' own server."""

    kind = "modbus"

    def __init__(self, port):
        self.address, self._port = f"tcp://127.0.0.1:{port}", port
        self._layout, self._end = {}, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def tag(self, name):
        first, form = self._layout[name]
        return f"holding:{first}:{'float64' if form == 'd' else 'int16'}"

    def start(self, tags):
        self._end = 0
        for name, tag in tags.items():
            self._layout[name] = self._end, "d" if isinstance(tag.value, float) else "h"
            self._end += 4 if isinstance(tag.value, float) else 1
        self._call(self._start())
        self.write({name: tag.value for name, tag in tags.items()})

    async def _start(self):
        tables = [SimData(0, count=self._end, values=0, datatype=DataType.REGISTERS)]
        bits = [SimData(0, count=16, values=False, datatype=DataType.BITS)]
        device = SimDevice(1, (bits, list(bits), tables, list(tables)))
        self._server = ModbusTcpServer(device, address=("127.0.0.1", self._port))
        await self._server.serve_forever(background=True)

    def stop(self):
        self._call(self._server.shutdown())

    def close(self):
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def read(self):
        words = self._call(self._server.async_getValues(1, HOLDING, 0, self._end))
        data = struct.pack(f">{self._end}H", *words)
        return {
            n: struct.unpack_from(f">{k}", data, 2 * at)[0] for n, (at, k) in self._layout.items()
        }

    def write(self, values):
        self._call(self._write(values))

    async def _write(self, values):
        for name, value in values.items():
            first, form = self._layout[name]
            data = struct.pack(f">{form}", value)
            words = list(struct.unpack(f">{len(data) // 2}H", data))
            await self._server.async_setValues(1, HOLDING, first, words)

    def _call(self, call):
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(300)


SERVERS = {"opcua": OpcUaServer, "modbus": ModbusServer}


def tag_map(bundle, server):
    """The tag map of a simulated plant, with patience for a machine that is busy."""
    text = simulated_tags(bundle, server).replace("timeout = 0.5", "timeout = 60")
    if server.kind == "modbus":  # it has no time stamps
        text = text.replace("max_age = 90.0", "max_age = inf\nfrozen = 90.0")
    return text


class Clock:
    """The time of this machine, and a monotonic clock on which a period passes at once."""

    def __init__(self):
        self.monotonic = 100.0

    def now(self):
        return Instant(self.monotonic, time.time())


class Bench:
    """A plant, a loop, and the person at the plant."""

    def __init__(self, runtime, bundle, plant):
        self.runtime, self.bundle, self.plant = runtime, bundle, plant
        plant.restart()
        self.clock, self.field, self.loops = Clock(), [], []
        self.record, self.connection = None, None
        self.loop = self.another()

    def another(self):
        server = self.plant.server
        document = tomllib.loads(tag_map(self.bundle, server))
        tags = tags_of(document, self.bundle, "tags.toml")
        connection = CONNECTIONS[server.kind](tags, server.address, timeout=60.0)
        self.loops.append(connection)
        loop = ControlLoop(
            self.runtime, tags, connection, self.clock, record=lambda c: self._record(c)
        )
        loop.connection = connection
        return loop

    def _record(self, cycle):
        if self.record is not None:
            self.record(cycle)

    def scan(self, count=SCANS):
        for _ in range(count):
            state = self.plant.scan()
            self.field.append(state)

    def period(self, count=1, loop=None):
        for _ in range(count):
            cycle = (loop or self.loop).step()
            self.scan()
            self.clock.monotonic += 30.0
        return cycle

    def grant(self):
        self.plant.set("NEORL.GRANT", True)
        self.scan(1)
        self.plant.set("NEORL.GRANT", False)

    def close_loop(self):
        self.period(8)
        self.grant()
        self.loop.ask(Mode.CLOSED_LOOP, "shift leader")
        cycle = self.period(8)
        assert cycle.mode is Mode.CLOSED_LOOP, cycle.reason
        assert self.plant.state.active
        assert self.plant.state.setpoint[0] == pytest.approx(float(cycle.decision.action[0]))
        return self


def free_port():
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.fixture(scope="module", params=SERVERS)
def simulated(exported, request):
    server = SERVERS[request.param](free_port())
    yield SimulatedPlant(read_bundle(exported).manifest, server, patience=PATIENCE)
    server.close()


@pytest.fixture
def bench(runtime, exported, simulated):
    runtime._carry, runtime._events, runtime._file = runtime._initial, type(runtime._events)(), None
    made = Bench(runtime, read_bundle(exported), simulated)
    yield made
    for connection in made.loops:
        connection.close()


def killed(bench):
    bench.scan(PATIENCE + 1)
    return PATIENCE + 1, BlockReason.SILENT


def server_restarts(bench):
    bench.plant.server.stop()
    bench.plant.start()
    bench.scan(1)
    return 1, BlockReason.TRIPPED


def trip_between_reading_and_writing(bench):
    def trip(_):
        bench.record = None
        bench.plant.set("NEORL.TRIP", True)
        bench.scan(1)
        bench.plant.set("NEORL.TRIP", False)
        bench.scan(1)

    bench.record = trip
    bench.period()
    return 1, BlockReason.TRIPPED


def hand_on_the_set_point(bench):
    bench.plant.set("valve.SETPOINT", 12.0)
    bench.scan(1)
    assert bench.plant.state.setpoint[0] == 12.0
    return 1, BlockReason.TRIPPED


def permit_of_one_variable(bench):
    bench.plant.set("jacket.PERMIT", False)
    bench.scan(1)
    return 1, BlockReason.NO_PERMIT


def controller_in_local(bench):
    bench.plant.set("NEORL.REMOTE", False)
    bench.scan(1)
    return 1, BlockReason.NOT_REMOTE


def another_owner(bench):
    bench.plant.set("NEORL.OWNER", 30_001)
    bench.scan(1)
    return 1, BlockReason.NOT_GRANTED


def wrong_scale(bench):
    bench.plant.set("valve.PROPOSAL", 8901.0)
    bench.plant.set("NEORL.BEAT", 30_001)
    bench.scan(1)
    return 1, BlockReason.OUTSIDE


def half_a_write(bench):
    before = bench.plant.state.setpoint
    bench.plant.set("valve.PROPOSAL", 1.0)  # and the connection breaks before the beat
    bench.scan(PATIENCE + 1)
    assert all(s.setpoint == before for s in bench.field[-PATIENCE - 1 :] if s.active)
    return PATIENCE + 1, BlockReason.SILENT


def too_large_a_move(bench):
    high = bench.plant.state.setpoint[0] < 50
    bench.plant.set("valve.PROPOSAL", 95.0 if high else 5.0)
    bench.plant.set("NEORL.BEAT", 30_001)
    bench.scan(1)
    return 1, BlockReason.TOO_FAST


def old_sequence(bench):
    bench.plant.set("NEORL.DECIDED", 999)
    bench.plant.set("NEORL.BEAT", 30_001)
    bench.scan(1)
    return 1, BlockReason.VOID


def connection_lost(bench):
    def broken(*_, **__):
        raise ConnectionError("reset by peer")

    async def broken_later(*_):
        broken()

    client = bench.loop.connection._client
    if bench.plant.server.kind == "opcua":
        client.read_attributes = broken_later
    else:
        client.read_holding_registers = broken
    bench.period(2)
    return 2 * SCANS, BlockReason.SILENT


CAMPAIGN = [
    killed,
    server_restarts,
    trip_between_reading_and_writing,
    hand_on_the_set_point,
    permit_of_one_variable,
    controller_in_local,
    another_owner,
    wrong_scale,
    half_a_write,
    too_large_a_move,
    old_sequence,
    connection_lost,
]


@pytest.mark.parametrize("fault", CAMPAIGN, ids=lambda fault: fault.__name__)
def test_every_fault_ends_with_the_plant_under_its_own_control(bench, fault):
    bench.close_loop()
    begin = len(bench.field)
    window, reason = fault(bench)
    shed = next(i for i, state in enumerate(bench.field[begin:]) if not state.active)
    assert shed < window
    assert bench.field[begin + shed].reason == reason
    if fault is not killed:
        for name, value in (("NEORL.REMOTE", True), ("jacket.PERMIT", True)):
            bench.plant.set(name, value)
        cycle = bench.period(12)
        assert cycle.mode not in (Mode.CLOSED_LOOP, Mode.FALLBACK)
    # Only a person gives the loop its turn again.
    assert not any(state.active for state in bench.field[begin + shed :])


def test_a_second_loop_writes_nothing_and_names_the_first(bench):
    bench.close_loop()
    second = bench.another()
    second.ask(Mode.CLOSED_LOOP, "shift leader")
    for _ in range(10):
        cycle = second.step()
        assert not cycle.written
        assert bench.period().mode is Mode.CLOSED_LOOP
    assert f"another loop, owner {bench.loop._now.owner}, has the block" in cycle.reason
    bench.scan(PATIENCE + 1)  # the first process ends
    for _ in range(6):
        cycle = second.step()
        bench.clock.monotonic += 30.0
    assert bench.plant.get("NEORL.OWNER") == second._now.owner
    assert not bench.plant.scan().active


def test_the_loop_closes_only_under_permit_remote_and_grant(bench):
    bench.period(8)
    for name, value, words in (
        ("valve.PERMIT", False, "permit of a variable is missing"),
        ("NEORL.REMOTE", False, "not in remote"),
        ("NEORL.REMOTE", True, "has not granted this owner"),
    ):
        bench.plant.set(name, value)
        bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
        assert words in bench.period(3).reason
        if name == "valve.PERMIT":
            bench.plant.set(name, True)
    bench.grant()
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    assert bench.period(8).mode is Mode.CLOSED_LOOP


def test_a_loop_that_ends_says_so_and_one_in_shadow_shows_that_it_lives(bench):
    cycle = bench.period(3)
    assert cycle.mode is Mode.SHADOW
    assert bench.plant.get("NEORL.BEAT") == bench.loop._now.beat
    assert bench.plant.get("NEORL.STATE") == 1
    assert bench.plant.get("valve.PROPOSAL") == 50.0  # no proposal in shadow
    bench.close_loop()
    bench.loop.leave()
    bench.scan(1)
    assert bench.plant.get("NEORL.STATE") == 5
    assert not bench.plant.state.active


@pytest.fixture
def check(bench, exported, tmp_path, monkeypatch, capsys):
    """Runs the command; meanwhile a person moves each actuator by a small step upwards."""

    def run(text, *steps):
        looks = []

        def slept(*_):
            looks.append(None)
            for name, move in (("valve", 2.0), ("jacket", 1.0)):
                if len(looks) >= LOOKS:
                    bench.plant.set(f"{name}.SETPOINT", bench.plant.get(f"{name}.SETPOINT") + move)
            bench.scan()

        monkeypatch.setattr("neorl_deploy.loop._plant.SystemClock.sleep_until", slept)
        path = tmp_path / "tags.toml"
        path.write_text(text)
        asked = [part for channel in steps for part in ("--step", channel)]
        command = ["check", str(exported), str(path), "--by", "engineer", *asked]
        code = main([*command, "--directory", str(tmp_path / "loop")])
        return code, capsys.readouterr().out

    return run


def test_a_check_of_the_simulated_plant_passes_and_is_sealed(bench, check, tmp_path, capsys):
    text = tag_map(bench.bundle, bench.plant.server)
    code, shown = check(text)
    assert code == 2
    assert "not right: direction of valve: no person has moved it" in shown
    assert "2 of 12 are not right" in shown
    code, shown = check(text, "valve", "jacket")
    assert code == 0, shown
    assert "Move valve from its faceplate by a small step upwards" in shown
    assert bench.plant.state.setpoint == (54.0, 302.0)
    log = audit_log(tmp_path / "loop" / "audit", bench.bundle)
    tags = read_tags(tmp_path / "tags.toml", bench.bundle)
    assert unchecked(tags, log.standing("check")) == ""
    log.close()


def test_a_check_names_a_reversed_valve_and_a_wrong_scale(bench, check, capsys):
    text = tag_map(bench.bundle, bench.plant.server)
    first, valve, rest = text.partition('channel = "valve"')
    code, shown = check(f"{first}{valve}\nscale = -1.0\noffset = 100.0{rest}", "valve", "jacket")
    assert code == 2
    assert "1 of 12 are not right" in shown
    assert "it went from 50 to 48 % in a step upwards: is it reversed?" in shown
    code, shown = check(text.replace("tolerance", "scale = 0.01\ntolerance"), "valve")
    assert code == 2
    assert "range of valve: its channel is 0 to 10000 of the tag, which has 0 to 100" in shown
    assert check(text, "pump")[0] == 2


def test_one_command_starts_a_plant_and_its_tag_map_fits(command, exported, tmp_path, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    out = tmp_path / "simulated.toml"
    words = ["simulate", exported, "--port", free_port(), "--out", out]
    shown = command(*words, "--grant", "--scans", "2")
    assert f"serve {exported} {out}" in shown
    assert "the plant's own controllers act" in shown
    tags = read_tags(out, read_bundle(exported))
    assert tags.block is not None
    assert {output.tag for output in tags.outputs} < tags.writable
    assert "exists already" in command.refused(*words)
