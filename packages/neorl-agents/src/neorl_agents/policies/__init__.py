"""What acts: networks between affine maps."""

from neorl_agents.policies._network_policy import GaussianPolicy as GaussianPolicy
from neorl_agents.policies._network_policy import NetworkPolicy as NetworkPolicy
from neorl_agents.policies._scaling import Scaling as Scaling

__all__ = [
    "GaussianPolicy",
    "NetworkPolicy",
    "Scaling",
]
