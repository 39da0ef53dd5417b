"""Recording of logs on simulated plants: behaviour policies, operators, collection."""

from neorl_envs.recording._behaviour import BehaviourCarry as BehaviourCarry
from neorl_envs.recording._behaviour import BehaviourPolicy as BehaviourPolicy
from neorl_envs.recording._behaviour import behaviour_policies as behaviour_policies
from neorl_envs.recording._collect_shards import collect_shards as collect_shards
from neorl_envs.recording._operators import OperatorPlan as OperatorPlan
from neorl_envs.recording._operators import excitation_plan as excitation_plan
from neorl_envs.recording._qualities import QUALITIES as QUALITIES
from neorl_envs.recording._qualities import Quality as Quality
from neorl_envs.recording._qualities import quality as quality
from neorl_envs.recording._recordable import Recordable as Recordable

__all__ = [
    "QUALITIES",
    "BehaviourCarry",
    "BehaviourPolicy",
    "OperatorPlan",
    "Quality",
    "Recordable",
    "behaviour_policies",
    "collect_shards",
    "excitation_plan",
    "quality",
]
