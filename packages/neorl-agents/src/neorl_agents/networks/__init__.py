"""What is trained: perceptrons, ensembles of critics, activations by name."""

from neorl_agents.networks._activations import ACTIVATIONS as ACTIVATIONS
from neorl_agents.networks._activations import Activation as Activation
from neorl_agents.networks._activations import identity as identity
from neorl_agents.networks._activations import relu as relu
from neorl_agents.networks._activations import tanh as tanh
from neorl_agents.networks._critics import critic_loss as critic_loss
from neorl_agents.networks._critics import first_q_value as first_q_value
from neorl_agents.networks._critics import init_critics as init_critics
from neorl_agents.networks._critics import q_values as q_values
from neorl_agents.networks._gaussian_heads import GaussianActor as GaussianActor
from neorl_agents.networks._gaussian_heads import gaussian_log_prob as gaussian_log_prob
from neorl_agents.networks._gaussian_heads import squashed_mean as squashed_mean
from neorl_agents.networks._gaussian_heads import squashed_parameters as squashed_parameters
from neorl_agents.networks._mlp import MLP as MLP
from neorl_agents.networks._mlp import Initialiser as Initialiser
from neorl_agents.networks._mlp import ensemble as ensemble
from neorl_agents.networks._mlp import init_mlp as init_mlp
from neorl_agents.networks._mlp import layer_norm as layer_norm

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "Activation",
    "GaussianActor",
    "Initialiser",
    "critic_loss",
    "ensemble",
    "first_q_value",
    "gaussian_log_prob",
    "identity",
    "init_critics",
    "init_mlp",
    "layer_norm",
    "q_values",
    "relu",
    "squashed_mean",
    "squashed_parameters",
    "tanh",
]
