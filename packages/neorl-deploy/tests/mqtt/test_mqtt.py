"""The client against Mosquitto on this machine."""

import contextlib
import datetime
import ipaddress
import json
import math
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from neorl_deploy import DeployError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.loop import PlantError, Quality, tags_of

paho = pytest.importorskip("paho.mqtt.client")
BROKER = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
PASSWORDS = shutil.which("mosquitto_passwd")
USER, PASSWORD = "neorl", "a secret of the plant"
pytestmark = pytest.mark.skipif(BROKER is None, reason="mosquitto is not installed")

KEPT = Path(__file__).parents[1] / "bundle/kept/jax-0.10.2"
LEVEL, FLOW = "plant/LI-1/PV", "plant/FI-1/PV"
INLET, INLET_BACK, OUTLET, OUTLET_BACK = "loop/in", "plant/in", "loop/out", "plant/out"
BEAT, FORBIDDEN = "loop/beat", "loop/forbidden"


def subscribed(client: Any) -> None:
    """Starts a client, and returns when the broker has taken its subscription."""
    answered = threading.Event()
    client.on_subscribe = lambda *_: answered.set()
    client.loop_start()
    client.subscribe("loop/#", 1)
    assert answered.wait(60)


class Broker:
    """Mosquitto, and a client of the plant that sends and collects.

    A secured broker speaks TLS with a certificate of the authority in ``ca.pem``, and knows one
    user by a password.
    """

    def __init__(self, folder: Path, *, secured: bool = False) -> None:
        self.folder, self.secured = folder, secured
        with contextlib.closing(socket.socket()) as held:
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
        access = folder / "access"
        access.write_text(
            f"topic readwrite plant/#\ntopic readwrite loop/#\ntopic deny {FORBIDDEN}"
        )
        access.chmod(0o600)
        settings = [f"listener {self.port} 127.0.0.1", "user root"]
        if secured:
            certify(folder)
            known = folder / "known"
            subprocess.run([PASSWORDS, "-b", "-c", known, USER, PASSWORD], check=True)
            (folder / "password").write_text(f"{PASSWORD}\n")
            settings += ["allow_anonymous false", f"password_file {known}"]
            settings += [f"certfile {folder / 'broker.pem'}", f"keyfile {folder / 'broker.key'}"]
        else:
            settings += ["allow_anonymous true", f"acl_file {access}"]
        self.file = folder / "mosquitto.conf"
        self.file.write_text("\n".join(settings) + "\n")
        self.address = f"mqtt{'s' if secured else ''}://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        assert BROKER is not None
        output = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [BROKER, "-c", str(self.file)], stdout=output, stderr=output
        )
        for _ in range(600):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            time.sleep(0.1)
        self.heard: dict[str, str] = {}
        self.news = threading.Condition()
        self.plant = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.plant.on_message = self._hear
        if self.secured:
            self.plant.tls_set(ca_certs=str(self.folder / "ca.pem"))
            self.plant.username_pw_set(USER, PASSWORD)
        self.plant.connect("127.0.0.1", self.port)
        subscribed(self.plant)

    def stop(self) -> None:
        self.plant.disconnect()
        self.plant.loop_stop()
        self.process.terminate()
        self.process.wait()

    def send(self, topic: str, payload: object, *, retain: bool = False) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        self.plant.publish(topic, text, qos=1, retain=retain).wait_for_publish(60)

    def _hear(self, _: object, __: object, message: object) -> None:
        with self.news:
            self.heard[message.topic] = message.payload.decode()  # type: ignore[attr-defined]
            self.news.notify_all()

    def wait_for(self, topic: str, text: str) -> bool:
        with self.news:
            return self.news.wait_for(lambda: self.heard.get(topic) == text, 60)


