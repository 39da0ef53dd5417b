"""What happened: violations and their statistics."""

from neorl_safety.monitoring._violations import ViolationStatistics as ViolationStatistics
from neorl_safety.monitoring._violations import violation_statistics as violation_statistics

__all__ = [
    "ViolationStatistics",
    "violation_statistics",
]
