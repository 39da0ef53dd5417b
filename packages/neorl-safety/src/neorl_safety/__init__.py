"""Constraints as data, action filters and guards with stated guarantees."""

from neorl_safety._constraints import ActionConstraints as ActionConstraints
from neorl_safety._constraints import action_constraints as action_constraints
from neorl_safety._constraints_json import constraints_from_dict as constraints_from_dict
from neorl_safety._constraints_json import constraints_to_dict as constraints_to_dict
from neorl_safety._filter import Context as Context
from neorl_safety._filter import filter_action as filter_action
from neorl_safety._guard import GuardCarry as GuardCarry
from neorl_safety._guard import GuardedPolicy as GuardedPolicy
from neorl_safety._guard import guard as guard
from neorl_safety._report import Flag as Flag
from neorl_safety._report import Limit as Limit
from neorl_safety._report import SafetyReport as SafetyReport
from neorl_safety._report import empty_report as empty_report
from neorl_safety._report import flag_names as flag_names
from neorl_safety._self_test import fast_math_self_test as fast_math_self_test
from neorl_safety._violations import ViolationStatistics as ViolationStatistics
from neorl_safety._violations import violation_statistics as violation_statistics

__all__ = [
    "ActionConstraints",
    "Context",
    "Flag",
    "GuardCarry",
    "GuardedPolicy",
    "Limit",
    "SafetyReport",
    "ViolationStatistics",
    "action_constraints",
    "constraints_from_dict",
    "constraints_to_dict",
    "empty_report",
    "fast_math_self_test",
    "filter_action",
    "flag_names",
    "guard",
    "violation_statistics",
]
