"""Who recorded the episodes of a log: modes of a plant, shifts, operators."""

from typing import Any

import numpy as np

from neorl_envs import Dataset


def behaviours_of(dataset: Dataset) -> tuple[str, ...]:
    """The names of those who recorded the log; none if it does not state them."""
    return () if dataset.behaviour is None else tuple(dataset.attributes.get("behaviours", ()))


def imitation_name(behaviour: str) -> str:
    """The name of the controller that imitates a behaviour, ``"imitated-B"`` for ``"B"``."""
    return f"imitated-{behaviour}"


def own_episodes(dataset: Dataset, name: str) -> Any:
    """Whether a controller generated each episode; ``None`` if the log does not state it.

    The episodes of an imitation are those of the behaviour that it imitates.
    """
    for number, behaviour in enumerate(behaviours_of(dataset)):
        if name in (behaviour, imitation_name(behaviour)):
            return np.asarray(dataset.behaviour) == number
    return None
