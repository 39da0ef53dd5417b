"""Recording of logs on simulated plants: behaviour policies, operators, collection."""

from neorl_envs.recording._behaviour import QUALITIES as QUALITIES
from neorl_envs.recording._behaviour import BehaviourCarry as BehaviourCarry
from neorl_envs.recording._behaviour import BehaviourPolicy as BehaviourPolicy
from neorl_envs.recording._behaviour import OperatorPlan as OperatorPlan
from neorl_envs.recording._behaviour import Quality as Quality
from neorl_envs.recording._behaviour import Recordable as Recordable
from neorl_envs.recording._behaviour import behaviour_policies as behaviour_policies
from neorl_envs.recording._behaviour import excitation_plan as excitation_plan
from neorl_envs.recording._behaviour import quality as quality
from neorl_envs.recording._collect_shards import collect_shards as collect_shards

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
