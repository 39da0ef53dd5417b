"""Description of the numerical environment, which determines the last bits of a computation."""

import os
import platform
from importlib import metadata
from pathlib import Path

import jax

SETS = ("avx512f", "avx2", "avx", "sse4_2")
"""Instruction sets of x86, widest first."""
HARMLESS = ("--xla_cpu_multi_thread_eigen", "--xla_force_host_platform_device_count")
"""Flags that change the speed of a computation but not its result, as a test verifies."""


def numerical_environment() -> str:
    """Compiler, device, instruction set and optimisation, on which the bits of a result depend.

    Returns:
        A description such as ``"jaxlib 0.10.2, cpu x86_64 avx512f, optimised"``.

    Example:
        >>> numerical_environment().startswith("jaxlib ")
        True
    """
    least = jax.config.read("jax_disable_most_optimizations")
    words = [f"jaxlib {metadata.version('jaxlib')}", _device(), "plain" if least else "optimised"]
    flags = [
        flag
        for flag in sorted(os.environ.get("XLA_FLAGS", "").split())
        if flag.partition("=")[0] not in HARMLESS
    ]
    return ", ".join(words + flags)


def _device() -> str:
    device = jax.devices()[0]
    if device.platform != "cpu":
        return f"{device.platform} {device.device_kind}"
    return f"cpu {platform.machine().lower()} {_instructions()}".rstrip()


def _instructions(path: Path = Path("/proc/cpuinfo")) -> str:
    """The widest known instruction set; empty if the system does not report it."""
    try:
        text = path.read_text()
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.startswith("flags")]
    known = set(lines[0].split()) if lines else set()
    return next((name for name in SETS if name in known), "")
