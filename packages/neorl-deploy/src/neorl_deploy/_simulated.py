"""A simulated plant on a server: measurements, its own controllers, and the block."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from neorl_deploy._errors import needs
from neorl_deploy.bundle._manifest import ChannelEntry, Manifest
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.loop._block import (
    TEXTS,
    BlockInputs,
    BlockReason,
    BlockSettings,
    BlockState,
    block_scan,
)
from neorl_deploy.opcua import _end

SPACE = "urn:neorl:simulated"
WRITTEN = ("OWNER", "DECIDED", "STATE", "BEAT")
SHOWN = ("GRANTED", "SEQUENCE", "ACTIVE", "REASON", "ALIVE")
PERSONS = {"REMOTE": True, "TRIP": False, "GRANT": False}
STARTED_FROM = 0.5
"""Fraction of its range at which the plant's own controllers hold every actuator."""


class Tag(NamedTuple):
    """A tag of the simulated plant.

    Attributes:
        value: Its default: a float, a counter of 16 bits (an integer), or a switch (a boolean).
        writable: Whether a client may write it.
        channel: Its channel, whose range and unit a server may state; ``None`` if it has none.
    """

    value: float | int | bool
    writable: bool = False
    channel: ChannelEntry | None = None


class TagServer(Protocol):
    """A server that holds the tags of a simulated plant."""

    kind: str
    address: str

    def tag(self, name: str) -> str:
        """The address of a tag in a tag map."""
        ...

    def start(self, tags: Mapping[str, Tag]) -> None:
        """Starts with the defaults of these tags."""
        ...

    def stop(self) -> None:
        """Stops; it can be started again."""
        ...

    def close(self) -> None:
        """Stops for good."""
        ...

    def read(self) -> dict[str, Any]:
        """The value of every tag."""
        ...

    def write(self, values: Mapping[str, Any]) -> None:
        """Sets tags, whether or not a client may write them."""
        ...


