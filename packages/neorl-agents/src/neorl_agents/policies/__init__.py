"""Network policies, and the affine maps between physical units and networks."""

from neorl_agents.policies._combined import AveragePolicy as AveragePolicy
from neorl_agents.policies._combined import BudgetedCarry as BudgetedCarry
from neorl_agents.policies._combined import BudgetedPolicy as BudgetedPolicy
from neorl_agents.policies._combined import ResidualCarry as ResidualCarry
from neorl_agents.policies._combined import ResidualPolicy as ResidualPolicy
from neorl_agents.policies._combined import average_policy as average_policy
from neorl_agents.policies._from_torch import policy_from_torch as policy_from_torch
from neorl_agents.policies._network_policy import REWARD_SCALES as REWARD_SCALES
from neorl_agents.policies._network_policy import CategoricalPolicy as CategoricalPolicy
from neorl_agents.policies._network_policy import EpsilonGreedyPolicy as EpsilonGreedyPolicy
from neorl_agents.policies._network_policy import GaussianPolicy as GaussianPolicy
from neorl_agents.policies._network_policy import NetworkPolicy as NetworkPolicy
from neorl_agents.policies._network_policy import Preparation as Preparation
from neorl_agents.policies._network_policy import RewardScale as RewardScale
from neorl_agents.policies._network_policy import SquashedGaussianPolicy as SquashedGaussianPolicy
from neorl_agents.policies._network_policy import network_policy as network_policy
from neorl_agents.policies._network_policy import prepare as prepare
from neorl_agents.policies._sequence_policy import HistoryCarry as HistoryCarry
from neorl_agents.policies._sequence_policy import HistoryPolicy as HistoryPolicy
from neorl_agents.policies._sequence_policy import SequenceCarry as SequenceCarry
from neorl_agents.policies._sequence_policy import SequencePolicy as SequencePolicy

__all__ = [
    "REWARD_SCALES",
    "AveragePolicy",
    "BudgetedCarry",
    "BudgetedPolicy",
    "CategoricalPolicy",
    "EpsilonGreedyPolicy",
    "GaussianPolicy",
    "HistoryCarry",
    "HistoryPolicy",
    "NetworkPolicy",
    "Preparation",
    "ResidualCarry",
    "ResidualPolicy",
    "RewardScale",
    "SequenceCarry",
    "SequencePolicy",
    "SquashedGaussianPolicy",
    "average_policy",
    "network_policy",
    "policy_from_torch",
    "prepare",
]
