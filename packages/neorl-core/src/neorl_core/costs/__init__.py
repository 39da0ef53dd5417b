"""Costs and their limits in learning: penalties, multipliers, targets of cost critics."""

from neorl_core.costs._cost_targets import discounted_cost_limit as discounted_cost_limit
from neorl_core.costs._cost_targets import discounted_cost_target as discounted_cost_target
from neorl_core.costs._cost_targets import reachability_target as reachability_target
from neorl_core.costs._cost_targets import step_cost_limit as step_cost_limit
from neorl_core.costs._limit_kinds import LimitKind as LimitKind
from neorl_core.costs._limit_kinds import limit_kind as limit_kind
from neorl_core.costs._penalty import penalised_reward as penalised_reward
from neorl_core.costs._pid_multiplier import MultiplierState as MultiplierState
from neorl_core.costs._pid_multiplier import pid_multiplier_init as pid_multiplier_init
from neorl_core.costs._pid_multiplier import pid_multiplier_step as pid_multiplier_step

__all__ = [
    "LimitKind",
    "MultiplierState",
    "discounted_cost_limit",
    "discounted_cost_target",
    "limit_kind",
    "penalised_reward",
    "pid_multiplier_init",
    "pid_multiplier_step",
    "reachability_target",
    "step_cost_limit",
]
