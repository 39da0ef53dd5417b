"""A second plant: an evaporator in raw counts of a card, behind certificates and a password."""

import asyncio
import contextlib
import math
import socket
import threading
import time
from typing import Any

import asyncua
import numpy as np
import pytest
from asyncua import ua as protocol
from asyncua.crypto.cert_gen import setup_self_signed_certificate
from asyncua.crypto.permission_rules import User, UserRole
from asyncua.server.user_managers import UserManager
from cryptography.x509.oid import ExtendedKeyUsageOID
from scipy.integrate import solve_ivp

from neorl_deploy import DeployError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.loop import ControlLoop, Mode, PlantError, SystemClock, tags_of
from neorl_deploy.opcua import OpcUaPlant, _end

UNATTENDED = "the plant has no permit and watches no heartbeat"

ua: Any = protocol  # its classes are declared with types of the protocol
FULL = 27_648
"""Counts of a card at the end of its range."""
COUNTS = {"LT": FULL // 2, "TT": FULL // 2, "PT": FULL // 2, "VALVE": 11_000, "JACKET": 13_000}
RANGES = {"LT": (0.0, 2.0), "TT": (280.0, 400.0), "PT": (0.5, 6.0)}
RANGES |= {"VALVE": (0.0, 100.0), "JACKET": (280.0, 320.0)}
PASSWORD = "only for this test"


class OneUser(UserManager):
    """Lets one operator in."""

    def get_user(self, iserver, username=None, password=None, certificate=None):
        known = username == "neorl" and password == PASSWORD
        return User(role=UserRole.User, name=username) if known else None


class Evaporator:
    """An evaporator of acetone behind its card: whole counts, a valve and a jacket that obey.

    Its level follows the valve of its outlet, its temperature the jacket, and its pressure the
    temperature; whatever the loop has written acts until it writes again.
    """

    INFLOW, DRAIN, LAG, LIFT = 1.1e-3, 2e-5, 240.0, 30.0

    def __init__(self, folder):
        self.level, self.temperature = 1.0, 330.0
        with contextlib.closing(socket.socket()) as held:
            held.bind(("127.0.0.1", 0))
            self.address = f"opc.tcp://127.0.0.1:{held.getsockname()[1]}/"
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.call(self._start(folder))

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(300)

    async def _start(self, folder):
        for who, usage in (("server", "SERVER_AUTH"), ("client", "CLIENT_AUTH")):
            await setup_self_signed_certificate(
                folder / f"{who}-key.pem",
                folder / f"{who}.der",
                f"urn:neorl:{who}",
                "localhost",
                [getattr(ExtendedKeyUsageOID, usage)],
                {"commonName": who},
            )
        self.server = asyncua.Server(user_manager=OneUser())
        await self.server.init()
        self.server.set_endpoint(self.address)
        self.server.set_security_policy([ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt])
        self.server.set_identity_tokens([ua.UserNameIdentityToken])
        await self.server.set_application_uri("urn:neorl:server")
        await self.server.load_certificate(folder / "server.der")
        await self.server.load_private_key(folder / "server-key.pem")
        space = await self.server.register_namespace("urn:evaporator")
        self.nodes = {}
        for name, value in COUNTS.items():
            node = await self.server.nodes.objects.add_variable(
                ua.NodeId(name, space), name, value, ua.VariantType.Int32
            )
            self.nodes[name] = node
            if name in ("VALVE", "JACKET"):
                await node.set_writable()
        await self.server.start()

    def count(self, name):
        return self.call(self.nodes[name].read_value())

    def show(self):
        """Puts the state on the card; Antoine's constants are those of NIST, 259 to 508 K."""
        pressure = 10 ** (4.42448 - 1312.253 / (self.temperature - 32.445))
        values = {"LT": self.level, "TT": self.temperature, "PT": pressure}
        for name, value in values.items():
            low, high = RANGES[name]
            self.measure(name, round(min(max((value - low) / (high - low), 0.0), 1.0) * FULL))

    def advance(self, seconds):
        """Lets time pass, by the closed form of both linear equations for held actuators."""
        held = {}
        for name in ("VALVE", "JACKET"):
            low, high = RANGES[name]
            held[name] = low + (high - low) * self.count(name) / FULL
        self.level += seconds * (self.INFLOW - self.DRAIN * held["VALVE"])
        goal = held["JACKET"] + self.LIFT
        self.temperature = goal + (self.temperature - goal) * math.exp(-seconds / self.LAG)

    def measure(self, name, count):
        stamp = ua.uatypes.datetime.fromtimestamp(time.time(), ua.uatypes.timezone.utc)
        value = ua.Variant(count, ua.VariantType.Int32)
        data = ua.DataValue(value, ua.StatusCode(ua.StatusCodes.Good), stamp)
        self.call(self.server.write_attribute_value(self.nodes[name].nodeid, data))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def plant(folder):
    made = Evaporator(folder)
    yield made
    made.call(made.server.stop())
    made.call(_end())
    made.loop.call_soon_threadsafe(made.loop.stop)
    made.thread.join()
    made.loop.close()


@pytest.fixture
def tags(exported):
    bundle = read_bundle(exported)

    def row(channel, name, unit, **more):
        low, high = RANGES[name]
        scale = {"scale": (high - low) / FULL, "offset": low}
        return {"channel": channel, "tag": f"ns=2;s={name}", "unit": unit, **scale, **more}

    inputs = [("level", "LT", "m"), ("temperature", "TT", "K"), ("pressure", "PT", "bar")]
    outputs = [("valve", "VALVE", "%"), ("jacket", "JACKET", "K")]
    document = {
        "bundle": f"sha256:{bundle.digest}",
        "connection": {"kind": "opcua"},
        "input": [row(*one) for one in inputs],
        "output": [row(*o, read_back=f"ns=2;s={o[1]}", tolerance=0.5) for o in outputs],
        "loop": {"late": 1.0, "unattended": UNATTENDED},
    }
    return tags_of(document, bundle, "tags.toml")


@pytest.fixture
def secured(folder):
    password = folder / "password"
    password.write_text(f"{PASSWORD}\n")
    return {
        "security": f"Basic256Sha256,SignAndEncrypt,{folder / 'client.der'},"
        f"{folder / 'client-key.pem'},{folder / 'server.der'}",
        "user": "neorl",
        "password_file": str(password),
        "timeout": 10.0,
    }


def test_the_loop_closes_over_the_server_of_a_second_plant(plant, tags, secured, runtime):
    connected = OpcUaPlant(tags, plant.address, **secured)
    runtime._carry, runtime._events = runtime._initial, type(runtime._events)()
    loop = ControlLoop(runtime, tags, connected, SystemClock())
    loop.ask(Mode.CLOSED_LOOP, "the test")
    period = runtime.manifest.dt
    cycles, states = [], []
    with contextlib.closing(connected):
        for _ in range(30):
            plant.show()
            states.append((plant.level, plant.temperature))
            cycles.append(loop.step())
            plant.advance(period)
    assert {cycle.mode for cycle in cycles[5:]} == {Mode.CLOSED_LOOP}
    cycle = cycles[-1]
    for name, value in zip(("VALVE", "JACKET"), cycle.decision.action, strict=True):
        low, high = RANGES[name]
        assert plant.count(name) == round((float(value) - low) / (high - low) * FULL)

    def rates(_, state, valve, jacket):
        level = plant.INFLOW - plant.DRAIN * valve
        return [level, (jacket + plant.LIFT - state[1]) / plant.LAG]

    state, closed = states[6], cycles[6:]  # from what the loop decided the plant follows, by SciPy
    for cycle, reached in zip(closed, states[6:], strict=True):
        assert state == pytest.approx(reached, abs=0.02)
        assert cycle.measured.obs[:2] == pytest.approx(reached, abs=0.01)
        acting = tuple(map(float, cycle.decision.action))
        state = solve_ivp(rates, (0.0, period), state, args=acting, rtol=1e-8).y[:, -1]
    moved = np.abs(np.array(states[-1]) - states[6])
    assert moved[0] > 0.005
    assert moved[1] > 0.5
    temperatures, pressures = np.array([cycle.measured.obs[1:] for cycle in closed]).T
    assert np.corrcoef(temperatures, pressures)[0, 1] > 0.99


@pytest.mark.parametrize(
    "change", [{"security": ""}, {"user": "", "password_file": ""}, {"password_file": "wrong"}]
)
def test_who_is_not_known_is_refused_in_one_line(plant, tags, secured, folder, change):
    if change.get("password_file") == "wrong":
        (folder / "wrong").write_text("another password")
        change = {"password_file": str(folder / "wrong")}
    connected = OpcUaPlant(tags, plant.address, **{**secured, **change})
    with contextlib.closing(connected), pytest.raises(PlantError) as refused:
        connected.read(tags.read)
    assert "\n" not in str(refused.value)
    assert plant.address in str(refused.value)


def test_a_certificate_that_is_missing_is_one_line(plant, tags, secured, folder):
    security = secured["security"].replace("client.der", "no-such.der")
    connected = OpcUaPlant(tags, plant.address, **{**secured, "security": security})
    with contextlib.closing(connected), pytest.raises(DeployError, match=r"no-such\.der"):
        connected.read(tags.read)
