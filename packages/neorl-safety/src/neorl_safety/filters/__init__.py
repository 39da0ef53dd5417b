"""Filters that replace a requested action by an admissible one; each accepts any input."""

from neorl_safety.filters._candidates import Candidate as Candidate
from neorl_safety.filters._candidates import nearest as nearest
from neorl_safety.filters._certify import Admissible as Admissible
from neorl_safety.filters._certify import certify as certify
from neorl_safety.filters._filter import Context as Context
from neorl_safety.filters._filter import Flag as Flag
from neorl_safety.filters._filter import Limit as Limit
from neorl_safety.filters._filter import SafetyReport as SafetyReport
from neorl_safety.filters._filter import empty_report as empty_report
from neorl_safety.filters._filter import filter_action as filter_action
from neorl_safety.filters._filter import flag_names as flag_names
from neorl_safety.filters._self_test import fast_math_self_test as fast_math_self_test

__all__ = [
    "Admissible",
    "Candidate",
    "Context",
    "Flag",
    "Limit",
    "SafetyReport",
    "certify",
    "empty_report",
    "fast_math_self_test",
    "filter_action",
    "flag_names",
    "nearest",
]
