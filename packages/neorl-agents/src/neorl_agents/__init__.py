"""Networks, offline reinforcement learning algorithms and the policy artefact."""

from neorl_agents._algorithm import Algorithm as Algorithm
from neorl_agents._algorithm import Metrics as Metrics
from neorl_agents._algorithms import ALGORITHMS as ALGORITHMS
from neorl_agents._artefact import PolicyArtefact as PolicyArtefact
from neorl_agents._artefact import load_policy as load_policy
from neorl_agents._artefact import policy_actions as policy_actions
from neorl_agents._artefact import save_policy as save_policy
from neorl_agents._bc import BC as BC
from neorl_agents._bc import BCState as BCState
from neorl_agents._iql import IQL as IQL
from neorl_agents._iql import GaussianActor as GaussianActor
from neorl_agents._iql import IQLState as IQLState
from neorl_agents._mlp import ACTIVATIONS as ACTIVATIONS
from neorl_agents._mlp import MLP as MLP
from neorl_agents._mlp import ensemble as ensemble
from neorl_agents._mlp import init_mlp as init_mlp
from neorl_agents._network_policy import GaussianPolicy as GaussianPolicy
from neorl_agents._network_policy import NetworkPolicy as NetworkPolicy
from neorl_agents._scaling import Scaling as Scaling
from neorl_agents._sealed_file import ArtefactError as ArtefactError
from neorl_agents._td3_bc import TD3BC as TD3BC
from neorl_agents._td3_bc import TD3BCState as TD3BCState

__all__ = [
    "ACTIVATIONS",
    "ALGORITHMS",
    "BC",
    "IQL",
    "MLP",
    "TD3BC",
    "Algorithm",
    "ArtefactError",
    "BCState",
    "GaussianActor",
    "GaussianPolicy",
    "IQLState",
    "Metrics",
    "NetworkPolicy",
    "PolicyArtefact",
    "Scaling",
    "TD3BCState",
    "ensemble",
    "init_mlp",
    "load_policy",
    "policy_actions",
    "save_policy",
]
