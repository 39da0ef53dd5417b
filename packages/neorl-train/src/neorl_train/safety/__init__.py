"""The safety report: a policy with and without its filter, on a plant or on a log."""

from neorl_train.safety._findings import Assessment as Assessment
from neorl_train.safety._on_log import assess_on_log as assess_on_log
from neorl_train.safety._on_plant import assess_on_plant as assess_on_plant
from neorl_train.safety._subject import PolicyUnderTest as PolicyUnderTest
from neorl_train.safety._subject import read_policy_under_test as read_policy_under_test
from neorl_train.safety._write import write_safety_report as write_safety_report

__all__ = [
    "Assessment",
    "PolicyUnderTest",
    "assess_on_log",
    "assess_on_plant",
    "read_policy_under_test",
    "write_safety_report",
]
