"""The devices that a command runs on, asked for before anything runs on them."""

import os

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line


def require_devices() -> None:
    """Refuses a kind of device that is not there.

    Raises:
        InputError: Naming what ``JAX_PLATFORMS`` asks for.
    """
    import jax

    try:
        jax.devices()
    except RuntimeError as error:
        wanted = os.environ.get("JAX_PLATFORMS", "")
        raise InputError(
            f"JAX_PLATFORMS={wanted}: that device is not there ({one_line(error)[:160]}); unset "
            "it to run on what there is, or install the driver and 'neorl-train[cuda]'"
        ) from error
