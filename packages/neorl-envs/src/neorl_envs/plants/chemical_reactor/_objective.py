"""Limits, reward and success of a batch, all computed from the true state."""

from neorl_core import CostChannel
from neorl_envs.blocks import Limit, Term
from neorl_envs.plants.chemical_reactor._physics import DT

SETPOINT = 363.15  # K
BAND = 2.0  # K, to each side of the setpoint
ADIABATIC_LIMIT = 382.15  # K
PRESSURE_LIMIT = 3.5  # bar, soft
RELIEF_PRESSURE = 5.0  # bar, trip
TRIP_TEMPERATURE = 403.15  # K, trip
PRODUCT_TARGET = 20_680.0  # kg of polymer
POINTS_PER_KG = 1 / 206.8
STEP_PENALTY = 0.1
TRIP_PENALTY = 100.0

COSTS = (
    CostChannel("temperature", "K min", 20.0, "episode"),
    CostChannel("pressure", "bar", 0.0, "step"),
)
LIMITS = (
    Limit(
        "T_R", SETPOINT - BAND, SETPOINT + BAND, cost="temperature", factor=DT / 60, channel="T_R"
    ),
    Limit(
        "T_adiab", high=ADIABATIC_LIMIT, cost="temperature", factor=DT / 60, channel="T_adiab_hat"
    ),
    Limit("P", high=PRESSURE_LIMIT, cost="pressure", channel="P"),
    Limit("P", high=RELIEF_PRESSURE, trip=True, unit="bar"),
    Limit("T_R", high=TRIP_TEMPERATURE, trip=True, unit="K"),
)
"""``c_T = max(|T_R - 363.15 K| - 2 K, T_adiab - 382.15 K, 0) dt``, ``c_P = max(P - 3.5 bar, 0)``;
the relief valve at 5 bar and the temperature switch at 403.15 K end the batch."""

TERMS = (
    Term("polymer", "kg", POINTS_PER_KG),
    Term("batch time", "min", -STEP_PENALTY * 60 / DT),
    Term("trips", "1", -TRIP_PENALTY),
)
PENALTIES = {"temperature": 0.75, "pressure": 2.5}
"""Points per K min beyond the soft temperature limits, and per bar beyond the pressure limit."""
