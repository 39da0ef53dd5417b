"""Explains the names and units of an environment, using its own documentation."""

from neorl_envs import make
from neorl_envs.plants import PLANTS


def glossary(environment: str) -> tuple[str, str]:
    """Explains the terms of the return, the names of controllers, and the channels.

    Args:
        environment: Name of the environment, as results state it.

    Returns:
        Two sentences; each is empty if the environment is unknown here or explains nothing.
    """
    if environment not in PLANTS:
        return "", ""
    plant = make(environment)
    return plant.glossary, plant.channel_descriptions
