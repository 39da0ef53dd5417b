"""What watches and what happened: monitors, thresholds, violations and their statistics."""

from neorl_safety.monitoring._monitor import Monitor as Monitor
from neorl_safety.monitoring._monitor import Score as Score
from neorl_safety.monitoring._monitor import Seen as Seen
from neorl_safety.monitoring._sensors import FrozenCarry as FrozenCarry
from neorl_safety.monitoring._sensors import FrozenMonitor as FrozenMonitor
from neorl_safety.monitoring._sensors import RangeMonitor as RangeMonitor
from neorl_safety.monitoring._sensors import frozen_monitor as frozen_monitor
from neorl_safety.monitoring._sensors import range_monitor as range_monitor
from neorl_safety.monitoring._violations import ViolationStatistics as ViolationStatistics
from neorl_safety.monitoring._violations import violation_statistics as violation_statistics

__all__ = [
    "FrozenCarry",
    "FrozenMonitor",
    "Monitor",
    "RangeMonitor",
    "Score",
    "Seen",
    "ViolationStatistics",
    "frozen_monitor",
    "range_monitor",
    "violation_statistics",
]
