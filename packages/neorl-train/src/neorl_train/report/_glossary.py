"""What the names and units of an environment mean, in its own words."""

from neorl_envs import make
from neorl_envs.plants import PLANTS


def glossary(environment: str) -> tuple[str, str]:
    """What a return is made of and controllers are called after; what channels measure.

    Args:
        environment: Name of the environment, as results state it.

    Returns:
        Two sentences, each empty where the environment is unknown here or explains nothing.
    """
    if environment not in PLANTS:
        return "", ""
    plant = make(environment)
    return plant.glossary, plant.channel_descriptions
