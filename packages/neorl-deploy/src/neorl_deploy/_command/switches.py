"""Every switch of the whole process that a command sets."""


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
