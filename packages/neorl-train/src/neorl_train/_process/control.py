"""The process of a command: its switches before JAX starts, its signals, and others beside it."""

import contextlib
import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import StoppedError, cache_directory, one_line

DEVICES_FLAG = "--xla_force_host_platform_device_count"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
COORDINATOR, PROCESSES, PROCESS = "NEORL_COORDINATOR", "NEORL_PROCESSES", "NEORL_PROCESS"
AUTO = "auto"
SECONDS_TO_JOIN = 300
SECONDS_TO_NOTICE = 30
"""Seconds until a process that stopped responding counts as lost."""
SECONDS_TO_SAY = 2


class InterruptedRunError(StoppedError):
    """A signal stopped a run, which can be resumed; ``resume`` is the command for this."""


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prepare_process() -> None:
    """Sets every process-wide switch; values that the environment already defines are kept.

    - Every core becomes a separate host device (``XLA_FLAGS``), so that seeds run in parallel.
    - Compiled programs, even small ones, are cached on the user's disk.
    - Matrix products of float32 have full precision if there may be an accelerator. JAX's default
      there is a format with three digits, with which a filter or a learner would differ from that
      on a CPU. ``JAX_DEFAULT_MATMUL_PRECISION`` is kept.
    - The telemetry of MLflow, and of all software that honours ``DO_NOT_TRACK``, is off. The MLflow
      server is tried twice, for ten seconds each, before tracking gives up.

    Call it before anything has run on a device, because a running backend keeps its devices.
    """
    environ = os.environ
    flags = environ.get("XLA_FLAGS", "")
    if DEVICES_FLAG not in flags:
        environ["XLA_FLAGS"] = f"{flags} {DEVICES_FLAG}={cores()}".strip()
    if "JAX_DEFAULT_MATMUL_PRECISION" not in environ and may_have_accelerator():
        import jax  # imported here because most commands only print something and do not need it

        jax.config.update("jax_default_matmul_precision", "highest")
    environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    environ.setdefault("DO_NOT_TRACK", "true")
    # MLflow would try an unreachable server for minutes; the records can be copied later.
    environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    keep_compiled_programs(cache_directory())


def may_have_accelerator() -> bool:
    """Whether JAX would look for an accelerator; asking JAX itself would start its devices."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        return False
    return any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))


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


class StopSignal:
    """Turns signals into :class:`InterruptedRunError`: immediately, or on request in :meth:`later`.

    A context manager; outside the main thread it does nothing.

    Args:
        print_line: Called with one line if a signal was received but is handled later.
    """

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line
        self._later = False
        self._before: dict[int, Any] = {}
        self.number: int | None = None

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def later(self) -> Iterator[None]:
        """In this context, a first signal only sets :attr:`number`; a second stops immediately."""
        self._later = True
        try:
            yield
        finally:
            self._later = False

    def requested(self) -> bool:
        """Whether a signal was received."""
        return self.number is not None

    def check(self) -> None:
        """Raises :class:`InterruptedRunError` if a signal was received."""
        if self.number is not None:
            raise InterruptedRunError(self.number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._later and self.number is None:
            self.number = number
            self._print_line(
                "stopping at the end of this chunk; send the signal once more to stop immediately"
            )
            return
        raise InterruptedRunError(number)
