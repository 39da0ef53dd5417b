"""The client against pymodbus' own server on this machine, with a tank behind its registers."""

import asyncio
import contextlib
import math
import socket
import struct
import threading

import pytest
from pymodbus.constants import ExcCodes
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

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
from neorl_deploy.modbus import ModbusPlant

UNATTENDED = "the plant has no permit and watches no heartbeat"

HOLDING, INPUT = 3, 4
FORMATS = {"int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q"}
FORMATS |= {"float32": "f", "float64": "d"}
LEVEL, TEMPERATURE, PRESSURE = "input:0:float32", "input:2:int16", "input:3:uint16"
VALVE, JACKET, BEAT = "holding:10:float32:little", "holding:12:uint16", "holding:13:int16"


def words_of(number, kind, order="big"):
    """Registers of a number, by struct alone."""
    data = struct.pack(f">{FORMATS[kind]}", number)
    words = list(struct.unpack(f">{len(data) // 2}H", data))
    return words if order == "big" else words[::-1]


class Tank:
    """A tank with a valve and a jacket, on a server in a thread of its own."""

    def __init__(self):
        with contextlib.closing(socket.socket()) as held:
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.own = False
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.start()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(300)

    def start(self):
        self.call(self._start())
        self.reset()

    async def _start(self):
        def block():
            return [SimData(0, count=60, values=0, datatype=DataType.REGISTERS)]

        self.failing, self.clamp, self.requests = {}, None, []
        bits = [SimData(0, count=16, values=False, datatype=DataType.BITS)]
        device = SimDevice(1, (bits, list(bits), block(), block()), action=self._answer)
        self.server = ModbusTcpServer(device, address=("127.0.0.1", self.port))
        await self.server.serve_forever(background=True)

    async def _answer(self, function, start, address, count, current, values):
        if self.own:  # the plant itself moves its registers
            return None
        self.requests.append((function, address, count))
        if values is not None and self.clamp is not None:
            values[0] = min(values[0], self.clamp)
        return self.failing.get((function, address))

    def stop(self):
        self.call(self.server.shutdown())

    def reset(self):
        self.failing, self.clamp, self.requests = {}, None, []
        self.level, self.temperature = 1.0, 330.0
        self.put(HOLDING, 10, words_of(40.0, "float32", "little"))
        self.put(HOLDING, 12, [30_000, 0])
        self.show()

    def put(self, table, first, words):
        self.own = True
        self.call(self.server.async_setValues(1, table, first, words))
        self.own = False

    def get(self, first, count, kind, order="big"):
        self.own = True
        words = self.call(self.server.async_getValues(1, HOLDING, first, count))
        self.own = False
        data = struct.pack(f">{count}H", *(words if order == "big" else words[::-1]))
        return struct.unpack(f">{FORMATS[kind]}", data)[0]

    def show(self):
        self.put(INPUT, 0, words_of(self.level, "float32"))
        self.put(INPUT, 2, words_of(round(10 * self.temperature), "int16"))
        self.put(INPUT, 3, words_of(round(1000 * (3.0 + 0.01 * self.level)), "uint16"))

    def advance(self):
        """One control period: what is written in the registers acts."""
        valve = self.get(10, 2, "float32", "little")
        jacket = self.get(12, 1, "uint16") / 100
        self.level += 0.0005 * (40.0 - valve)
        self.temperature += 0.1 * (jacket + 30.0 - self.temperature)
        self.show()


@pytest.fixture(scope="module")
def running():
    plant = Tank()
    yield plant
    plant.stop()
    plant.loop.call_soon_threadsafe(plant.loop.stop)
    plant.thread.join()
    plant.loop.close()


@pytest.fixture
def tank(running):
    running.reset()
    return running


