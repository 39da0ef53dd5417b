"""A plant behind a Modbus TCP server (extra ``modbus``)."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError, needs
from neorl_deploy.loop._plant import PlantError, Quality, Reading, require_address, require_timeout
from neorl_deploy.loop._tags import TagMap

__all__ = ["ModbusPlant"]

# Reads and writes a tag map's registers on a Modbus TCP server, one request per tag.


PORT = 502
LENGTHS = {"int16": 1, "uint16": 1, "int32": 2, "uint32": 2, "int64": 4, "uint64": 4}
LENGTHS |= {"float32": 2, "float64": 4}
"""Number of 16-bit registers for each type of number."""
ORDERS = ("big", "little")
TAG = re.compile(r"(holding|input):(\d{1,5}):(\w+)(?::(\w+))?")
EXCEPTIONS = {1: "illegal function", 2: "illegal data address", 3: "illegal data value"}
"""Exception codes of requests that can never succeed, because the tag map does not fit."""
FAILURES = {4: "device failure", 5: "acknowledge", 6: "device busy", 8: "memory parity error"}
FAILURES |= {10: "gateway path unavailable", 11: "gateway target does not respond"}


class Register(NamedTuple):
    """The registers of a tag.

    Attributes:
        table: ``"holding"`` or ``"input"``.
        first: Number of the first register as transmitted, from zero.
        kind: Type of the number.
        order: Which word of the number comes first.
    """

    table: str
    first: int
    kind: str
    order: str

    @property
    def numbers(self) -> range:
        """The register numbers."""
        return range(self.first, self.first + LENGTHS[self.kind])


class _ConnectionLostError(PlantError):
    """The device closed the connection, as many devices do after a time without requests."""


class ModbusPlant:
    """A connection of kind ``modbus``. Tags are registers, such as ``holding:100:float32``.

    A tag is ``TABLE:NUMBER:TYPE``, followed by ``:little`` if the low word comes first. The table
    is ``holding`` or ``input``, the number is the address that is sent, counted from zero, and the
    type is ``int``, ``uint`` or ``float`` with its bits, such as ``int16``. Each tag is read in one
    request, so that a number in several registers is never half old and half new. Modbus transmits
    neither quality nor time, so every value read counts as good and new.

    A device that does not answer, or answers a read with exception 1, 2 or 3 (it has no such
    register), counts as a lost connection, and the next read reconnects. With another exception,
    this one tag is of bad quality. A write never reconnects. One that is answered with an
    exception, or read back as another number, is refused. Only tags that the tag map declares as
    writable can be written. A gateway makes the devices of a serial line available by ``unit``.

    Args:
        tags: The tag map.
        address: For example ``tcp://plant:502``; the default port is 502.
        timeout: Seconds allowed for connecting and for an answer; well below a control period.
        unit: Identifier of the device at the address, 1 to 247.
        word_order: Which word of a number comes first if its tag does not specify it.
        insecure: Allows the address of another machine although Modbus has no security.

    Attributes:
        session: Number of connections so far.

    Raises:
        DeployError: If the address, a setting or a tag is invalid, two tags would write to the same
            register, or the extra is not installed.
    """

    def __init__(
        self,
        tags: TagMap,
        address: str,
        *,
        timeout: float = 0.5,
        unit: int = 1,
        word_order: str = "big",
        insecure: bool = False,
    ) -> None:
        with needs("a connection of kind modbus", "modbus"):
            from pymodbus import ModbusException
            from pymodbus.client import ModbusTcpClient
        require_timeout(timeout)
        parts = require_address(
            address,
            "tcp://plant:502",
            trusted=insecure,
            advice="Modbus has no security",
        )
        if type(unit) is not int or not 1 <= unit <= 247:
            raise DeployError(f"[connection]: unit must be a number from 1 to 247, got {unit!r}")
        if word_order not in ORDERS:
            raise DeployError(f"[connection]: word_order must be big or little, got {word_order!r}")
        self._registers = {
            tag: _register(tag, word_order) for tag in sorted({*tags.read, *tags.writable})
        }
        self._writable = tags.writable
        _require_apart({tag: self._registers[tag] for tag in sorted(tags.writable)})
        self.address, self._timeout, self._unit = address, float(timeout), unit
        self._failed = (ModbusException, OSError)
        logging.getLogger("pymodbus").addHandler(logging.NullHandler())  # the loop reports failures
        self.session = 0
        self._client: Any = ModbusTcpClient(
            parts.hostname or "", port=parts.port or PORT, timeout=self._timeout, retries=0
        )

    def read(self, tags: Sequence[str]) -> list[Reading]:
        """Reads tags; quality is bad if the device reports that it cannot read one now.

        Raises:
            PlantError: If there is no connection, or the device has no such register.
        """
        self._connect()
        deadline = time.monotonic() + self._timeout
        try:
            return [self._reading(tag, deadline) for tag in tags]
        except _ConnectionLostError:  # reading again does not change the plant
            self._connect()
            return [self._reading(tag, deadline) for tag in tags]

    def write(self, values: Mapping[str, float]) -> dict[str, str]:
        """Writes numbers in the type of each tag, one after the other, and reads them back.

        Returns:
            Why a tag was not written: refused by the device, not a finite number of its type, not
            writable in this tag map, or read back as another number.

        Raises:
            PlantError: If the connection broke; it is then unknown what was written.
        """
        self._connect()
        deadline = time.monotonic() + self._timeout
        refused: dict[str, str] = {}
        sent: dict[str, list[int]] = {}
        for tag, value in values.items():
            if tag not in self._writable:
                refused[tag] = "the tag map does not write it"
            elif why := _range_fault(value, self._registers[tag].kind):
                refused[tag] = why
            else:
                words = self._words(tag, value)
                if code := self._write_words(tag, words, deadline):
                    refused[tag] = _meaning(code)
                else:
                    sent[tag] = words
        for tag, words in sent.items():
            back, code = self._read(tag, deadline)
            if code:
                refused[tag] = f"it cannot be read back: {_meaning(code)}"
            elif back != words:
                read_back, written = self._number(tag, back), self._number(tag, words)
                refused[tag] = f"it reads {read_back:g} after {written:g} was written"
        return refused

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _connect(self) -> None:
        if self._client.connected:
            return
        if not self._client.connect():
            raise PlantError(f"{self.address}: no connection in {self._timeout:g} s")
        self.session += 1

    def _reading(self, tag: str, deadline: float) -> Reading:
        words, code = self._read(tag, deadline)
        if code in EXCEPTIONS:
            raise PlantError(f"{self.address}, {tag}: {_meaning(code)}")
        return Reading(math.nan, Quality.BAD) if code else Reading(self._number(tag, words))

    def _read(self, tag: str, deadline: float) -> tuple[list[int], int]:
        """The registers of a tag, and the exception code received instead, or zero."""
        register = self._registers[tag]
        name = "read_holding_registers" if register.table == "holding" else "read_input_registers"
        answer = self._request(tag, name, deadline, register.first, count=len(register.numbers))
        words = [] if answer.isError() else list(answer.registers)
        if not answer.isError() and len(words) != len(register.numbers):
            self._client.close()
            raise PlantError(f"{self.address}, {tag}: the answer holds {len(words)} registers")
        return words, answer.exception_code

    def _write_words(self, tag: str, words: list[int], deadline: float) -> int:
        first = self._registers[tag].first
        if len(words) == 1:
            answer = self._request(tag, "write_register", deadline, first, words[0])
        else:
            answer = self._request(tag, "write_registers", deadline, first, words)
        return answer.exception_code

    def _request(self, tag: str, name: str, deadline: float, *request: Any, **more: Any) -> Any:
        try:
            if time.monotonic() > deadline:
                raise TimeoutError
            return getattr(self._client, name)(*request, device_id=self._unit, **more)
        except self._failed as error:
            broken = not self._client.connected
            self._client.close()
            if broken:
                raise _ConnectionLostError(
                    f"{self.address}, {tag}: the connection broke"
                ) from error
            late = f"no answer in {self._timeout:g} s"
            raise PlantError(f"{self.address}, {tag}: {late}") from error

    def _words(self, tag: str, value: float) -> list[int]:
        kind, order = self._registers[tag][2:]
        number = float(value) if kind.startswith("float") else round(value)
        return self._client.convert_to_registers(
            number, self._client.DATATYPE[kind.upper()], word_order=order
        )

    def _number(self, tag: str, words: list[int]) -> float:
        kind, order = self._registers[tag][2:]
        return float(
            self._client.convert_from_registers(
                words, self._client.DATATYPE[kind.upper()], word_order=order
            )
        )


def _register(tag: str, word_order: str) -> Register:
    match = TAG.fullmatch(tag)
    if match is None:
        raise DeployError(f"the tag {tag!r} is not a register; write it like holding:100:float32")
    table, first, kind, order = match.groups(default=word_order)
    if kind not in LENGTHS:
        raise DeployError(f"the tag {tag!r}: {kind!r} is none of {', '.join(LENGTHS)}")
    if order not in ORDERS:
        raise DeployError(f"the tag {tag!r}: its word order must be big or little, got {order!r}")
    register = Register(table, int(first), kind, order)
    if register.numbers[-1] > 65_535:
        raise DeployError(f"the tag {tag!r}: registers are numbered from 0 to 65535")
    return register


def _require_apart(writable: Mapping[str, Register]) -> None:
    owners: dict[int, str] = {}
    for tag, register in writable.items():
        if register.table != "holding":
            raise DeployError(
                f"the tag {tag!r} would be written, but input registers are read only"
            )
        for number in register.numbers:
            if number in owners:
                raise DeployError(
                    f"the tags {owners[number]!r} and {tag!r} write the same register"
                )
            owners[number] = tag


def _range_fault(value: float, kind: str) -> str:
    if not math.isfinite(value):
        return f"{value} is not a finite number"
    if kind.startswith("float"):
        fits = abs(value) <= float(np.finfo(kind).max)
    else:
        fits = np.iinfo(kind).min <= round(value) <= np.iinfo(kind).max
    return "" if fits else f"{value:g} does not fit its type, {kind}"


def _meaning(code: int) -> str:
    return f"exception {code}, {(EXCEPTIONS | FAILURES).get(code, 'of no name')}"
