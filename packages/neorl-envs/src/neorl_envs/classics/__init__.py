"""Gymnasium's classic tasks as plants, to compare learners with published learning curves."""

from neorl_envs.classics._cart_pole import CartPole as CartPole
from neorl_envs.classics._cart_pole import CartPoleState as CartPoleState
from neorl_envs.classics._outcome import Outcome as Outcome
from neorl_envs.classics._pendulum import Pendulum as Pendulum
from neorl_envs.classics._pendulum import PendulumState as PendulumState

__all__ = [
    "CartPole",
    "CartPoleState",
    "Outcome",
    "Pendulum",
    "PendulumState",
]
