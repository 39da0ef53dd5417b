"""A plant behind an MQTT broker (extra ``mqtt``)."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError, needs
from neorl_deploy.loop._plant import PlantError, Quality, Reading, require_address, require_timeout
from neorl_deploy.loop._tags import TagMap

__all__ = ["MqttPlant"]

QUALITIES = {"good": Quality.GOOD, "uncertain": Quality.UNCERTAIN, "bad": Quality.BAD}
SCHEMES = {False: ("mqtt://plant:1883", 1883), True: ("mqtts://plant:8883", 8883)}
"""Example of an address and usual port, without and with TLS."""
UNKNOWN_TIME = 0.0
"""Time of a stored message that does not state its own: it counts as too old."""


class MqttPlant:
    """A connection of kind ``mqtt``. Tags are topics, such as ``line2/LI-101/PV``.

    A message is a number as text, or a JSON object with ``value`` and, if the source gives them,
    ``quality`` (``good``, ``uncertain`` or ``bad``) and ``timestamp`` (seconds since 1970). Without
    a timestamp, a value is as old as its arrival. A retained message without one is of unknown age
    and counts as too old, except for a tag whose ``max_age`` is infinite, such as a set point.

    Numbers are written as text with quality of service 1 and are never retained, so that no
    controller finds an old command. A write is refused unless the broker delivers it back to this
    connection in time; what the plant then does is seen at the read-back tag, as everywhere. Only
    tags that the tag map declares as writable can be written.

    Args:
        tags: The tag map.
        address: ``mqtt://plant:1883``, or ``mqtts://plant:8883`` with TLS.
        timeout: Seconds allowed for connecting and for an answer; well below a control period.
        ca_file: Certificates that the broker's must go back to; those of the system if empty.
        user: Name of the user; empty for none.
        password_file: File that contains the password.
        insecure: Allows the address of another machine without TLS.

    Attributes:
        session: Number of connections so far.

    Raises:
        DeployError: If the address or a topic is invalid, a file is missing or has no effect, or
            the extra is not installed.
    """

    def __init__(
        self,
        tags: TagMap,
        address: str,
        *,
        timeout: float = 0.5,
        ca_file: str = "",
        user: str = "",
        password_file: str = "",
        insecure: bool = False,
    ) -> None:
        with needs("a connection of kind mqtt", "mqtt"):
            from paho.mqtt import client as paho
        require_timeout(timeout)
        secured = str(address).startswith("mqtts:")
        example, port = SCHEMES[secured]
        trusted = secured or insecure
        parts = require_address(address, example, trusted=trusted, advice="use mqtts")
        _require_files(ca_file, password_file, secured=secured, user=user)
        self._topics = sorted({*tags.read, *tags.writable})
        for topic in self._topics:
            if any(sign in topic for sign in "+#\0") or not topic:
                raise DeployError(f"the tag {topic!r} is not a topic: it names no single value")
        self._writable, self.address, self._timeout = tags.writable, address, float(timeout)
        self._host, self._port = parts.hostname or "", parts.port or port
        self.session, self._paho = 0, paho
        self._readings: dict[str, Reading] = {}
        self._delivered: dict[str, str] = {}
        self._changed, self._fault = threading.Condition(), ""
        self._subscribed = False
        self._user, self._password_file = user, password_file
        self._secured, self._ca_file = secured, ca_file
        self._client: Any = None

    def read(self, tags: Sequence[str]) -> list[Reading]:
        """The last value of every tag; quality is bad for one that has sent none.

        Raises:
            PlantError: If there is no connection.
        """
        self._connect()
        with self._changed:
            return [self._readings.get(tag, Reading(math.nan, Quality.BAD)) for tag in tags]

    def write(self, values: Mapping[str, float]) -> dict[str, str]:
        """Publishes numbers, and waits until the broker has delivered them.

        Returns:
            Why a tag was not written: not a finite number, not writable in this tag map, or not
            delivered by the broker, which does so if the user may not write it.

        Raises:
            PlantError: If the connection broke; it is then unknown what was written.
        """
        self._connect()
        refused: dict[str, str] = {}
        sent: dict[str, str] = {}
        for tag, value in values.items():
            if tag not in self._writable:
                refused[tag] = "the tag map does not write it"
            elif not math.isfinite(value):
                refused[tag] = f"{value} is not a finite number"
            else:
                sent[tag] = repr(float(value))
        with self._changed:
            for tag in sent:
                self._delivered.pop(tag, None)
            client = self._client
        if client is not None:
            for tag, text in sent.items():
                client.publish(tag, text, qos=1, retain=False)
        self._wait(lambda: all(self._delivered.get(tag) == text for tag, text in sent.items()))
        with self._changed:
            if not self._subscribed:
                raise PlantError(f"{self.address}: the connection broke")
            for tag, text in sent.items():
                if self._delivered.get(tag) != text:
                    refused[tag] = f"the broker did not deliver it in {self._timeout:g} s"
        return refused

    def close(self) -> None:
        """Closes the connection and its thread."""
        with self._changed:
            client, self._client, self._subscribed = self._client, None, False
        if client is not None:
            client.disconnect()
            client.loop_stop()

    def _connect(self) -> None:
        """Connects and subscribes, unless that is so; nothing that came before counts."""
        with self._changed:
            if self._subscribed:
                return
        self.close()  # a client that starts a second time keeps its old sockets
        try:
            client = self._new_client()
            with self._changed:
                self._client, self._readings, self._delivered, self._fault = client, {}, {}, ""
            client.connect(self._host, self._port, keepalive=5)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise PlantError(f"{self.address}: no connection: {reason}") from error
        client.loop_start()
        if not self._wait(lambda: self._subscribed or bool(self._fault)) or self._fault:
            fault = self._fault or f"no answer in {self._timeout:g} s"
            self.close()
            raise PlantError(f"{self.address}: {fault}")
        self.session += 1

    def _new_client(self) -> Any:
        client = self._paho.Client(
            self._paho.CallbackAPIVersion.VERSION2, clean_session=True, reconnect_on_failure=False
        )
        client.connect_timeout = self._timeout
        if self._user:
            held = Path(self._password_file).read_text("utf-8") if self._password_file else ""
            client.username_pw_set(self._user, held.strip() or None)
        if self._secured:
            client.tls_set(ca_certs=self._ca_file or None)
        client.on_connect, client.on_disconnect = self._connected, self._ended
        client.on_subscribe, client.on_message = self._answered, self._arrived
        return client

    def _wait(self, met: Any) -> bool:
        """Waits for something that the thread of the client reports, or for the timeout."""
        with self._changed:
            return self._changed.wait_for(met, self._timeout)

    def _connected(self, client: Any, _: Any, __: Any, reason: Any, ___: Any) -> None:
        if reason.is_failure:
            self._report(f"the broker refuses: {reason}")
        else:
            client.subscribe([(topic, 1) for topic in self._topics])

    def _answered(self, _: Any, __: Any, ___: Any, reasons: Any, ____: Any) -> None:
        for topic, reason in zip(self._topics, reasons, strict=False):
            if reason.is_failure:
                return self._report(f"the broker refuses the tag {topic!r}")
        with self._changed:
            self._subscribed = True
            self._changed.notify_all()

    def _ended(self, client: Any, *_: Any) -> None:
        with self._changed:
            if client is self._client:
                self._subscribed = False
                self._changed.notify_all()

    def _report(self, fault: str) -> None:
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def _arrived(self, _: Any, __: Any, message: Any) -> None:
        text = message.payload.decode("utf-8", "replace").strip()
        arrived = UNKNOWN_TIME if message.retain else time.time()
        with self._changed:
            self._readings[message.topic] = _reading(text, arrived)
            self._delivered[message.topic] = text
            self._changed.notify_all()


def _require_files(ca_file: str, password_file: str, *, secured: bool, user: str) -> None:
    if ca_file and not secured:
        raise DeployError("ca_file has no effect without TLS: give an address that begins mqtts://")
    if password_file and not user:
        raise DeployError("password_file has no effect without a user: give user as well")
    for name, file in (("ca_file", ca_file), ("password_file", password_file)):
        if file and not Path(file).is_file():
            raise DeployError(f"{name} is {file}, and there is no such file")


def _reading(text: str, arrived: float) -> Reading:
    """The reading of a message; one that holds no number is bad."""
    try:
        held = json.loads(text)
    except ValueError:
        held = None
    stated = held if isinstance(held, dict) else {"value": held}
    value, stamp = stated.get("value"), stated.get("timestamp", arrived)
    quality = QUALITIES.get(str(stated.get("quality", "good")).lower(), Quality.BAD)
    if not isinstance(value, bool | int | float) or not isinstance(stamp, int | float):
        return Reading(math.nan, Quality.BAD, arrived)
    return Reading(float(value), quality, float(stamp))
