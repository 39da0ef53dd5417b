"""What the names and units of an environment mean, in its own words."""

from neorl_envs import environment_names, make


def legend(environment: str) -> tuple[str, str]:
    """What a return is made of and controllers are called after; what channels measure.

    Args:
        environment: Its name, as results state it.

    Returns:
        Two sentences, each empty where the environment is unknown here or explains nothing.
    """
    if environment not in environment_names():
        return "", ""
    known = make(environment)
    return known.glossary, known.channel_descriptions
