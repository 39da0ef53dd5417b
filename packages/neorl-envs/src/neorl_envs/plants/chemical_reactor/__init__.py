"""A semi-batch polymerisation reactor that is unstable without control.

*Dead time.* The polymer's amount comes from an analyser and is one period (50 s) old, own choice.
Thermometers, totaliser and pressure sit at the vessel and answer within seconds; the way of heat
through wall, jacket and exchanger is in the balances.
"""

from neorl_envs.plants.chemical_reactor._physics import Balances as Balances
from neorl_envs.plants.chemical_reactor._physics import Constants as Constants
from neorl_envs.plants.chemical_reactor._physics import Supply as Supply

__all__ = ["Balances", "Constants", "Supply"]
