"""How a log comes about on a plant: operators, excitation, collection."""

from neorl_envs.recording._behaviour import BehaviourCarry as BehaviourCarry
from neorl_envs.recording._behaviour import BehaviourPolicy as BehaviourPolicy
from neorl_envs.recording._behaviour import behaviour_policies as behaviour_policies
from neorl_envs.recording._operators import OperatorPlan as OperatorPlan

__all__ = [
    "BehaviourCarry",
    "BehaviourPolicy",
    "OperatorPlan",
    "behaviour_policies",
]
