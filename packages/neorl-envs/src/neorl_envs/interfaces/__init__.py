"""Gymnasium and gymnax interfaces of a plant."""

from neorl_envs.interfaces._gymnax import Box as Box
from neorl_envs.interfaces._gymnax import Gymnax as Gymnax
from neorl_envs.interfaces._gymnax import GymnaxState as GymnaxState
from neorl_envs.interfaces._gymnax import gymnax as gymnax

__all__ = ["Box", "Gymnax", "GymnaxState", "gymnax"]
