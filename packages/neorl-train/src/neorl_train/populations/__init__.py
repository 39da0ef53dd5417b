"""Populations of independent agents in a world: epochs in one program, runs with checkpoints."""

from neorl_train.populations._run import Epochs as Epochs
from neorl_train.populations._run import Order as Order
from neorl_train.populations._run import TrainedPopulation as TrainedPopulation
from neorl_train.populations._run import play_episode as play_episode
from neorl_train.populations._run import population_checkpoints as population_checkpoints
from neorl_train.populations._run import random_rewards as random_rewards
from neorl_train.populations._run import run_epochs as run_epochs
from neorl_train.populations._run import train_population as train_population

__all__ = [
    "Epochs",
    "Order",
    "TrainedPopulation",
    "play_episode",
    "population_checkpoints",
    "random_rewards",
    "run_epochs",
    "train_population",
]
