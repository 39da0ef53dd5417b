"""A plant behind an OPC UA server (extra ``opcua``)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import datetime
import logging
import math
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy._errors import needs
from neorl_deploy.loop._check import EngineeringRange
from neorl_deploy.loop._plant import PlantError, Quality, Reading, require_address, require_timeout
from neorl_deploy.loop._tags import TagMap

__all__ = ["OpcUaPlant"]

# Reads and writes a tag map's tags on an OPC UA server, each in one call with a time limit.


WHOLE = {"SByte": 8, "Byte": 8, "Int16": 16, "UInt16": 16, "Int32": 32, "UInt32": 32}
WHOLE |= {"Int64": 64, "UInt64": 64}
"""Bits of the integer types, by the name of the type."""


FORCED = "GoodLocalOverride"
"""Status of a value that a person has put in the place of the device's; it counts as uncertain."""


class OpcUaPlant:
    """A connection of kind ``opcua``. Tags are node identifiers, such as ``ns=2;s=LI-101.PV``.

    One call reads all tags with their status and source time, one call writes, and a third reads
    back what was written. A call that does not finish in time counts as a lost connection; the next
    call creates a new client. Only tags that the tag map declares as writable can be written.

    Args:
        tags: The tag map.
        address: For example ``opc.tcp://plant:4840``.
        timeout: Seconds allowed for any call; well below a control period.
        security: Policy, mode, own certificate and own key in asyncua's format, such as
            ``"Basic256Sha256,SignAndEncrypt,own.pem,key.pem"``; the server's certificate may
            follow.
        user: Name of the user; empty for an anonymous session.
        password_file: File that contains the password.
        insecure: Allows the address of another machine without ``security``.

    Attributes:
        session: Number of connections so far.

    Raises:
        DeployError: If the address is invalid, or names another machine without security; or if the
            extra is not installed.
    """

    def __init__(
        self,
        tags: TagMap,
        address: str,
        *,
        timeout: float = 0.5,
        security: str = "",
        user: str = "",
        password_file: str = "",
        insecure: bool = False,
    ) -> None:
        with needs("a connection of kind opcua", "opcua"):
            import asyncua
            from asyncua import ua
        logging.getLogger("asyncua").addHandler(logging.NullHandler())  # the loop reports failures
        require_timeout(timeout)
        require_address(
            address,
            "opc.tcp://plant:4840",
            trusted=bool(security) or insecure,
            advice="give security and certificates",
        )
        self._ua, self._asyncua, self.address = ua, asyncua, address
        self._timeout, self._security = float(timeout), security
        self._user, self._password_file = user, password_file
        self._writable, self._all = tags.writable, tags.read
        self.session = 0
        self._client: Any = None
        self._nodes: dict[str, Any] = {}
        self._types: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def read(self, tags: Sequence[str]) -> list[Reading]:
        """Reads tags with their status and source time.

        Raises:
            PlantError: If there is no connection, or a tag is unknown to the server.
        """
        self._connect()
        return [self._reading(value) for value in self._values([self._node(t) for t in tags])]

    def write(self, values: Mapping[str, float]) -> dict[str, str]:
        """Writes numbers in the type of each node, and reads them back.

        Returns:
            Why a tag was not written: refused by the server, not a finite number of its type, not
            writable in this tag map, or read back as another number.

        Raises:
            PlantError: If the connection broke; it is then unknown what was written.
        """
        self._connect()
        refused: dict[str, str] = {}
        variants: dict[str, Any] = {}
        for tag, value in values.items():
            if tag not in self._writable:
                refused[tag] = "the tag map does not write it"
            elif why := _range_fault(value, self._types[tag].name):
                refused[tag] = why
            else:
                variants[tag] = self._variant(tag, value)
        if not variants:
            return refused
        nodes = [self._node(tag) for tag in variants]
        statuses = self._whole(
            self._client.write_values(nodes, variants.values(), raise_on_partial_error=False), nodes
        )
        for tag, status in zip(variants, statuses, strict=True):
            if not status.is_good():
                refused[tag] = status.name
        for (tag, sent), value in zip(variants.items(), self._values(nodes), strict=True):
            reading = self._reading(value)
            if tag not in refused and reading.value != float(sent.Value):
                refused[tag] = f"it reads {reading.value:g} after {sent.Value:g} was written"
        return refused

    def ranges(self, tags: Sequence[str]) -> dict[str, EngineeringRange]:
        """Engineering range and unit of every tag for which the server states them.

        Raises:
            PlantError: If there is no connection.
        """
        self._connect()
        return self._wait(self._ranges(tags))

    async def _ranges(self, tags: Sequence[str]) -> dict[str, EngineeringRange]:
        stated = {}
        for tag in tags:
            held = {}
            for name in ("EURange", "EngineeringUnits"):
                with contextlib.suppress(self._ua.UaError):
                    held[name] = await (await self._node(tag).get_child(f"0:{name}")).read_value()
            if (ends := held.get("EURange")) is not None:
                unit = getattr(held.get("EngineeringUnits"), "DisplayName", None)
                text = str(getattr(unit, "Text", "") or "")
                stated[tag] = EngineeringRange(float(ends.Low), float(ends.High), text)
        return stated

    def close(self) -> None:
        """Closes the connection and its thread."""
        if self._loop.is_closed():
            return
        client, self._client = self._client, None
        first = [] if client is None else [self._abandon(client)]
        for last in (*first, asyncio.run_coroutine_threadsafe(_end(), self._loop)):
            with contextlib.suppress(Exception):
                last.result(2 * self._timeout)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2 * self._timeout)
        if not self._thread.is_alive():
            self._loop.close()

    def _connect(self) -> None:
        if self._client is not None:
            return
        client = self._asyncua.Client(self.address, timeout=self._timeout)
        try:
            self._wait(self._open(client))
        except PlantError:
            self._abandon(client)
            raise
        self._client = client
        self.session += 1

    async def _open(self, client: Any) -> None:
        if self._security:
            await client.set_security_string(self._security)
        if self._user:
            client.set_user(self._user)
            client.set_password(Path(self._password_file).read_text("utf-8").strip())
        await client.connect()
        nodes = {tag: client.get_node(tag) for tag in {*self._all, *self._writable}}
        read = await client.read_attributes(nodes.values())
        for tag, value in zip(nodes, read, strict=True):
            if value.StatusCode.name in ("BadNodeIdUnknown", "BadNodeIdInvalid"):
                raise PlantError(f"{self.address} has no tag {tag!r}")
        for tag in self._writable:
            self._types[tag] = await nodes[tag].read_data_type_as_variant_type()
            if self._types[tag].name not in (*WHOLE, "Float", "Double"):
                raise PlantError(f"{tag!r} at {self.address} holds no number")
        self._nodes = nodes

    def _node(self, tag: str) -> Any:
        return self._nodes[tag]

    def _variant(self, tag: str, value: float) -> Any:
        kind = self._types[tag]
        if kind.name in WHOLE:
            return self._ua.Variant(round(value), kind)
        rounded = float(np.float32(value)) if kind.name == "Float" else float(value)
        return self._ua.Variant(rounded, kind)

    def _reading(self, value: Any) -> Reading:
        status = value.StatusCode
        quality = Quality.BAD
        if status is not None and (status.name == FORCED or status.is_uncertain()):
            quality = Quality.UNCERTAIN
        elif status is None or status.is_good():
            quality = Quality.GOOD
        held = None if value.Value is None else value.Value.Value
        number = float(held) if isinstance(held, bool | int | float) else math.nan
        return Reading(number, quality, _seconds(value.SourceTimestamp))

    def _values(self, nodes: Sequence[Any]) -> list[Any]:
        return self._whole(self._client.read_attributes(nodes), nodes)

    def _whole(self, call: Coroutine[Any, Any, Any], nodes: Sequence[Any]) -> list[Any]:
        """The results of a call, one for each node."""
        results = list(self._wait(call))
        if len(results) != len(nodes):
            self._drop()
            raise PlantError(f"{self.address}: {len(results)} answers for {len(nodes)} tags")
        return results

    def _wait(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The result of a call to the server within the time limit, or a one-line error."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(self._timeout)
        except PlantError:
            self._drop()
            raise
        except (asyncio.CancelledError, Exception) as error:
            future.cancel()
            self._drop()
            late = isinstance(error, TimeoutError)
            reason = f"no answer in {self._timeout:g} s" if late else _reason(error)
            raise PlantError(f"{self.address}: {reason}") from error

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._abandon(client)

    def _abandon(self, client: Any) -> concurrent.futures.Future[None]:
        """Starts disconnecting a client whose server may be gone."""

        async def end() -> None:
            try:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(client.disconnect(), self._timeout)
            finally:
                with contextlib.suppress(Exception):
                    client.uaclient.disconnect_socket()

        return asyncio.run_coroutine_threadsafe(end(), self._loop)


async def _end() -> None:
    """Ends everything still running in an event loop that is about to be closed."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0.01)  # a transport closes in the next iteration of the loop


def _range_fault(value: float, kind: str) -> str:
    if not math.isfinite(value):
        return f"{value} is not a finite number"
    if kind in WHOLE:
        signed = not kind.startswith("U") and kind != "Byte"
        low = -(2 ** (WHOLE[kind] - 1)) if signed else 0
        high = 2 ** (WHOLE[kind] - signed) - 1
        if not low <= round(value) <= high:
            return f"{value:g} does not fit its type, {kind}"
    return ""


def _seconds(stamp: datetime.datetime | None) -> float | None:
    if stamp is None:
        return None
    aware = stamp if stamp.tzinfo else stamp.replace(tzinfo=datetime.UTC)
    return aware.timestamp()


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
