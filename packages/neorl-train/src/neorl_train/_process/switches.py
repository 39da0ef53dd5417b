"""Every process-wide switch, set by the command before the JAX backend starts."""

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
    """Sets every process-wide switch; what the environment already says is kept.

    - Every core is a host device of its own (``XLA_FLAGS``), so that seeds run side by side.
    - Compiled programs persist in the user's cache, the small ones too.
    - Matrix products of float32 are exact to float32 where there may be an accelerator. JAX's own
      choice there is a format with three digits, in which a filter or a learner is another one
      than on a CPU. ``JAX_DEFAULT_MATMUL_PRECISION`` is kept.
    - The telemetry of MLflow, and of whatever honours ``DO_NOT_TRACK``, is off, and its server is
      asked twice, for ten seconds each, before tracking gives up.

    Call it before anything has run on a device: a backend that runs keeps its devices.
    """
    environ = os.environ
    flags = environ.get("XLA_FLAGS", "")
    if DEVICES_FLAG not in flags:
        environ["XLA_FLAGS"] = f"{flags} {DEVICES_FLAG}={cores()}".strip()
    if "JAX_DEFAULT_MATMUL_PRECISION" not in environ and may_have_accelerator():
        import jax  # here, since most commands print something and need none of it

        jax.config.update("jax_default_matmul_precision", "highest")
    environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    environ.setdefault("DO_NOT_TRACK", "true")
    # MLflow would try a server that is gone for minutes; the records can be copied later.
    environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    keep_compiled_programs(cache_directory())


def may_have_accelerator() -> bool:
    """Whether JAX would look for one; asking JAX itself would start its devices."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        return False
    return any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
