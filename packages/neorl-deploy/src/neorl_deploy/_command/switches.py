"""Every switch of the whole process that a command sets."""

import gc


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


def settle_memory() -> None:
    """Takes all that was made so far out of the search for garbage.

    JAX and what it compiled are hundreds of thousands of objects that stay; looking at them would
    hold a control step up for tens of milliseconds now and then.
    """
    gc.collect()
    gc.freeze()
