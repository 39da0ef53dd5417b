"""Populations of independent agents in a world: epochs in one program, runs with checkpoints."""

from neorl_train.populations._epochs import Epochs as Epochs
from neorl_train.populations._epochs import Order as Order
from neorl_train.populations._epochs import play_episode as play_episode
from neorl_train.populations._epochs import run_epochs as run_epochs

__all__ = ["Epochs", "Order", "play_episode", "run_epochs"]
