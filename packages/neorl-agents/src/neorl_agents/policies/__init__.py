"""What acts: networks between affine maps, and those maps."""

from neorl_agents.policies._history_policy import HistoryCarry as HistoryCarry
from neorl_agents.policies._history_policy import HistoryPolicy as HistoryPolicy
from neorl_agents.policies._network_policy import GaussianPolicy as GaussianPolicy
from neorl_agents.policies._network_policy import NetworkPolicy as NetworkPolicy
from neorl_agents.policies._network_policy import SquashedGaussianPolicy as SquashedGaussianPolicy
from neorl_agents.policies._scaling import RewardScale as RewardScale
from neorl_agents.policies._scaling import Scaling as Scaling
from neorl_agents.policies._scaling import init_scaling as init_scaling
from neorl_agents.policies._scaling import network_policy as network_policy
from neorl_agents.policies._scaling import scaled as scaled

__all__ = [
    "GaussianPolicy",
    "HistoryCarry",
    "HistoryPolicy",
    "NetworkPolicy",
    "RewardScale",
    "Scaling",
    "SquashedGaussianPolicy",
    "init_scaling",
    "network_policy",
    "scaled",
]
