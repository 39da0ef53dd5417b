"""Gymnasium and gymnax interfaces of a plant.

Importing this namespace adds the plants to Gymnasium's registry as ``neorl/Name-v0`` (actions in
[-1, 1]) and ``neorl/Name-physical-v0`` (actions in physical units). ``import neorl_envs`` does so
as well where Gymnasium has been imported before it.
"""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names
from neorl_envs.plants._table import register_environments

if TYPE_CHECKING:
    from neorl_envs.interfaces._gymnasium import GymnasiumEnv as GymnasiumEnv
    from neorl_envs.interfaces._gymnax import Box as Box
    from neorl_envs.interfaces._gymnax import Gymnax as Gymnax
    from neorl_envs.interfaces._gymnax import GymnaxState as GymnaxState
    from neorl_envs.interfaces._gymnax import gymnax as gymnax

__all__ = ["Box", "GymnasiumEnv", "Gymnax", "GymnaxState", "gymnax"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)

register_environments()