@pytest.fixture
def document(exported):
    digest = read_bundle(exported).digest
    scaled = {"tag": TEMPERATURE, "unit": "K", "scale": 0.1}
    jacket = {"tag": JACKET, "read_back": JACKET, "unit": "K", "scale": 0.01}
    return {
        "bundle": f"sha256:{digest}",
        "connection": {"kind": "modbus"},
        "loop": {"heartbeat": BEAT, "late": 1.0, "unattended": UNATTENDED},
        "input": [
            {"channel": "level", "tag": LEVEL, "unit": "m"},
            {"channel": "temperature", **scaled},
            {"channel": "pressure", "tag": PRESSURE, "unit": "bar", "scale": 0.001},
        ],
        "output": [
            {"channel": "valve", "tag": VALVE, "read_back": VALVE, "unit": "%", "tolerance": 0.5},
            {"channel": "jacket", **jacket, "tolerance": 0.5},
        ],
    }


@pytest.fixture
def tags(document, exported):
    return tags_of(document, read_bundle(exported), "tags.toml")


@pytest.fixture
def connected(tank, tags):
    with contextlib.closing(ModbusPlant(tags, tank.address, timeout=60.0)) as plant:
        yield plant


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("order", ["big", "little"])
def test_every_type_and_word_order_is_read_and_written_as_struct_packs_it(
    tank, document, exported, kind, order
):
    tag = f"holding:20:{kind}:{order}"
    document["loop"]["heartbeat"] = tag
    tags = tags_of(document, read_bundle(exported), "tags.toml")
    number = {"u": 200, "i": -200, "f": -1.5}[kind[0]] + (2**40 if kind[-2:] == "64" else 0)
    words = words_of(number, kind, order)
    tank.put(HOLDING, 20, words)
    with contextlib.closing(ModbusPlant(tags, tank.address, timeout=60.0)) as plant:
        (reading,) = plant.read([tag])
        assert (reading.value, reading.quality) == (number, Quality.GOOD)
        assert plant.write({tag: number + 1}) == {}
    assert tank.get(20, len(words), kind, order) == number + 1
    assert tank.requests[0] == (HOLDING, 20, len(words))  # whole, in one request


def test_a_write_that_does_not_fit_is_refused_and_nothing_of_it_is_sent(tank, connected):
    """Row N29: a write beyond its range is refused, and nothing of it is sent."""
    assert connected.write({VALVE: 41.5, BEAT: 7.0}) == {}
    tank.requests.clear()
    refused = connected.write({VALVE: math.nan, BEAT: 40_000.0, JACKET: -1.0, LEVEL: 1.0})
    assert refused == {
        VALVE: "nan is not a finite number",
        BEAT: "40000 does not fit its type, int16",
        JACKET: "-1 does not fit its type, uint16",
        LEVEL: "the tag map does not write it",
    }
    assert connected.write({VALVE: 1e39}) == {VALVE: "1e+39 does not fit its type, float32"}
    assert tank.requests == []
    assert (tank.get(10, 2, "float32", "little"), tank.get(13, 1, "int16")) == (41.5, 7)


def test_a_write_that_the_device_refuses_or_clamps_is_noticed(tank, connected):
    tank.failing = {(6, 12): ExcCodes.ILLEGAL_VALUE}
    refused = connected.write({JACKET: 31_000.0, BEAT: 8.0})
    assert refused == {JACKET: "exception 3, illegal data value"}
    tank.failing = {(3, 12): ExcCodes.DEVICE_BUSY}
    refused = connected.write({JACKET: 31_000.0})
    assert refused == {JACKET: "it cannot be read back: exception 6, device busy"}
    tank.failing, tank.clamp = {}, 30_500
    assert connected.write({JACKET: 31_000.0}) == {JACKET: "it reads 30500 after 31000 was written"}


def test_a_register_that_fails_is_bad_and_one_that_is_none_is_one_line(tank, connected):
    tank.failing = {(INPUT, 2): ExcCodes.DEVICE_FAILURE}
    level, temperature = connected.read([LEVEL, TEMPERATURE])
    assert (level.value, level.quality) == (1.0, Quality.GOOD)
    assert math.isnan(temperature.value)
    assert temperature.quality == Quality.BAD
    tank.failing = {(INPUT, 2): ExcCodes.ILLEGAL_ADDRESS}
    with pytest.raises(PlantError) as error:
        connected.read([LEVEL, TEMPERATURE])
    assert str(error.value) == f"{tank.address}, {TEMPERATURE}: exception 2, illegal data address"


