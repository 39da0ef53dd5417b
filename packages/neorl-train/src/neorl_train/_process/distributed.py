"""Joins the processes of one training on one or more machines, as the environment names them."""

import os
import sys
import time
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line

COORDINATOR, PROCESSES, PROCESS = "NEORL_COORDINATOR", "NEORL_PROCESSES", "NEORL_PROCESS"
AUTO = "auto"
SECONDS_TO_JOIN = 300
SECONDS_TO_NOTICE = 30
"""Seconds until a process that stopped responding counts as lost."""
SECONDS_TO_SAY = 2


def join_processes() -> None:
    """Makes this process one of several if the environment says so, and requests devices.

    ``NEORL_COORDINATOR`` is the address of process 0 as ``HOST:PORT``, ``NEORL_PROCESSES`` the
    number of processes and ``NEORL_PROCESS`` the number of this one, from 0; with
    ``NEORL_COORDINATOR=auto`` JAX takes all three from SLURM, Open MPI or Kubernetes. Call this
    before anything has run on a device.

    Raises:
        InputError: If a variable is missing or is not a number, the other processes do not join, or
            the kind of device in ``JAX_PLATFORMS`` is not available.
    """
    import jax

    address = os.environ.get(COORDINATOR, "")
    if address and not jax.distributed.is_initialized():
        count, number = (0, 0) if address == AUTO else _numbers(address)
        options: dict[str, Any] = {"heartbeat_timeout_seconds": SECONDS_TO_NOTICE}
        try:
            if address == AUTO:
                jax.distributed.initialize(**options)
            else:
                jax.distributed.initialize(
                    address, count, number, initialization_timeout=SECONDS_TO_JOIN, **options
                )
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"{COORDINATOR}={address}: the processes of this training cannot be joined: "
                f"{one_line(error)[:200]}; start all of them, each with its own {PROCESS}, and let "
                "each reach that address"
            ) from error
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # JAX asserts if no kind of device is left
        platform = os.environ.get("JAX_PLATFORMS", "")
        why = f" ({one_line(error)[:160]})" if str(error) else ""
        raise InputError(
            f"JAX_PLATFORMS={platform}: that device is not available{why}; unset the variable to "
            "use the devices of this machine, or install the driver and 'neorl-train[cuda]'"
        ) from error


def _numbers(address: str) -> tuple[int, int]:
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise InputError(f"{COORDINATOR} must be HOST:PORT or {AUTO}, got {address!r}")
    values = []
    for name in (PROCESSES, PROCESS):
        text = os.environ.get(name, "")
        if not text.isdecimal():
            raise InputError(f"{COORDINATOR} is set, so {name} must be an integer, got {text!r}")
        values.append(int(text))
    count, number = values
    if not 0 <= number < count:
        raise InputError(f"{PROCESS} must be below {PROCESSES} = {count}, got {number}")
    return count, number


def exit_process(code: int) -> int:
    """Ends a failed process of several immediately; a single process just gets its exit code.

    The usual exit handlers would wait for processes that are gone, and then abort.
    """
    jax = sys.modules.get("jax")
    if code == 0 or jax is None or not jax.distributed.is_initialized():
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    if jax.process_index() == 0:
        time.sleep(SECONDS_TO_SAY)  # the others abort without process 0, so they report first
    os._exit(code)
