"""Maps that calibrate predictions, and intervals over whole episodes."""

from neorl_agents.calibration._episode_intervals import episode_interval as episode_interval
from neorl_agents.calibration._monotone_map import MonotoneMap as MonotoneMap
from neorl_agents.calibration._monotone_map import identity_map as identity_map
from neorl_agents.calibration._monotone_map import isotonic_map as isotonic_map

__all__ = [
    "MonotoneMap",
    "episode_interval",
    "identity_map",
    "isotonic_map",
]
