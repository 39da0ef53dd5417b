"""Objective of the operation of the grid."""

from neorl_core import CostChannel
from neorl_envs.blocks import Limit, Term
from neorl_envs.plants.power_grid._world import DT

SOFT_FREQUENCY, TRIP_FREQUENCY = 0.2, 0.5  # Hz
SOFT_VOLTAGE, TRIP_VOLTAGE = (0.90, 1.05), (0.85, 1.15)

COSTS = (
    CostChannel("frequency", "1", 5.0, "episode"),
    CostChannel("voltage", "1", 5.0, "episode"),
)
LIMITS = (
    Limit(
        "frequency", -SOFT_FREQUENCY, SOFT_FREQUENCY, cost="frequency", factor=1 / 0.3, unit="Hz"
    ),
    Limit("frequency", -TRIP_FREQUENCY, TRIP_FREQUENCY, trip=True, unit="Hz"),
    Limit("voltage", *SOFT_VOLTAGE, cost="voltage", factor=1 / 0.03, unit="1"),
    Limit("voltage", *TRIP_VOLTAGE, trip=True, unit="1"),
    Limit("angle_spread", high=180.0, trip=True, unit="deg"),
)
PENALTIES = {"frequency": 1.0, "voltage": 1.0}
FREQUENCY_WEIGHT = 5.0  # points per Hz2 and second
ACE_WEIGHT = 1e-5  # points per MW2 and second
FUEL_WEIGHT = 1e-3  # points per $
TRIP = 100.0  # points
TERMS = (
    Term("frequency deviation", "Hz2 s", -FREQUENCY_WEIGHT),
    Term("area control error", "MW2 s", -ACE_WEIGHT),
    Term("fuel", "$", -FUEL_WEIGHT * DT),
    Term("trips", "1", -TRIP),
)
