"""Measured and manipulated channels, with ranges, errors and rate limits."""

from neorl_core import Channel
from neorl_envs.blocks import Actuator, Instrument
from neorl_envs.plants.chemical_reactor._physics import DT

ACTUATORS = (
    Actuator(Channel("feed", "kg/h", 0.0, 30_000.0), start=0.0, speed=6000.0 / DT),
    Actuator(Channel("T_in_M", "K", 333.15, 373.15), start=363.15, speed=4.0 / DT, lag=30.0),
    Actuator(Channel("T_in_EK", "K", 333.15, 373.15), start=353.15, speed=4.0 / DT, lag=30.0),
)
"""Feed and the inlet temperatures of jacket and external heat exchanger."""


def _temperature(name: str) -> Channel:
    return Channel(name, "K", 293.15, 423.15)


INSTRUMENTS = (
    *(Instrument(_temperature(n), sd=0.1) for n in ("T_R", "T_S", "T_M", "T_EK", "T_AWT")),
    Instrument(Channel("m_W", "kg", 0.0, 25_000.0), relative=0.002),
    Instrument(Channel("m_A_hat", "kg", 0.0, 6000.0), relative=0.002),
    Instrument(Channel("m_P", "kg", 0.0, 25_000.0), relative=0.002, dead_time=1),
    # A totaliser adds up the counts of a flow meter, so its readings hardly scatter.
    Instrument(Channel("m_acc", "kg", 0.0, 32_000.0), relative=0.0002),
    Instrument(Channel("T_adiab_hat", "K", 293.15, 473.15)),
    Instrument(Channel("P", "bar", 0.0, 10.0), sd=0.02),
    Instrument(Channel("batch_time", "h", 0.0, 24.0)),
)
"""The observed channels with their measuring ranges, at which the instruments saturate."""

INDEX = {instrument.channel.name: i for i, instrument in enumerate(INSTRUMENTS)}
"""Index of every channel in the observation."""
