"""A semi-batch polymerisation reactor that is unstable without control."""

from neorl_envs.plants.chemical_reactor._physics import Balances as Balances
from neorl_envs.plants.chemical_reactor._physics import Constants as Constants
from neorl_envs.plants.chemical_reactor._physics import Supply as Supply

__all__ = ["Balances", "Constants", "Supply"]
