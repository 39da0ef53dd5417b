"""The simulated plants, a folder each, and the table of their names."""

from neorl_envs.plants.chemical_reactor._env import ChemicalReactor as ChemicalReactor

__all__ = [
    "ChemicalReactor",
]