class SimulatedPlant:
    """A plant of the channels of a bundle, with ``neorl_block.st`` between the loop and it.

    The measurements swing a little about the middle of their ranges; they do not answer to the
    actuators, since the plant of a bundle is not known. The plant's own controllers hold each
    actuator, and track the set point while the block takes the loop's. Set points, permits and the
    tags ``NEORL.REMOTE``, ``NEORL.TRIP`` and ``NEORL.GRANT`` may be written by any client, as a
    person at the plant would set them.

    Args:
        manifest: Manifest of the bundle.
        server: Server of its tags, which it starts.
        patience: Scans without a new beat after which the block sheds.

    Attributes:
        server: The server.
        state: The block after the last scan.
        settings: Limits of the block: the ranges of the actuators, and a quarter of each as the
            largest move.
    """

    def __init__(self, manifest: Manifest, server: TagServer, *, patience: int) -> None:
        self.server, self._manifest = server, manifest
        low = tuple(float(channel.low) for channel in manifest.action)
        high = tuple(float(channel.high) for channel in manifest.action)
        move = tuple(0.25 * (h - lo) for lo, h in zip(low, high, strict=True))
        self.settings = BlockSettings(low, high, move, patience)
        self._rest = tuple(lo + STARTED_FROM * (h - lo) for lo, h in zip(low, high, strict=True))
        self._own, self._scans = self._rest, 0
        self.start()

    def start(self) -> None:
        """Starts the server with its defaults, as after a restart: the block has no memory."""
        self.state = BlockState(self._own)
        self.server.start(self._tags())

    def restart(self) -> None:
        """Restarts the plant's controller behind its server: defaults, and no memory."""
        self._own = self._rest
        self.state = BlockState(self._own)
        self.server.write({name: tag.value for name, tag in self._tags().items()})

    def get(self, name: str) -> Any:
        """The value of a tag, by its name alone."""
        return self.server.read()[name]

    def set(self, name: str, value: float | bool) -> None:
        """Sets a tag, as a person at the plant or another client would."""
        self.server.write({name: value})

    def line(self) -> str:
        """One line on who has the actuators, and why."""
        names = [channel.name for channel in self._manifest.action]
        values = zip(names, self.state.setpoint, strict=True)
        acts = "the loop acts" if self.state.active else "the plant's own controllers act"
        why = TEXTS[BlockReason(self.state.reason)]
        return f"{acts} ({why}): " + ", ".join(f"{name} {value:g}" for name, value in values)

    def _tags(self) -> dict[str, Tag]:
        manifest = self._manifest
        tags = {c.name: Tag(0.5 * (c.low + c.high), channel=c) for c in manifest.obs}
        for channel, value in zip(manifest.action, self._own, strict=True):
            tags[f"{channel.name}.PROPOSAL"] = Tag(value, writable=True, channel=channel)
            tags[f"{channel.name}.SETPOINT"] = Tag(value, writable=True)
            tags[f"{channel.name}.PERMIT"] = Tag(value=True, writable=True)
        tags |= {f"NEORL.{name}": Tag(0, writable=True) for name in WRITTEN}
        tags |= {f"NEORL.{name}": Tag(0) for name in SHOWN}
        return tags | {
            f"NEORL.{name}": Tag(value, writable=True) for name, value in PERSONS.items()
        }

    def scan(self) -> BlockState:
        """One scan of the plant's controller: measurements, block, set points."""
        shown = self.server.read()
        names = [channel.name for channel in self._manifest.action]
        owner, decided, state, beat = [shown[f"NEORL.{name}"] for name in WRITTEN]
        remote, trip, grant = [shown[f"NEORL.{name}"] for name in PERSONS]
        before = self.state
        moved = tuple(shown[f"{name}.SETPOINT"] for name in names)
        hand = before.started and moved != before.setpoint
        if hand:  # a set point that this controller did not write
            pairs = zip(moved, before.setpoint, self._own, strict=True)
            self._own = tuple(new if new != old else own for new, old, own in pairs)
        inputs = BlockInputs(
            proposal=tuple(shown[f"{name}.PROPOSAL"] for name in names),
            owner=owner,
            decided=decided,
            state=state,
            beat=beat,
            permit=tuple(shown[f"{name}.PERMIT"] for name in names),
            remote=remote,
            trip=trip or hand,
            grant=grant,
            own=self._own,
        )
        self.state = after = block_scan(self.settings, before, inputs)
        self._own = after.setpoint  # its controllers track the set point
        self._scans += 1
        values: dict[str, Any] = {
            f"{name}.SETPOINT": value for name, value in zip(names, after.setpoint, strict=True)
        }
        values |= {f"NEORL.{name}": int(getattr(after, name.lower())) for name in SHOWN}
        for i, channel in enumerate(self._manifest.obs):
            swing = 0.01 * (channel.high - channel.low) * math.sin(0.1 * self._scans + i)
            values[channel.name] = 0.5 * (channel.low + channel.high) + swing
        self.server.write(values)
        return after


