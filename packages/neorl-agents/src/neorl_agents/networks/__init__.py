"""Trainable networks: perceptrons, ensembles of critics, activations by name."""

from neorl_agents.networks._activations import ACTIVATIONS as ACTIVATIONS
from neorl_agents.networks._activations import Activation as Activation
from neorl_agents.networks._activations import activation_name as activation_name
from neorl_agents.networks._activations import gelu as gelu
from neorl_agents.networks._activations import identity as identity
from neorl_agents.networks._activations import largest as largest
from neorl_agents.networks._activations import relu as relu
from neorl_agents.networks._activations import tanh as tanh
from neorl_agents.networks._budgeted_choice import BudgetedChoice as BudgetedChoice
from neorl_agents.networks._critics import first_q_value as first_q_value
from neorl_agents.networks._critics import q_values as q_values
from neorl_agents.networks._critics import sampled_q_values as sampled_q_values
from neorl_agents.networks._encoders import ENCODERS as ENCODERS
from neorl_agents.networks._encoders import Encoder as Encoder
from neorl_agents.networks._encoders import Encoding as Encoding
from neorl_agents.networks._encoders import RecurrentNetwork as RecurrentNetwork
from neorl_agents.networks._encoders import ZeroInputs as ZeroInputs
from neorl_agents.networks._encoders import init_network as init_network
from neorl_agents.networks._gaussian_heads import GaussianActor as GaussianActor
from neorl_agents.networks._gaussian_heads import gaussian_log_prob as gaussian_log_prob
from neorl_agents.networks._gaussian_heads import squashed_mean as squashed_mean
from neorl_agents.networks._gaussian_heads import squashed_parameters as squashed_parameters
from neorl_agents.networks._graph_layers import GraphAttention as GraphAttention
from neorl_agents.networks._graph_layers import GraphConvolution as GraphConvolution
from neorl_agents.networks._graph_layers import init_graph_attention as init_graph_attention
from neorl_agents.networks._graph_layers import init_graph_convolution as init_graph_convolution
from neorl_agents.networks._graph_layout import GraphLayout as GraphLayout
from neorl_agents.networks._graph_layout import graph_layout as graph_layout
from neorl_agents.networks._graph_layout import named_as_graph as named_as_graph
from neorl_agents.networks._graph_layout import pooled_scaling as pooled_scaling
from neorl_agents.networks._graph_network import GraphNetwork as GraphNetwork
from neorl_agents.networks._graph_network import init_graph_network as init_graph_network
from neorl_agents.networks._gru import GRU as GRU
from neorl_agents.networks._gru import init_gru as init_gru
from neorl_agents.networks._implicit_quantiles import NoisyAffine as NoisyAffine
from neorl_agents.networks._implicit_quantiles import QuantileNetwork as QuantileNetwork
from neorl_agents.networks._implicit_quantiles import (
    init_quantile_network as init_quantile_network,
)
from neorl_agents.networks._kinds import NETWORKS as NETWORKS
from neorl_agents.networks._kinds import ModuleNetwork as ModuleNetwork
from neorl_agents.networks._kinds import Network as Network
from neorl_agents.networks._kinds import NetworkKind as NetworkKind
from neorl_agents.networks._kinds import module_kind as module_kind
from neorl_agents.networks._kinds import network_static as network_static
from neorl_agents.networks._kinds import network_template as network_template
from neorl_agents.networks._mixture_head import ActingNetwork as ActingNetwork
from neorl_agents.networks._mixture_head import HeaviestComponent as HeaviestComponent
from neorl_agents.networks._mixture_head import heaviest_component as heaviest_component
from neorl_agents.networks._mixture_head import mixture_outputs as mixture_outputs
from neorl_agents.networks._mixture_head import mixture_parameters as mixture_parameters
from neorl_agents.networks._mlp import MLP as MLP
from neorl_agents.networks._mlp import Initialiser as Initialiser
from neorl_agents.networks._mlp import ensemble as ensemble
from neorl_agents.networks._mlp import init_mlp as init_mlp
from neorl_agents.networks._mlp import layer_norm as layer_norm
from neorl_agents.networks._perturbed_decoder import PerturbedDecoder as PerturbedDecoder
from neorl_agents.networks._transformer import SequenceNetwork as SequenceNetwork
from neorl_agents.networks._transformer import SequenceShape as SequenceShape
from neorl_agents.networks._transformer import Steps as Steps
from neorl_agents.networks._transformer import init_sequence_network as init_sequence_network
from neorl_agents.networks._windows import Window as Window
from neorl_agents.networks._windows import step_features as step_features

__all__ = [
    "ACTIVATIONS",
    "ENCODERS",
    "GRU",
    "MLP",
    "NETWORKS",
    "ActingNetwork",
    "Activation",
    "BudgetedChoice",
    "Encoder",
    "Encoding",
    "GaussianActor",
    "GraphAttention",
    "GraphConvolution",
    "GraphLayout",
    "GraphNetwork",
    "HeaviestComponent",
    "Initialiser",
    "ModuleNetwork",
    "Network",
    "NetworkKind",
    "NoisyAffine",
    "PerturbedDecoder",
    "QuantileNetwork",
    "RecurrentNetwork",
    "SequenceNetwork",
    "SequenceShape",
    "Steps",
    "Window",
    "ZeroInputs",
    "activation_name",
    "ensemble",
    "first_q_value",
    "gaussian_log_prob",
    "gelu",
    "graph_layout",
    "heaviest_component",
    "identity",
    "init_graph_attention",
    "init_graph_convolution",
    "init_graph_network",
    "init_gru",
    "init_mlp",
    "init_network",
    "init_quantile_network",
    "init_sequence_network",
    "largest",
    "layer_norm",
    "mixture_outputs",
    "mixture_parameters",
    "module_kind",
    "named_as_graph",
    "network_static",
    "network_template",
    "pooled_scaling",
    "q_values",
    "relu",
    "sampled_q_values",
    "squashed_mean",
    "squashed_parameters",
    "step_features",
    "tanh",
]
