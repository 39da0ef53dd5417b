"""All process-wide switches, set by the command before the JAX backend starts."""

import importlib.util
import os

from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory

DEVICES_FLAG = "--xla_force_host_platform_device_count"


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
