"""From a requested action to an admissible one; each filter is total."""

from neorl_safety.filters._context import Context as Context
from neorl_safety.filters._filter import filter_action as filter_action
from neorl_safety.filters._report import Flag as Flag
from neorl_safety.filters._report import Limit as Limit
from neorl_safety.filters._report import SafetyReport as SafetyReport
from neorl_safety.filters._report import empty_report as empty_report
from neorl_safety.filters._report import flag_names as flag_names
from neorl_safety.filters._self_test import fast_math_self_test as fast_math_self_test

__all__ = [
    "Context",
    "Flag",
    "Limit",
    "SafetyReport",
    "empty_report",
    "fast_math_self_test",
    "filter_action",
    "flag_names",
]
