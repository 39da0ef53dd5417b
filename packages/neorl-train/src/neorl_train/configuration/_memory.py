"""The memory that a log may take, and the decision to leave it on disk instead."""

import math
import re

from neorl_core import InputError

PEAK = 5
"""Peak memory of a log that is trained on in memory, as a multiple of its file size."""
SAMPLE = 20
"""Divisor of the memory: this part may hold a sample of episodes if not all of them fit."""
_UNITS = {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_AMOUNT = re.compile(rf"\s*(\d+(?:\.\d+)?|\.\d+)\s*({'|'.join(_UNITS)})\s*")


def memory_bytes(text: str, name: str = "data.memory") -> float:
    """Bytes of an amount such as ``"2GB"``.

    Args:
        text: The amount.
        name: Name of the setting, for messages.

    Raises:
        InputError: If it is not an amount of memory.

    Example:
        >>> memory_bytes("1.5 GB")
        1500000000.0
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        or_zero = " or 0 (always stream)" if name == "data.memory" else ""
        raise InputError(f"{name} must be an amount such as 2GB, 500MB{or_zero}, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def memory_limit(text: str) -> float:
    """Bytes that training may take according to ``devices.memory``; infinite if it is empty.

    Raises:
        InputError: If it is not an amount, or is zero.
    """
    if not text.strip():
        return math.inf
    amount = memory_bytes(text, "devices.memory")
    if not amount:
        raise InputError(
            "devices.memory must be above 0; leave it empty to use the memory that is available"
        )
    return amount


def stays_on_disk(memory: str, n_bytes: int) -> bool:
    """Whether a log file of a given size would take more than a given amount of memory."""
    return PEAK * n_bytes > memory_bytes(memory)