def certify(folder: Path) -> None:
    """An authority, another one, and a broker's certificate of the first, for ``127.0.0.1``."""
    now = datetime.datetime.now(datetime.UTC)

    def certificate(name: str, issuer: str, key: Any, signing: Any, extension: Any) -> Any:
        names = [
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, issuer)
        ]
        return (
            x509.CertificateBuilder(*reversed(names), key.public_key(), 1)
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=True)
            .sign(signing, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )

    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "other", "broker")}
    for name in ("ca", "other"):
        may_sign = x509.BasicConstraints(ca=True, path_length=0)
        made = certificate(name, name, keys[name], keys[name], may_sign)
        (folder / f"{name}.pem").write_bytes(made)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = certificate("broker", "ca", keys["broker"], keys["ca"], here)
    (folder / "broker.pem").write_bytes(made)
    private = keys["broker"].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "broker.key").write_bytes(private)


@pytest.fixture
def broker(tmp_path: Path):
    running = Broker(tmp_path)
    yield running
    running.stop()


def tags(heartbeat: str = BEAT):
    bundle = read_bundle(KEPT)
    document = {
        "bundle": f"sha256:{bundle.digest}",
        "connection": {"kind": "mqtt"},
        "loop": {"heartbeat": heartbeat, "unattended": "a test"},
        "input": [
            {"channel": "level", "tag": LEVEL, "unit": "m"},
            {"channel": "flow", "tag": FLOW, "unit": "m3/h"},
        ],
        "output": [
            {"channel": name, "tag": tag, "read_back": back, "unit": "%", "tolerance": 0.5}
            for name, tag, back in (
                ("inlet", INLET, INLET_BACK),
                ("outlet", OUTLET, OUTLET_BACK),
            )
        ],
    }
    return tags_of(document, bundle, "tags.toml")


@pytest.fixture
def plant(broker):
    from neorl_deploy.mqtt import MqttPlant

    with contextlib.closing(MqttPlant(tags(), broker.address, timeout=30.0)) as connected:
        yield connected


def until(met) -> bool:
    for _ in range(600):
        if met():
            return True
        time.sleep(0.05)
    return False


def test_numbers_qualities_and_times_are_read(broker, plant) -> None:
    before = time.time()
    assert [one.quality for one in plant.read([LEVEL, FLOW])] == [Quality.BAD] * 2
    broker.send(LEVEL, "1.25")
    broker.send(FLOW, {"value": 12, "quality": "Uncertain", "timestamp": 1e9})
    assert until(lambda: plant.read([FLOW])[0].value == 12.0)
    level, flow = plant.read([LEVEL, FLOW])
    assert (level.value, level.quality) == (1.25, Quality.GOOD)
    assert before <= level.stamp <= time.time()
    assert (flow.value, flow.quality, flow.stamp) == (12.0, Quality.UNCERTAIN, 1e9)


@pytest.mark.parametrize(
    "payload", ["nonsense", '"1.5"', "[1]", "{}", '{"value": 1, "quality": "odd"}']
)
def test_a_message_without_a_good_number_is_bad(broker, plant, payload) -> None:
    plant.read([LEVEL])
    broker.send(LEVEL, payload)
    assert until(lambda: plant.read([LEVEL])[0].stamp is not None)
    assert plant.read([LEVEL])[0].quality == Quality.BAD


def test_a_stored_message_is_too_old_unless_it_states_its_time(broker, plant) -> None:
    now = time.time()
    broker.send(LEVEL, "1.0", retain=True)
    broker.send(FLOW, {"value": 2.0, "timestamp": now}, retain=True)
    assert until(lambda: plant.read([FLOW])[0].value == 2.0)
    level, flow = plant.read([LEVEL, FLOW])
    assert (level.value, level.stamp) == (1.0, 0.0)
    assert flow.stamp == now


def test_numbers_are_written_and_never_stored(broker, plant) -> None:
    assert plant.write({INLET: 41.5, BEAT: 7.0}) == {}
    assert broker.wait_for(INLET, "41.5")
    assert broker.wait_for(BEAT, "7.0")
    refused = plant.write({INLET: math.nan, LEVEL: 1.0})
    assert refused == {
        INLET: "nan is not a finite number",
        LEVEL: "the tag map does not write it",
    }
    late = paho.Client(paho.CallbackAPIVersion.VERSION2)
    got: list[str] = []
    late.on_message = lambda _, __, message: got.append(message.topic)
    late.connect("127.0.0.1", broker.port)
    subscribed(late)
    broker.send("loop/other", "1")
    assert until(lambda: "loop/other" in got)
    late.disconnect()
    late.loop_stop()
    assert got == ["loop/other"]


