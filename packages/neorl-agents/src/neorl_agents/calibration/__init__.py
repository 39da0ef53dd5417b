"""Do predictions mean what they say: maps that make them, and measures that tell."""

from neorl_agents.calibration._episode_intervals import episode_interval as episode_interval
from neorl_agents.calibration._measures import area_under_roc as area_under_roc
from neorl_agents.calibration._measures import brier_skill as brier_skill
from neorl_agents.calibration._measures import calibration_error as calibration_error
from neorl_agents.calibration._monotone_map import MonotoneMap as MonotoneMap
from neorl_agents.calibration._monotone_map import identity_map as identity_map
from neorl_agents.calibration._monotone_map import isotonic_map as isotonic_map

__all__ = [
    "MonotoneMap",
    "area_under_roc",
    "brier_skill",
    "calibration_error",
    "episode_interval",
    "identity_map",
    "isotonic_map",
]
