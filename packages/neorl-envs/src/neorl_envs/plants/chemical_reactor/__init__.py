"""A semi-batch polymerisation reactor that is unstable without control."""

from neorl_envs.plants.chemical_reactor._actuators import Inputs as Inputs
from neorl_envs.plants.chemical_reactor._env import State as State
from neorl_envs.plants.chemical_reactor._instruments import Noise as Noise
from neorl_envs.plants.chemical_reactor._objective import Info as Info
from neorl_envs.plants.chemical_reactor._parameters import Balances as Balances
from neorl_envs.plants.chemical_reactor._parameters import Parameters as Parameters

__all__ = ["Balances", "Info", "Inputs", "Noise", "Parameters", "State"]
