"""Every switch of the whole process that a command sets."""

import gc
import importlib.util

from neorl_deploy._errors import DeployError

NUMPY_FORM = "; or add --form numpy, which needs NumPy alone, where the bundle has that form"
"""What there is in place of the compiled form."""


def prepare_jax() -> None:
    """Switches of the whole process, set before JAX starts.

    Synchronous dispatch: a single step is two to three times faster by it. No compilation cache:
    what runs comes from the verified bundle, not from files that nobody sealed.
    """
    try:
        import jax
    except ImportError:
        return
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def require_jax(*, other: str = "") -> None:
    """Prepares JAX for what does not go without it.

    Args:
        other: What may be done in place of installing it.

    Raises:
        DeployError: If it is not installed.
    """
    if importlib.util.find_spec("jax") is None:
        raise DeployError(
            f'a compiled bundle needs jax, which is not installed: pip install "neorl-deploy[jax]"'
            f"{other}"
        )
    prepare_jax()


def settle_memory() -> None:
    """Takes all that was made so far out of the search for garbage.

    JAX and what it compiled are hundreds of thousands of objects that stay; looking at them would
    hold a control step up for tens of milliseconds now and then.
    """
    gc.collect()
    gc.freeze()
