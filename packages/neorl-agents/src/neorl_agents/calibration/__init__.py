"""Maps that calibrate predictions, errors near visited rows, and intervals over episodes."""

from neorl_agents.calibration._episode_intervals import episode_interval as episode_interval
from neorl_agents.calibration._monotone_map import MonotoneMap as MonotoneMap
from neorl_agents.calibration._monotone_map import identity_map as identity_map
from neorl_agents.calibration._monotone_map import isotonic_map as isotonic_map
from neorl_agents.calibration._neighbours import NeighbourCalibration as NeighbourCalibration
from neorl_agents.calibration._neighbours import neighbour_calibration as neighbour_calibration

__all__ = [
    "MonotoneMap",
    "NeighbourCalibration",
    "episode_interval",
    "identity_map",
    "isotonic_map",
    "neighbour_calibration",
]