def test_a_write_that_the_broker_does_not_deliver_is_refused(broker) -> None:
    from neorl_deploy.mqtt import MqttPlant

    map_ = tags(FORBIDDEN)
    with contextlib.closing(MqttPlant(map_, broker.address, timeout=3.0)) as plant:
        words = "the broker did not deliver it in 3 s"
        assert plant.write({FORBIDDEN: 1.0, INLET: 2.0}) == {FORBIDDEN: words}


def test_a_broker_that_restarts_is_found_again_and_nothing_old_counts(broker, plant) -> None:
    broker.send(LEVEL, "1.0")
    plant.read([LEVEL])
    broker.send(LEVEL, "1.5")
    assert until(lambda: plant.read([LEVEL])[0].value == 1.5)
    broker.stop()

    def gone() -> bool:
        with contextlib.suppress(PlantError):
            plant.read([LEVEL])
            return False
        return True

    assert until(gone)
    broker.start()
    assert plant.read([LEVEL])[0].quality == Quality.BAD
    assert plant.session == 2
    assert plant.write({INLET: 3.0}) == {}


# paho leaves the closing of a socket whose handshake failed to Python, which warns of it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_over_tls_a_user_with_a_password_reads_and_writes(tmp_path) -> None:
    from neorl_deploy.mqtt import MqttPlant

    broker = Broker(tmp_path, secured=True)
    given = {"ca_file": "ca.pem", "user": USER, "password_file": "password"}

    def connection(**changes) -> MqttPlant:
        settings = {**given, **changes}
        files = {
            name: str(tmp_path / settings[name])
            for name in ("ca_file", "password_file")
            if settings.get(name)
        }
        return MqttPlant(tags(), broker.address, timeout=30.0, **{**settings, **files})

    try:
        with contextlib.closing(connection()) as plant:
            plant.read([LEVEL])
            broker.send(LEVEL, "1.25")
            assert until(lambda: plant.read([LEVEL])[0].value == 1.25)
            assert plant.write({INLET: 41.5}) == {}
            assert broker.wait_for(INLET, "41.5")
        (tmp_path / "wrong").write_text("guessed\n")
        for changes, words in (
            ({"password_file": "wrong"}, "the broker refuses: Not authorized"),
            ({"user": "", "password_file": ""}, "the broker refuses: Not authorized"),
            ({"ca_file": "other.pem"}, "no connection: .*certificate verify failed"),
            ({"ca_file": "password"}, "no connection"),
        ):
            with (
                contextlib.closing(connection(**changes)) as plant,
                pytest.raises(PlantError, match=words),
            ):
                plant.read([LEVEL])
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"address": "tcp://plant"}, "address must look like mqtt://plant:1883"),
        ({"address": "mqtt://10.1.2.3"}, "is another machine; use mqtts"),
        ({"timeout": 0}, "a time above zero"),
        ({"ca_file": "ca.pem"}, "ca_file has no effect without TLS"),
        ({"password_file": "secret"}, "password_file has no effect without a user"),
        ({"user": "neorl", "password_file": "gone"}, "is gone, and there is no such file"),
    ],
)
def test_settings_that_would_harm_are_refused(settings, words) -> None:
    from neorl_deploy.mqtt import MqttPlant

    with pytest.raises(DeployError, match=words):
        MqttPlant(tags(), **{"address": "mqtt://localhost", **settings})


def test_a_tag_for_many_topics_is_refused() -> None:
    from neorl_deploy.mqtt import MqttPlant

    with pytest.raises(DeployError, match="names no single value"):
        MqttPlant(tags("loop/+"), "mqtt://localhost")


def test_a_port_without_a_broker_is_one_line() -> None:
    from neorl_deploy.mqtt import MqttPlant

    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        address = f"mqtt://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(PlantError, match="no connection"):
            MqttPlant(tags(), address, timeout=3.0).read([LEVEL])
