"""A simulated plant on an OPC UA server: measurements, its own controllers, and the block."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from collections.abc import Coroutine
from typing import Any

from neorl_deploy._errors import missing_extra
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


class SimulatedPlant:
    """A plant of the channels of a bundle, with ``neorl_block.st`` between the loop and it.

    The measurements swing a little about the middle of their ranges; they do not answer to the
    actuators, since the plant of a bundle is not known. The plant's own controllers hold each
    actuator, and track the set point while the block takes the loop's. Permits and the tags
    ``NEORL.REMOTE``, ``NEORL.TRIP`` and ``NEORL.GRANT`` may be written by any client, as a person
    at the plant would set them.

    Args:
        manifest: Manifest of the bundle.
        port: Port on this machine.
        patience: Scans without a new beat after which the block sheds.

    Attributes:
        address: Address of the server.
        state: The block after the last scan.
        settings: Limits of the block: the ranges of the actuators, and a quarter of each as the
            largest move.
    """

    def __init__(self, manifest: Manifest, port: int, *, patience: int) -> None:
        try:
            import asyncua
            from asyncua import ua
        except ImportError as error:
            raise missing_extra("a simulated plant", "opcua", error) from error
        # It listens on this machine alone, so its warnings of an open connection are no news.
        logging.getLogger("asyncua").addHandler(logging.NullHandler())
        self._asyncua, self._ua, self._manifest = asyncua, ua, manifest
        self.address = f"opc.tcp://127.0.0.1:{port}/"
        low = tuple(float(channel.low) for channel in manifest.action)
        high = tuple(float(channel.high) for channel in manifest.action)
        move = tuple(0.25 * (h - lo) for lo, h in zip(low, high, strict=True))
        self.settings = BlockSettings(low, high, move, patience)
        self._rest = tuple(lo + STARTED_FROM * (h - lo) for lo, h in zip(low, high, strict=True))
        self._own, self._scans = self._rest, 0
        self.state = BlockState(self._rest)
        self._nodes: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    def start(self) -> None:
        """Starts the server with its defaults, as after a restart: the block has no memory."""
        self.state = BlockState(self._own)
        self._call(self._start())

    def restart(self) -> None:
        """Restarts the plant's controller behind its server: defaults, and no memory."""
        self._own = self._rest
        self.state = BlockState(self._own)
        for name, (value, _, _) in self._tags().items():
            self.set(name, value)

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

    def get(self, name: str) -> Any:
        """The value of a tag, by its name without the namespace."""
        return self._call(self._nodes[name].read_value())

    def set(self, name: str, value: float | bool) -> None:
        """Sets a tag, as a person at the plant or another client would."""
        self._call(self._write(name, value))

    def scan(self) -> BlockState:
        """One scan of the plant's controller: measurements, block, set points."""
        self._call(self._scan())
        return self.state

    def line(self) -> str:
        """One line on who has the actuators, and why."""
        names = [channel.name for channel in self._manifest.action]
        values = zip(names, self.state.setpoint, strict=True)
        acts = "the loop acts" if self.state.active else "the plant's own controllers act"
        why = TEXTS[BlockReason(self.state.reason)]
        return f"{acts} ({why}): " + ", ".join(f"{name} {value:g}" for name, value in values)

    def _call(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(60)

    async def _start(self) -> None:
        ua = self._ua
        self._server = self._asyncua.Server()
        await self._server.init()
        self._server.set_endpoint(self.address)
        self._server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
        space = await self._server.register_namespace(SPACE)
        tags = self._tags()
        self._types = {name: kind for name, (_, kind, _) in tags.items()}
        for name, (value, kind, writable) in tags.items():
            node = await self._server.nodes.objects.add_variable(
                ua.NodeId(name, space), name, value, kind
            )
            self._nodes[name] = node
            if writable:
                await node.set_writable()
        for channel in self._manifest.obs:
            await self._state(channel.name, channel)
        for channel in self._manifest.action:
            await self._state(f"{channel.name}.PROPOSAL", channel)
        await self._server.start()

    async def _state(self, name: str, channel: ChannelEntry) -> None:
        """States the engineering range of a tag, as a server of a plant may do."""
        ua = self._ua
        ends, unit = ua.Range(channel.low, channel.high), ua.EUInformation()
        unit.DisplayName = ua.LocalizedText(channel.unit)
        await self._nodes[name].add_property(0, "EURange", ends)
        await self._nodes[name].add_property(0, "EngineeringUnits", unit)

    def _tags(self) -> dict[str, tuple[Any, Any, bool]]:
        """Default, type and whether a client may write, of every tag."""
        ua = self._ua
        number, truth, short = ua.VariantType.Double, ua.VariantType.Boolean, ua.VariantType.Int16
        tags: dict[str, tuple[Any, Any, bool]] = {
            channel.name: (0.5 * (channel.low + channel.high), number, False)
            for channel in self._manifest.obs
        }
        for channel, value in zip(self._manifest.action, self._own, strict=True):
            tags[f"{channel.name}.PROPOSAL"] = value, number, True
            tags[f"{channel.name}.SETPOINT"] = value, number, False
            tags[f"{channel.name}.PERMIT"] = True, truth, True
        tags |= {f"NEORL.{name}": (0, short, True) for name in WRITTEN}
        tags |= {f"NEORL.{name}": (0, short, False) for name in SHOWN}
        return tags | {f"NEORL.{name}": (value, truth, True) for name, value in PERSONS.items()}

    async def _write(self, name: str, value: float | bool) -> None:
        ua = self._ua
        stamp = ua.uatypes.datetime.fromtimestamp(time.time(), ua.uatypes.timezone.utc)
        good = ua.StatusCode(ua.StatusCodes.Good)
        data = ua.DataValue(ua.Variant(value, self._types[name]), good, stamp)
        await self._server.write_attribute_value(self._nodes[name].nodeid, data)

    async def _scan(self) -> None:
        async def read(name: str) -> Any:
            return await self._nodes[name].read_value()

        names = [channel.name for channel in self._manifest.action]
        owner, decided, state, beat = [await read(f"NEORL.{name}") for name in WRITTEN]
        remote, trip, grant = [await read(f"NEORL.{name}") for name in PERSONS]
        hand = False
        for i, name in enumerate(names):  # a set point that this controller did not write
            shown = await read(f"{name}.SETPOINT")
            if self.state.started and shown != self.state.setpoint[i]:
                hand = True
                self._own = (*self._own[:i], shown, *self._own[i + 1 :])
        inputs = BlockInputs(
            proposal=tuple([await read(f"{name}.PROPOSAL") for name in names]),
            owner=owner,
            decided=decided,
            state=state,
            beat=beat,
            permit=tuple([await read(f"{name}.PERMIT") for name in names]),
            remote=remote,
            trip=trip or hand,
            grant=grant,
            own=self._own,
        )
        self.state = block_scan(self.settings, self.state, inputs)
        self._own = self.state.setpoint  # its controllers track the set point
        self._scans += 1
        for name, value in zip(names, self.state.setpoint, strict=True):
            await self._write(f"{name}.SETPOINT", value)
        for name in SHOWN:
            await self._write(f"NEORL.{name}", int(getattr(self.state, name.lower())))
        for i, channel in enumerate(self._manifest.obs):
            swing = 0.01 * (channel.high - channel.low) * math.sin(0.1 * self._scans + i)
            await self._write(channel.name, 0.5 * (channel.low + channel.high) + swing)


def simulated_tags(bundle: Bundle, address: str) -> str:
    """The text of the tag map of a simulated plant."""
    dt = bundle.manifest.dt

    def node(name: str) -> str:
        return json.dumps(f"ns=2;s={name}")

    lines = [
        f'bundle = "sha256:{bundle.digest}"',
        "\n[connection]",
        'kind = "opcua"',
        f'address = "{address}"',
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
        ]
    return "\n".join(lines) + "\n"
