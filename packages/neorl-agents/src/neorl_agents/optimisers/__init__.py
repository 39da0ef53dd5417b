"""Gradient steps by optax, the extensible table of optimisers by name, and published recipes."""

from neorl_agents.optimisers._descent import descend as descend
from neorl_agents.optimisers._descent import init_optimiser as init_optimiser
from neorl_agents.optimisers._descent import minimise as minimise
from neorl_agents.optimisers._recipes import RECIPES as RECIPES
from neorl_agents.optimisers._recipes import Part as Part
from neorl_agents.optimisers._recipes import Recipe as Recipe
from neorl_agents.optimisers._recipes import recipe_chain as recipe_chain
from neorl_agents.optimisers._table import OPTIMISERS as OPTIMISERS
from neorl_agents.optimisers._table import Optimiser as Optimiser

__all__ = [
    "OPTIMISERS",
    "RECIPES",
    "Optimiser",
    "Part",
    "Recipe",
    "descend",
    "init_optimiser",
    "minimise",
    "recipe_chain",
]
