"""Names in Gymnasium's registry; the shells are imported when one is made."""

import gymnasium

from neorl_envs.plants._table import ENVIRONMENTS

NAMESPACE = "neorl"


def gymnasium_id(name: str, *, physical: bool = False) -> str:
    """Gymnasium's name of an environment: ``neorl/Name-v0`` or ``neorl/Name-physical-v0``."""
    base, version = name.rsplit("-", 1)
    return f"{NAMESPACE}/{base}{'-physical' if physical else ''}-{version}"


def register_environments() -> None:
    """Adds every environment to Gymnasium's registry, once."""
    for name in ENVIRONMENTS:
        for physical in (False, True):
            identifier = gymnasium_id(name, physical=physical)
            if identifier not in gymnasium.registry:
                gymnasium.register(
                    id=identifier,
                    entry_point="neorl_envs.interfaces._gymnasium:GymnasiumEnv",
                    vector_entry_point="neorl_envs.interfaces._gymnasium_vector:GymnasiumVectorEnv",
                    kwargs={"name": name, "physical": physical},
                )
