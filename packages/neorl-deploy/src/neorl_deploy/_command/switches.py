"""The process-wide switches that commands set."""

import gc
import importlib.util

from neorl_deploy._errors import missing_extra

NUMPY_FORM = "; or add --form numpy, which needs NumPy alone, where the bundle has that form"
"""Advice for a user without the compiled form."""


def prepare_jax() -> None:
    """Sets process-wide switches before JAX starts.

    Synchronous dispatch makes a single step two to three times faster. The compilation cache is
    off, so that only programs of the verified bundle run, and no files that nobody sealed.
    """
    try:
        import jax
    except ImportError:
        return
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def require_jax(*, other: str = "") -> None:
    """Prepares JAX, or names what a user without it can do instead of installing it."""
    if importlib.util.find_spec("jax") is None:
        raise missing_extra("a compiled bundle", "jax", ImportError(name="jax"), other=other)
    prepare_jax()


def settle_memory() -> None:
    """Excludes all objects that exist now from garbage collection.

    JAX and its compiled programs are hundreds of thousands of long-lived objects; scanning them
    would occasionally delay a control step by tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
