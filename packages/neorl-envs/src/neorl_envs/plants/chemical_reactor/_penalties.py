"""What a unit of each cost takes off the reward while a policy is learned on this plant."""

from collections.abc import Mapping

PENALTY_WEIGHTS: Mapping[str, float] = {"temperature": 0.75, "pressure": 2.5}
"""Points per K min beyond the soft temperature limits, and points per bar beyond the pressure's."""
