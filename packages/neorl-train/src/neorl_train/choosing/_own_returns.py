"""Predicted and logged returns of a controller in the episodes that it recorded."""

from typing import NamedTuple

import numpy as np

from neorl_agents.retuning import LearnedPlants, replayed
from neorl_core import Policy


class OwnReturns(NamedTuple):
    """Mean returns of the incumbent in the same logged episodes.

    Attributes:
        predicted: Mean return that the model predicts.
        logged: Mean logged return.
        episodes: Number of episodes.
    """

    predicted: float
    logged: float
    episodes: int


def own_returns(plants: LearnedPlants, incumbent: Policy) -> OwnReturns:
    """Replays the incumbent in the judging episodes that it recorded, or in all if none is known.

    In the episodes of others, its return differs from the logged one however good the model is.

    Args:
        plants: The learned plants of a log.
        incumbent: The controller that runs today.
    """
    own = plants.by_incumbent
    if own is None or not own.any():
        own = np.ones(len(plants.logged), bool)
    predicted = np.asarray(replayed(plants.evaluation_plant, incumbent).returns)[:-1, own]
    return OwnReturns(float(predicted.mean()), float(plants.logged[own].mean()), int(own.sum()))