class OpcUaServer:
    """A :class:`TagServer` by OPC UA, on this machine alone.

    Args:
        port: Port on this machine.
    """

    kind = "opcua"

    def __init__(self, port: int) -> None:
        with needs("a simulated plant", "opcua"):
            import asyncua
            from asyncua import ua
        # It listens on this machine alone, so its warnings of an open connection are no news.
        logging.getLogger("asyncua").addHandler(logging.NullHandler())
        self._asyncua, self._ua = asyncua, ua
        self.address = f"opc.tcp://127.0.0.1:{port}/"
        self._nodes: dict[str, Any] = {}
        number, truth, short = ua.VariantType.Double, ua.VariantType.Boolean, ua.VariantType.Int16
        self._types = {float: number, bool: truth, int: short}
        self._kinds: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def tag(self, name: str) -> str:
        """The address of a tag in a tag map."""
        return f"ns=2;s={name}"

    def start(self, tags: Mapping[str, Tag]) -> None:
        """Starts the server with the defaults of these tags."""
        self._call(self._start(tags))

    def stop(self) -> None:
        """Stops the server."""
        self._call(self._server.stop())

    def close(self) -> None:
        """Stops the server and its thread."""
        self.stop()
        self._call(_end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def read(self) -> dict[str, Any]:
        """The value of every tag."""
        return self._call(self._read())

    def write(self, values: Mapping[str, Any]) -> None:
        """Sets tags with the time of this machine."""
        self._call(self._write(values))

    def _call(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(300)

    async def _start(self, tags: Mapping[str, Tag]) -> None:
        ua = self._ua
        self._server = self._asyncua.Server()
        await self._server.init()
        self._server.set_endpoint(self.address)
        self._server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
        space = await self._server.register_namespace(SPACE)
        self._kinds = {name: self._types[type(tag.value)] for name, tag in tags.items()}
        for name, tag in tags.items():
            node = await self._server.nodes.objects.add_variable(
                ua.NodeId(name, space), name, tag.value, self._kinds[name]
            )
            self._nodes[name] = node
            if tag.writable:
                await node.set_writable()
            if tag.channel is not None:  # a server of a plant may state the range
                unit = ua.EUInformation()
                unit.DisplayName = ua.LocalizedText(tag.channel.unit)
                ends = ua.Range(tag.channel.low, tag.channel.high)
                await node.add_property(0, "EURange", ends)
                await node.add_property(0, "EngineeringUnits", unit)
        await self._server.start()

    async def _read(self) -> dict[str, Any]:
        return {name: await node.read_value() for name, node in self._nodes.items()}

    async def _write(self, values: Mapping[str, Any]) -> None:
        ua = self._ua
        stamp = ua.uatypes.datetime.fromtimestamp(time.time(), ua.uatypes.timezone.utc)
        good = ua.StatusCode(ua.StatusCodes.Good)
        for name, value in values.items():
            data = ua.DataValue(ua.Variant(value, self._kinds[name]), good, stamp)
            await self._server.write_attribute_value(self._nodes[name].nodeid, data)


def simulated_tags(bundle: Bundle, server: TagServer) -> str:
    """The text of the tag map of a simulated plant."""
    dt = bundle.manifest.dt

    def node(name: str) -> str:
        return json.dumps(server.tag(name))

    lines = [
        f'bundle = "sha256:{bundle.digest}"',
        "\n[connection]",
        f'kind = "{server.kind}"',
        f'address = "{server.address}"',
        f"timeout = {min(0.5, dt / 4)!r}",
        "\n[loop]",
        f"heartbeat = {node('NEORL.BEAT')}",
        f"plant_heartbeat = {node('NEORL.ALIVE')}",
        f"plant_silence = {3 * dt!r}",
        "\n[block]",
        *(
            f"{name.lower()} = {node(f'NEORL.{name}')}"
            for name in (*WRITTEN, *SHOWN)
            if name not in ("BEAT", "ALIVE")
        ),
    ]
    for channel in bundle.manifest.obs:
        age = min(bundle.manifest.max_age.get(channel.name, 3 * dt), 3 * dt)
        lines += [
            f"\n[[input]]\nchannel = {json.dumps(channel.name)}\ntag = {node(channel.name)}",
            f"unit = {json.dumps(channel.unit)}\nmax_age = {float(age)!r}",
            f"low = {channel.low!r}\nhigh = {channel.high!r}",
        ]
    for channel in bundle.manifest.action:
        name = channel.name
        lines += [
            f"\n[[output]]\nchannel = {json.dumps(name)}\ntag = {node(f'{name}.PROPOSAL')}",
            f"read_back = {node(f'{name}.SETPOINT')}\nunit = {json.dumps(channel.unit)}",
            f"tolerance = {0.01 * (channel.high - channel.low)!r}",
            f"raw_low = {float(channel.low)!r}\nraw_high = {float(channel.high)!r}",
        ]
    return "\n".join(lines) + "\n"
