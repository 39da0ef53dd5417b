"""What is trained, and its step."""

from neorl_agents.networks._mlp import ACTIVATIONS as ACTIVATIONS
from neorl_agents.networks._mlp import MLP as MLP
from neorl_agents.networks._mlp import ensemble as ensemble
from neorl_agents.networks._mlp import init_mlp as init_mlp

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "ensemble",
    "init_mlp",
]
