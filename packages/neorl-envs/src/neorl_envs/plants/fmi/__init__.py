"""A customer's simulator as a plant: units of the Functional Mock-up Interface (extra ``fmi``)."""

from neorl_envs.plants.fmi._declaration import UnitDeclaration as UnitDeclaration
from neorl_envs.plants.fmi._declaration import draft_declaration as draft_declaration
from neorl_envs.plants.fmi._declaration import read_declaration as read_declaration
from neorl_envs.plants.fmi._plant import UnitParameters as UnitParameters
from neorl_envs.plants.fmi._plant import UnitPlant as UnitPlant
from neorl_envs.plants.fmi._plant import UnitState as UnitState
from neorl_envs.plants.fmi._plant import unit_plant as unit_plant
from neorl_envs.plants.fmi._units import UnitError as UnitError
from neorl_envs.plants.fmi._units import Units as Units
from neorl_envs.plants.fmi._units import read_description as read_description

__all__ = [
    "UnitDeclaration",
    "UnitError",
    "UnitParameters",
    "UnitPlant",
    "UnitState",
    "Units",
    "draft_declaration",
    "read_declaration",
    "read_description",
    "unit_plant",
]
