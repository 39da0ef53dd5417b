"""Registration with Gymnasium; the environment classes are imported when one is created."""

from neorl_envs.plants._table import ANNOUNCE, PLANTS, VERSIONED, environment_names

NAMESPACE = "neorl"


def gymnasium_id(name: str, *, physical: bool = False) -> str:
    """Gymnasium id of an environment: ``neorl/Name-v0`` or ``neorl/Name-physical-v0``."""
    base, version = name.rsplit("-", 1)
    return f"{NAMESPACE}/{base}{'-physical' if physical else ''}-{version}"


def register_environments() -> None:
    """Adds all plants to Gymnasium's registry, including those that are registered later."""
    for name in environment_names():
        register_environment(name)
    if register_environment not in ANNOUNCE:
        ANNOUNCE.append(register_environment)


def register_environment(name: str) -> None:
    """Adds one plant to Gymnasium's registry, once.

    The horizon is given as ``spec.max_episode_steps``. The horizon of a plant from another
    distribution is unknown until it is imported, so the field is then empty; the plant itself
    still truncates its episodes.

    Args:
        name: Name of the plant. A name without a version, which ``make`` refuses, is ignored.
    """
    import gymnasium

    if not VERSIONED.fullmatch(name):
        return
    for physical in (False, True):
        identifier = gymnasium_id(name, physical=physical)
        if identifier not in gymnasium.registry:
            gymnasium.register(
                id=identifier,
                entry_point="neorl_envs.interfaces._gymnasium:GymnasiumEnv",
                vector_entry_point="neorl_envs.interfaces._gymnasium_vector:GymnasiumVectorEnv",
                max_episode_steps=_horizon(name),
                kwargs={"plant": name, "physical": physical},
            )


def _horizon(name: str) -> int | None:
    if PLANTS.origin(name) not in ("", None, "registered"):
        return None
    return PLANTS.find(name)().spec.horizon