def test_a_connection_that_the_device_has_closed_is_made_anew_to_read_but_not_to_write(
    tank, connected
):
    for sessions in (2, 3):
        connected.read([LEVEL])
        tank.stop()
        tank.start()
        assert connected.read([LEVEL])[0].value == 1.0
        assert connected.session == sessions
    tank.stop()
    tank.start()
    with pytest.raises(PlantError, match=f"{BEAT}: the connection broke"):
        connected.write({BEAT: 1.0})
    assert tank.get(13, 1, "int16") == 0


def test_a_dead_port_and_a_mute_server_are_one_line_within_the_timeout(tags):
    """Row N29: a dead port is one line."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        plant = ModbusPlant(tags, address, timeout=0.3)
        with pytest.raises(PlantError, match=rf"^{address}, {LEVEL}: no answer in 0\.3 s$"):
            plant.read(tags.read)
        plant.close()
    with pytest.raises(PlantError, match=rf"^{address}: no connection in 0\.3 s$"):
        plant.read(tags.read)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"address": "http://plant"}, "address must look like tcp://plant:502"),
        ({"address": "tcp://plant:abc"}, "address must look like tcp://plant:502"),
        ({"address": 502}, "address must look like tcp://plant:502"),
        ({"address": "tcp://10.1.2.3"}, "is another machine; Modbus has no security"),
        ({"timeout": 0}, "a time above zero"),
        ({"unit": 300}, "unit must be a number from 1 to 247"),
        ({"word_order": "middle"}, "word_order must be big or little"),
    ],
)
def test_settings_that_would_harm_are_refused(tags, settings, words):
    with pytest.raises(DeployError, match=words):
        ModbusPlant(tags, **{"address": "tcp://localhost:502", **settings})


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("40001", "'40001' is not a register; write it like holding:100:float32"),
        ("coil:1:int16", "is not a register"),
        ("holding:1:real", "'real' is none of int16, uint16"),
        ("holding:1:int32:middle", "its word order must be big or little"),
        ("holding:65535:float32", "are numbered from 0 to 65535"),
        ("input:20:int16", "would be written, but input registers are read only"),
        ("holding:11:int16", "'holding:10:float32:little' and 'holding:11:int16' write the same"),
    ],
)
def test_a_tag_that_is_no_register_is_one_line(document, exported, tag, words):
    document["loop"]["heartbeat"] = tag
    tags = tags_of(document, read_bundle(exported), "tags.toml")
    with pytest.raises(DeployError, match=words):
        ModbusPlant(tags, "tcp://localhost:502")


def test_a_loop_closes_over_the_registers_survives_its_server_and_comes_back(
    tank, connected, tags, runtime
):
    runtime._carry, runtime._events = runtime._initial, type(runtime._events)()
    loop = ControlLoop(runtime, tags, connected, SystemClock())
    loop.ask(Mode.CLOSED_LOOP, "the test")
    for _ in range(20):
        cycle, level, temperature = loop.step(), tank.level, tank.temperature
        assert cycle.measured.obs == pytest.approx([level, temperature, 3.0], abs=0.06)
        tank.advance()
    assert cycle.mode is Mode.CLOSED_LOOP
    valve, jacket = map(float, cycle.decision.action)
    assert tank.get(10, 2, "float32", "little") == valve
    assert tank.get(12, 1, "uint16") == round(100 * jacket)
    assert tank.get(13, 1, "int16") == loop._now.beat
    assert tank.level < 1.0 - 1e-3  # the tank follows what the loop wrote
    tank.stop()
    modes = [loop.step().mode for _ in range(4)]
    assert modes[0] is Mode.FALLBACK
    assert modes[-1] is Mode.MANUAL
    tank.start()
    cycle = loop.step()
    assert "the connection is back" in cycle.notes
    assert cycle.mode is Mode.MANUAL
