"""Who recorded the episodes of a log: modes of a plant, shifts, operators."""

from typing import Any

import numpy as np

from neorl_envs import Dataset
from neorl_train.configuration._retuning import IMITATOR, imitated_behaviour, imitation_name
from neorl_train.configuration._sections import Config


def behaviours_of(dataset: Dataset) -> tuple[str, ...]:
    """The names of those who recorded the log; none if it does not state them."""
    return () if dataset.behaviour is None else tuple(dataset.attributes.get("behaviours", ()))


def own_episodes(dataset: Dataset, name: str) -> Any:
    """Whether a controller generated each episode; ``None`` if the log does not state it.

    The episodes of an imitation are those of the behaviour that it imitates.
    """
    names = behaviours_of(dataset)
    behaviour = name if name in names else imitated_behaviour(name)
    if behaviour not in names:
        return None
    return np.asarray(dataset.behaviour) == names.index(behaviour)


def possible_imitations(config: Config, environment: Any, dataset: Dataset | None) -> list[str]:
    """The imitations that a run on a log alone can fit, by name.

    With a plant there are none: its tunings are known.

    Args:
        config: A validated configuration.
        environment: The plant; ``None`` if there is only a log.
        dataset: The log, if it is a file.
    """
    if environment is not None or dataset is None or IMITATOR not in config.classical.controllers:
        return []
    return [imitation_name(behaviour) for behaviour in behaviours_of(dataset)]
